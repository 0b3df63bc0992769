//! The steps of a schedule: pass an event to the core and carry out the resulting actions.

use arrayvec::ArrayVec;
use hypercalls::MAX_VCPUS;

use super::{
    delay,
    stats::VcpuReadings,
    user_driver::{Driver, now},
};
use base::units::Nanos;
use kvm::signal;
use sched::{
    core::{Core, State},
    event::{Action, Event, Observation, VcpuIndex},
};

/// Maximum number of actions per step: a grant, a yield request, a recall and a sample per slot, plus a few.
const ACTIONS: usize = 4 * MAX_VCPUS as usize + 8;

/// A vCPU's state after an event, as needed by its thread.
pub(super) struct SliceState {
    pub(super) state: State,
    pub(super) deadline: Nanos,
}

fn slice_state(core: &Core, vcpu: VcpuIndex) -> SliceState {
    SliceState { state: core.state(vcpu), deadline: core.deadline(vcpu).unwrap_or(Nanos::NEVER) }
}

/// Whether the vCPU of this event may have been in the guest since its last event. (A vCPU kicked in KVM's
/// HLT had no slot.)
fn may_have_run(event: &Event) -> bool {
    !matches!(event, Event::Kicked(_) | Event::KickedInHlt(_) | Event::HoldEnded)
}

impl VcpuReadings for Driver {
    fn take_handover(&self, vcpu: VcpuIndex) -> Option<Nanos> {
        self.thread(vcpu).take_handover()
    }

    fn released_at(&self, vcpu: VcpuIndex, now: Nanos) -> Option<Nanos> {
        self.telemetry_of(vcpu).and_then(|(lines, id)| lines.released_at(id, now))
    }

    fn resumed_at(&self, vcpu: VcpuIndex, now: Nanos) -> Option<Nanos> {
        // The line has only the last resume. If kicked again, the vCPU may have halted and resumed since.
        let lines = self.telemetry_of(vcpu).filter(|_| self.thread(vcpu).resumed_once());
        lines.and_then(|(lines, id)| lines.resumed_at(id, now))
    }
}

impl Driver {
    /// Passes an event to the core, carries out its actions and returns the vCPU's slice state.
    pub(super) fn handle(&self, vcpu: VcpuIndex, event: Event) -> SliceState {
        self.handle_for(vcpu, vcpu, event)
    }

    /// Like [`Driver::handle`], but returns the slice state of `owner`.
    pub(super) fn handle_for(&self, owner: VcpuIndex, vcpu: VcpuIndex, event: Event) -> SliceState {
        let mut actions = ArrayVec::<Action, ACTIONS>::new();
        delay::maybe();
        let (slice_state, is_called_out) = {
            let mut inner = self.lock();
            let inner = &mut *inner;
            let now = now();
            if let Event::Idle(observation) = &event
                && (inner.core.keeps_slot_in_hlt(vcpu, observation, now)
                    || !self.takes_slot_in_hlt(vcpu, &inner.core))
            {
                return slice_state(&inner.core, owner);
            }
            inner.stats.on_event(vcpu, &event, self, &inner.core, now);
            actions.extend(inner.core.handle(vcpu, event, now).iter().copied());
            if matches!(event, Event::StoppedInHlt(_)) && inner.core.state(vcpu) == State::Idle {
                self.thread(vcpu).mark_unslotted();
            }
            for affected in [vcpu, owner] {
                let runs = matches!(inner.core.state(affected), State::Running(_));
                if !runs && (affected != vcpu || may_have_run(&event)) {
                    self.publish_slice(affected, false);
                }
                self.publish_steal(affected, inner, now);
            }
            if let Event::HandedOver(to, _) = event {
                self.publish_steal(to, inner, now);
            }
            for action in &actions {
                inner.stats.on_action(action, now);
                match *action {
                    Action::Grant(target, slot) => {
                        self.publish_slice(target, true);
                        self.publish_steal(target, inner, now);
                        let thread = self.thread(target);
                        thread.set_slice(now, inner.core.deadline(target));
                        self.publish_slice_end(target, &inner.core, now);
                        thread.grant(self.cpus[slot.0 as usize]);
                    }
                    // Under the lock: later, the request could hit the vCPU's next slice.
                    Action::Ask(target) => self.request_yield(target),
                    // A thread about to enter the guest still sets its alarm to the old deadline, so its
                    // slice ends late. Only models of the host recall vCPUs, and they drive no threads.
                    Action::Recall(target) => self.thread(target).set_alarm(now),
                    // Sampled immediately, before any other event.
                    Action::Sample(target) => {
                        let sampled = Event::Sampled(self.sample(target));
                        let more_actions = inner.core.handle(target, sampled, now);
                        debug_assert!(more_actions.is_empty());
                    }
                    Action::Points(_) => {}
                }
            }
            self.published.publish(&inner.core);
            self.publish_slice_end(owner, &inner.core, now);
            // A vCPU that is in the guest, or about to be, without a slot must be called out.
            let is_called_out = matches!(event, Event::Woken(_) | Event::KickedInHlt(_))
                && self.thread(vcpu).is_unslotted()
                && inner.core.state(vcpu) == State::Ready
                && self.thread(vcpu).call_out();
            (slice_state(&inner.core, owner), is_called_out)
        };
        if is_called_out {
            self.thread(vcpu).signal();
        }
        for action in &actions {
            delay::maybe();
            self.carry_out(action);
        }
        delay::maybe();
        slice_state
    }

