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

/// Maximum number of actions per step: a grant, a yield request and a sample per slot, plus a few.
const ACTIONS: usize = 4 * MAX_VCPUS as usize + 8;

/// A vCPU's state after an event, as needed by its thread.
pub(super) struct TurnState {
    pub(super) state: State,
    pub(super) deadline: Nanos,
}

fn turn_state(core: &Core, vcpu: VcpuIndex) -> TurnState {
    TurnState { state: core.state(vcpu), deadline: core.deadline(vcpu).unwrap_or(Nanos::NEVER) }
}

/// Whether the vCPU of this event may have been in the guest since its last event. (A vCPU woken in KVM's HLT
/// has no slot.)
fn may_have_run(event: &Event) -> bool {
    !matches!(event, Event::Kicked(_) | Event::KickedInHlt(_) | Event::HoldOver)
}

impl VcpuReadings for Driver {
    fn take_handover(&self, vcpu: VcpuIndex) -> Option<Nanos> {
        self.thread(vcpu).take_handover()
    }

    fn released_at(&self, vcpu: VcpuIndex, now: Nanos) -> Option<Nanos> {
        self.telemetry_of(vcpu).and_then(|(lines, id)| lines.released_at(id, now))
    }

    fn resumed_at(&self, vcpu: VcpuIndex, now: Nanos) -> Option<Nanos> {
        // The line has only the last time. If kicked again, the vCPU may have halted and resumed since.
        let lines = self.telemetry_of(vcpu).filter(|_| self.thread(vcpu).resumed_once());
        lines.and_then(|(lines, id)| lines.resumed_at(id, now))
    }
}

impl Driver {
    /// Passes an event to the core, carries out its actions and returns the vCPU's slice state.
    pub(super) fn tell(&self, vcpu: VcpuIndex, event: Event) -> TurnState {
        self.tell_for(vcpu, vcpu, event)
    }

    /// Like [`Driver::tell`], but returns the slice state of `whose`.
    pub(super) fn tell_for(&self, whose: VcpuIndex, vcpu: VcpuIndex, event: Event) -> TurnState {
        let mut actions = ArrayVec::<Action, ACTIONS>::new();
        delay::maybe();
        let (turn_state, is_called_out) = {
            let mut inner = self.lock();
            let inner = &mut *inner;
            let now = now();
            if let Event::Idle(look) = &event
                && (inner.core.keeps_slot_in_hlt(vcpu, look, now)
                    || !self.takes_slot_in_hlt(vcpu, &inner.core))
            {
                return turn_state(&inner.core, whose);
            }
            inner.stats.before(vcpu, &event, self, &inner.core, now);
            actions.extend(inner.core.handle(vcpu, event, now).iter().copied());
            if matches!(event, Event::StoppedInHlt(_)) && inner.core.state(vcpu) == State::Idle {
                self.thread(vcpu).mark_unslotted();
            }
            for affected in [vcpu, whose] {
                let runs = matches!(inner.core.state(affected), State::Running(_));
                if !runs && (affected != vcpu || may_have_run(&event)) {
                    self.change_turn(affected, false);
                }
            }
            for action in &actions {
                inner.stats.decided(action, now);
                match *action {
                    Action::Grant(who, slot) => {
                        self.change_turn(who, true);
                        let thread = self.thread(who);
                        thread.set_turn(now, inner.core.deadline(who));
                        self.tell_slice_end(who, &inner.core, now);
                        thread.grant(self.cpus[slot.0 as usize]);
                    }
                    // Under the lock: later, the request could hit the vCPU's next slice.
                    Action::Ask(who) => self.ask_to_yield(who),
                    // If its thread is about to enter, it sets its alarm to the old deadline, and its slice
                    // ends late. Only models of the host recall, and they drive no threads.
                    Action::Recall(who) => self.thread(who).set_alarm(now),
                    // Sampled immediately, before any other event.
                    Action::Sample(who) => {
                        let sampled = Event::Sampled(self.sample(who));
                        let further = inner.core.handle(who, sampled, now);
                        debug_assert!(further.is_empty());
                    }
                    Action::Points(_) => {}
                }
            }
            self.watched.publish(&inner.core);
            self.tell_slice_end(whose, &inner.core, now);
            // A vCPU that is in the guest, or about to be, without a slot must be called out.
            let is_called_out = matches!(event, Event::Woken(_) | Event::KickedInHlt(_))
                && self.thread(vcpu).is_unslotted()
                && inner.core.state(vcpu) == State::Ready
                && self.thread(vcpu).call_out();
            (turn_state(&inner.core, whose), is_called_out)
        };
        if is_called_out {
            self.thread(vcpu).signal();
        }
        for action in &actions {
            delay::maybe();
            self.carry_out(action);
        }
        delay::maybe();
        turn_state
    }