    /// Marks as unslotted a vCPU about to lose its slot in KVM's HLT. Returns false if the vCPU has a slot
    /// but is no longer in HLT, and therefore keeps the slot.
    ///
    /// Called under the core's lock. The vCPU's thread may leave HLT at any moment: either it sees the flag,
    /// or it is seen awake here.
    pub(super) fn takes_slot_in_hlt(&self, vcpu: VcpuIndex, core: &Core) -> bool {
        if !matches!(core.state(vcpu), State::Running(_)) {
            return true;
        }
        self.thread(vcpu).set_unslotted(true);
        let is_blocked = self.is_blocked(vcpu);
        if is_blocked {
            // The end of its slice no longer matters.
            self.thread(vcpu).set_alarm(Nanos::NEVER);
        } else {
            self.thread(vcpu).set_unslotted(false);
        }
        is_blocked
    }

    /// Publishes the start or end of a slice in the vCPU's telemetry line, for the waiters behind it, and
    /// withdraws any yield request from the previous slice.
    pub(super) fn publish_slice(&self, vcpu: VcpuIndex, begins: bool) {
        if let Some((lines, id)) = self.telemetry_of(vcpu) {
            lines.clear_yield_request(id);
            lines.set_off_cpu(id, !begins);
        }
    }

    /// Publishes the end of the slice to a vCPU that has a slot.
    fn publish_slice_end(&self, vcpu: VcpuIndex, core: &Core, now: Nanos) {
        if let (Some((lines, id)), State::Running(_)) = (self.telemetry_of(vcpu), core.state(vcpu))
        {
            lines.set_slice_end(id, core.slice_end(vcpu, now), now);
        }
    }

    pub(super) fn request_yield(&self, vcpu: VcpuIndex) {
        if let Some((lines, id)) = self.telemetry_of(vcpu) {
            lines.request_yield(id);
        }
    }

    pub(super) fn carry_out(&self, action: &Action) {
        match *action {
            Action::Grant(target, _) => self.thread(target).wake(),
            // Done under the lock.
            Action::Ask(_) | Action::Recall(_) | Action::Sample(_) => {}
            Action::Points(mask) => {
                for (vm, lines) in self.lines.iter().enumerate() {
                    let Some(lines) = lines.get() else { continue };
                    self.members(vm).for_each(|(_, id)| lines.set_points(id, mask));
                }
            }
        }
    }

    /// Blocks the thread of `vcpu` until it has a slot or its machine stops.
    pub(super) fn settle(&self, vcpu: VcpuIndex, mut slice_state: SliceState) {
        let thread = self.thread(vcpu);
        let mut waited = false;
        while !matches!(slice_state.state, State::Running(_)) {
            let until = match slice_state.state {
                State::Held(until) => Some(until),
                _ => None,
            };
            waited = true;
            if thread.wait(until, now) {
                break;
            }
            slice_state = self.handle(vcpu, Event::HoldEnded);
        }
        delay::maybe();
        if thread.is_stopped() {
            return;
        }
        if waited {
            let now = now();
            thread.record_entry(now);
            if thread.alarm() <= now {
                // The alarm went off while the thread slept, so it belongs to an earlier slice.
                signal::consume();
                thread.clear_alarm();
            }
            slice_state.deadline = thread.deadline();
        }
        thread.set_alarm(slice_state.deadline);
    }

    /// Handles an event of the calling thread's own vCPU, which may lose its slot.
    pub(super) fn handle_own(&self, vcpu: VcpuIndex, event: Event) {
        self.thread(vcpu).expect_grant();
        let slice_state = self.handle(vcpu, event);
        if matches!(event, Event::Stopped(_)) {
            self.report_woken();
        }
        self.settle(vcpu, slice_state);
    }

    /// Handles the end of a slice while the calling thread's own vCPU was in KVM's HLT. The vCPU returns
    /// there, without a slot if another vCPU has taken it.
    pub(super) fn stay_in_hlt(&self, vcpu: VcpuIndex, observation: Observation) {
        let slice_state = self.handle(vcpu, Event::StoppedInHlt(observation));
        self.report_woken();
        match slice_state.state {
            State::Idle => self.thread(vcpu).enter_background(),
            _ => self.settle(vcpu, slice_state),
        }
    }
}