    /// Marks a vCPU that is about to lose its slot while it is in KVM's HLT. Returns false if it has a slot
    /// but is no longer in HLT, and therefore keeps the slot.
    ///
    /// Called under the core's lock. Its thread may leave HLT at any moment: either it sees the mark, or it
    /// is seen awake here.
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
    pub(super) fn change_turn(&self, vcpu: VcpuIndex, begins: bool) {
        if let Some((lines, id)) = self.telemetry_of(vcpu) {
            lines.ask_no_more(id);
            lines.set_off_cpu(id, !begins);
        }
    }

    /// Publishes the end of the slice to a vCPU that has a slot.
    fn tell_slice_end(&self, vcpu: VcpuIndex, core: &Core, now: Nanos) {
        if let (Some((lines, id)), State::Running(_)) = (self.telemetry_of(vcpu), core.state(vcpu))
        {
            lines.set_slice_end(id, core.slice_end(vcpu, now), now);
        }
    }

    pub(super) fn ask_to_yield(&self, vcpu: VcpuIndex) {
        if let Some((lines, id)) = self.telemetry_of(vcpu) {
            lines.ask_to_yield(id);
        }
    }

    pub(super) fn carry_out(&self, action: &Action) {
        match *action {
            Action::Grant(who, _) => self.thread(who).wake(),
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
    pub(super) fn settle(&self, vcpu: VcpuIndex, mut turn_state: TurnState) {
        let thread = self.thread(vcpu);
        let mut waited = false;
        while !matches!(turn_state.state, State::Running(_)) {
            let until = match turn_state.state {
                State::Held(until) => Some(until),
                _ => None,
            };
            waited = true;
            if thread.wait(until, now) {
                break;
            }
            turn_state = self.tell(vcpu, Event::HoldOver);
        }
        delay::maybe();
        if thread.is_stopped() {
            return;
        }
        if waited {
            let now = now();
            thread.came_in(now);
            if thread.alarm() <= now {
                // The alarm went off while the thread slept, so it belongs to an earlier slice.
                signal::consume();
                thread.alarm_is_over();
            }
            turn_state.deadline = thread.deadline();
        }
        thread.set_alarm(turn_state.deadline);
    }

    /// Handles an event of the calling thread's own vCPU, which may lose its slot.
    pub(super) fn own(&self, vcpu: VcpuIndex, event: Event) {
        self.thread(vcpu).expect_grant();
        let turn_state = self.tell(vcpu, event);
        if matches!(event, Event::Stopped(_)) {
            self.find_woken();
        }
        self.settle(vcpu, turn_state);
    }

    /// Handles the end of a slice while the calling thread's own vCPU was in KVM's HLT. The vCPU returns
    /// there, without a slot if another vCPU has taken it.
    pub(super) fn stay_in_hlt(&self, vcpu: VcpuIndex, look: Observation) {
        let turn_state = self.tell(vcpu, Event::StoppedInHlt(look));
        self.find_woken();
        match turn_state.state {
            State::Idle => self.thread(vcpu).lie_down(),
            _ => self.settle(vcpu, turn_state),
        }
    }
}
