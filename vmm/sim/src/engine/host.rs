//! The host: carries out the decisions of the scheduler core.
//!
//! The core is the same as for real vCPUs. It receives an event at the time when a vCPU leaves its guest; the
//! costs of the exit and the switch are added to the subsequent VM entries.

use sched::core::State;
use sched::event::{LockActivity, Mode, Observation};
use sim_cell::{Access, Answer};

use crate::guest::TICK;

use super::*;

impl Sim {
    /// Handles the earliest timer.
    #[cold]
    pub(super) fn timer(&mut self) -> Result<(), Stuck> {
        self.count_timer();
        let (_, leaf) = self.timers.earliest();
        self.set_timer(leaf, Picos::NEVER);
        match leaf.checked_sub(self.pcpus.len()) {
            Some(past) if past > self.vcpus.len() => match past - self.vcpus.len() - 1 {
                pcpu if pcpu < self.pcpus.len() => self.run_noise(pcpu),
                _ => self.end_stores(),
            },
            Some(v) if v == self.vcpus.len() => self.deliver_late_kicks(),
            Some(v) => self.vcpu_timer(v),
            None if self.pcpus[leaf].stolen_until > self.now => {
                self.set_timer(leaf, self.pcpus[leaf].stolen_until);
            }
            None => match self.vcpus[self.pcpus[leaf].vcpu as usize].state {
                state if state.is_transfer() => self.pcpus[leaf].slice_ended = true,
                _ => self.stop(leaf),
            },
        }
        self.check_progress()
    }

    pub(super) fn set_timer(&mut self, leaf: usize, at: Picos) {
        self.timers.set(leaf, at);
        let (first, _) = self.timers.earliest();
        self.events.set(self.pcpus.len(), first);
    }

    fn check_progress(&mut self) -> Result<(), Stuck> {
        let (before, since) = self.progress;
        let done = self.done();
        if done != before {
            self.progress = (done, self.now);
        } else if self.now.since(since) > self.progress_timeout {
            return Err(Stuck::NoProgress(self.progress_timeout));
        }
        Ok(())
    }

    /// Ends the slice on this CPU at its deadline.
    pub(super) fn stop(&mut self, pcpu: usize) {
        let vcpu = self.pcpus[pcpu].vcpu;
        if vcpu == NO_VCPU {
            return;
        }
        let v = vcpu as usize;
        let observation = self.observe(v);
        self.handle_event(v, Event::Stopped(observation), self.costs.exit);
        if usize::from(self.vcpus[v].pcpu) != pcpu {
            return;
        }
        // The vCPU stays on its CPU, but was outside its guest. If it was already outside, the exit is not
        // charged again: otherwise a vCPU with frequent reschedule requests would never enter its guest.
        if self.pcpus[pcpu].entered > self.now {
            return;
        }
        self.restart_loop(v, self.now + self.costs.exit);
        let is_parked = self.vcpus[v].state == NextEvent::Parked;
        if is_parked {
            self.vcpus[v].long_pause.delay(self.now, self.costs.exit);
        }
        let at = self.events.time(pcpu);
        if at != Picos::NEVER || is_parked || self.awaits_store(pcpu) {
            self.pcpus[pcpu].entered = self.now + self.costs.exit;
        }
        if at != Picos::NEVER {
            self.events.set(pcpu, at + self.costs.exit);
        }
    }

    pub(super) fn hypercall(&mut self, v: usize, pcpu: usize, request: Request) {
        if matches!(request, Request::Halt(_)) && self.delay_halt(v, pcpu) {
            return;
        }
        let exit = match request {
            Request::Halt(_) | Request::Kick(_) => self.lock_exit,
            _ => self.costs.exit,
        };
        let vcpu = &mut self.vcpus[v];
        vcpu.round.mark_mixed();
        (vcpu.state, vcpu.answer) = (NextEvent::Done, 0);
        self.events.set(pcpu, self.now + exit);
        match request {
            Request::Halt(_) if self.faults.draw_spurious_halt() => {}
            Request::Halt(_) => self.halt(v, pcpu, self.now + exit),
            Request::Kick(target) => self.kick(v, self.guest_vcpu(v, target)),
            Request::Yield => self.handle_event(v, Event::Yielded, exit),
            Request::SpunOut => {
                let observation = self.observe(v);
                self.handle_event(v, Event::SpunOut(observation), exit);
            }
            Request::YieldTo(target) => {
                let (observation, target) =
                    (self.observe(v), VcpuIndex(self.guest_vcpu(v, target) as u32));
                self.handle_event(v, Event::YieldsTo(target, observation), exit);
            }
            Request::Point(number) => {
                let observation = self.observe(v);
                if let Some(point) = Point::ALL.get(number as usize) {
                    self.handle_event(v, Event::Point(*point, observation), exit);
                }
            }
            _ => debug_assert!(false, "{request:?} is no hypercall"),
        }
    }

    pub(super) fn activity(&self, v: usize) -> LockActivity {
        // A vCPU that has entered the lock draws its ticket with a read-modify-write.
        let draws = |access| matches!(access, Access::ReadModifyWrite);
        let is_drawn = match self.vcpus[v].request {
            Request::Access(access, _) => !draws(access),
            _ => true,
        };
        let subject = &self.subjects[v / self.per_guest];
        let shares_table = self.load.shares_table;
        let place = |lock, queued| subject.releases_before(lock, shares_table, queued);
        self.shared.activity(v, is_drawn, place)
    }

    /// Records the spin of `v`, if it is the head of a queue.
    #[cold]
    pub(super) fn watch_head(&self, v: usize) {
        if let LockActivity::Waiting { distance: Some(0 | 1), .. } = self.activity(v) {
            self.shared.waits.spin_as_head(v);
        }
    }

    pub(super) fn observe(&self, v: usize) -> Observation {
        Observation { mode: Mode::Unknown, activity: self.activity(v) }
    }

    /// Brings the account up to date.
    pub(super) fn sample_all(&mut self) {
        for pcpu in 0..self.pcpus.len() {
            let vcpu = self.pcpus[pcpu].vcpu;
            if vcpu != NO_VCPU {
                let sampled = Event::Sampled(self.activity(vcpu as usize));
                self.core.handle(VcpuIndex(vcpu), sampled, self.now.to_clock());
            }
        }
    }

    /// Remaining slice of `v` in [`TICK`]s; `Answer::MAX` without an end.
    pub(super) fn slice_left(&self, v: usize) -> Answer {
        let end = self.core.slice_end(VcpuIndex(v as u32), self.now.to_clock());
        let remaining = |end| Picos::from_clock(end).0.saturating_sub(self.now.0) / TICK;
        end.map_or(Answer::MAX, |end| remaining(end).try_into().unwrap_or(Answer::MAX))
    }

    /// Whether a critical vCPU of the guest of `v` has no CPU.
    pub(super) fn is_critical_off(&self, v: usize) -> bool {
        self.critical_off[v / self.per_guest] > 0
    }

    /// The line that counts the critical vCPUs without a CPU in the guest of `v`.
    pub(super) fn critical_word(&self, v: usize) -> usize {
        self.first_mark + self.vcpus.len() + v / self.per_guest
    }

    pub(super) fn is_off(&self, v: usize) -> bool {
        self.vcpus[v].pcpu == NO_CPU
    }

    /// Sends an event of `v` to the core, and carries out its decisions. `exit` is the time from the guest to
    /// the decision.
    pub(super) fn handle_event(&mut self, v: usize, event: Event, exit: Picos) {
        let now = self.now.to_clock();
        if let (Some(handoffs), Event::Kicked(by)) = (&mut self.handoffs, event) {
            let to = VcpuIndex(v as u32);
            if self.core.state(to) == State::Halted {
                handoffs.kicked(to, by, now);
            }
        }
        if let Some(trace) = &mut self.trace {
            trace.event(self.now, v, &event);
        }
        let mut actions = std::mem::take(&mut self.actions);
        actions.clear();
        actions.extend_from_slice(self.core.handle(VcpuIndex(v as u32), event, now));
        let kicker = match event {
            Event::Kicked(by) => by.map(|by| by.vcpu.ix()),
            _ => None,
        };
        let from = self.vcpus[kicker.unwrap_or(v)].pcpu;
        for affected in [Some(v), kicker].into_iter().flatten() {
            self.take_cpu(affected, &actions);
        }
        for action in &actions {
            match *action {
                Action::Grant(vcpu, slot) => {
                    if let Some(trace) = &mut self.trace {
                        trace.granted(self.now, vcpu.ix(), slot);
                    }
                    self.enter(vcpu.ix(), slot, exit, from);
                }
                Action::Recall(vcpu) => self.set_deadline(vcpu.ix()),
                Action::Ask(vcpu) => self.shared.vcpu(vcpu.ix()).yields.set(true),
                Action::Sample(vcpu) => {
                    let sampled = Event::Sampled(self.activity(vcpu.ix()));
                    self.core.handle(vcpu, sampled, now);
                }
                Action::Points(mask) => self.shared.points.set(mask),
            }
        }
        self.actions = actions;
        for affected in [Some(v), kicker].into_iter().flatten() {
            self.set_deadline(affected);
        }
        if self.polling > 0 {
            self.yield_polls();
        }
    }

    /// Takes the CPU away from `v` if the core has ended its slice there.
    fn take_cpu(&mut self, v: usize, actions: &[Action]) {
        let pcpu = self.vcpus[v].pcpu;
        if pcpu == NO_CPU {
            return;
        }
        let index = VcpuIndex(v as u32);
        let is_new =
            actions.iter().any(|act| matches!(act, Action::Grant(vcpu, _) if *vcpu == index));
        let state = self.core.state(index);
        if state == State::Running(SlotId(pcpu.into())) && !is_new {
            return;
        }
        self.shared.waits.record_off_cpu(v, state == State::Halted);
        self.leave(v, pcpu.into());
        if matches!(state, State::Halted | State::Idle) {
            self.vcpus[v].remaining = Picos::ZERO;
        }
    }

    fn leave(&mut self, v: usize, pcpu: usize) {
        if self.vcpus[v].state == NextEvent::Parked {
            self.interrupt_pause(v, pcpu);
            self.vcpus[v].remaining = Picos::ZERO;
        } else if self.vcpus[v].state == NextEvent::AwaitAnswers {
            self.interrupt_await(v);
            self.vcpus[v].remaining = Picos::ZERO;
        } else {
            debug_assert!(!self.vcpus[v].state.is_transfer(), "it cannot be interrupted");
            self.vcpus[v].remaining = match self.events.time(pcpu) {
                Picos::NEVER => Picos::ZERO,
                // An unfinished VM entry does not count: the next entry has its full cost.
                at => at.since(self.now.max(self.pcpus[pcpu].entered)),
            };
        }
        self.stop_awaiting_store(pcpu);
        self.vcpus[v].pcpu = NO_CPU;
        self.pcpus[pcpu] = Pcpu {
            vcpu: NO_VCPU,
            slice_ended: false,
            last_left: self.now,
            entered: self.now,
            ..self.pcpus[pcpu]
        };
        self.events.set(pcpu, Picos::NEVER);
        self.set_timer(pcpu, Picos::NEVER);
        self.publish_running(v);
    }

    /// Gives `v` the CPU of `slot`, by a decision on the CPU `from`, if it is on any.
    fn enter(&mut self, v: usize, slot: SlotId, exit: Picos, from: u16) {
        let pcpu = slot.0 as usize;
        let entry = match (self.pcpus[pcpu].last_left == self.now, from) {
            (true, _) => self.costs.switch,
            (false, NO_CPU) => self.costs.wakeup,
            (false, from) => self.costs.wakeup + self.lines.interrupt(from.into(), pcpu),
        };
        let vcpu = &mut self.vcpus[v];
        vcpu.pcpu = pcpu as u16;
        let entered = self.now.max(self.pcpus[pcpu].stolen_until) + exit + entry;
        self.stolen += self.pcpus[pcpu].stolen_until.since(self.now);
        let remaining = vcpu.remaining;
        if let Some(handoffs) = &mut self.handoffs {
            handoffs.granted(VcpuIndex(v as u32), self.now.to_clock());
        }
        self.reset_pauses(v);
        self.adapt_poll_window(v);
        let entered = self.answer_shootdowns(v, entered);
        let at = entered + remaining;
        (self.pcpus[pcpu].vcpu, self.pcpus[pcpu].entered) = (v as u32, entered);
        self.events.set(pcpu, at);
        self.set_deadline(v);
        self.publish_running(v);
    }

    pub(super) fn set_deadline(&mut self, v: usize) {
        let deadline = self.core.deadline(VcpuIndex(v as u32));
        let at = deadline.map_or_else(|| self.wakeup_time(v), Picos::from_clock).max(self.now);
        let leaf = self.pcpus.len() + v;
        match self.vcpus[v].pcpu {
            NO_CPU => self.set_timer(leaf, at),
            pcpu if !self.pcpus[usize::from(pcpu)].slice_ended => self.set_timer(pcpu.into(), at),
            _ => {}
        }
    }

    /// Updates the line that shows whether `v` has a CPU, at the start or end of a slice, and withdraws a
    /// request to yield.
    fn publish_running(&mut self, v: usize) {
        self.shared.vcpu(v).yields.set(false);
        self.lines.store_by_host(self.first_mark + v, &mut self.woken);
        let is_critical_off = self.is_off(v) && self.activity(v).is_critical();
        if std::mem::replace(&mut self.vcpus[v].is_critical_off, is_critical_off) != is_critical_off
        {
            let count = &mut self.critical_off[v / self.per_guest];
            *count = if is_critical_off { *count + 1 } else { *count - 1 };
            self.lines.store_by_host(self.critical_word(v), &mut self.woken);
        }
        self.resume_spinners();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{MILLI, spec};
    use crate::{System, machine::Machine};

    /// Regression: each reschedule request charged another exit to the vCPU that stayed, even outside its
    /// guest. If many spinners yielded to the queue of its CPU, it never returned to its guest.
    #[test]
    fn no_second_exit_outside_the_guest() {
        let mut spec = spec(System::PvTicket, 1, "host-cfs");
        (spec.machine, spec.cpus) = (Machine::ideal(1), 1);
        spec.machine.costs.exit = Picos(1_500_000);
        let mut sim = Sim::new(&spec).expect("it can be simulated");
        // In the middle of a slice.
        sim.run_until(Picos(MILLI.0 + 50_000_000)).expect("it gets on");
        let before = sim.events.time(0);
        assert_ne!(before, Picos::NEVER);
        (0..1_000).for_each(|_| sim.stop(0));
        assert_eq!(sim.vcpus[0].pcpu, 0, "it stays");
        assert_eq!(sim.events.time(0), before + spec.machine.costs.exit);
    }

    #[test]
    fn interrupts_take_longer_from_afar() {
        let mut spec = spec(System::PvTicket, 1, "rr");
        (spec.machine, spec.cpus) = (Machine::of_steps(4), 4);
        spec.machine.costs.wakeup = Picos(1_000);
        let [near, far] = [10, 300].map(Picos);
        (spec.machine.levels[0].lines.wakeup, spec.machine.levels[1].lines.wakeup) = (near, far);
        for (from, way) in [(NO_CPU, Picos::ZERO), (2, near), (0, far)] {
            let mut sim = Sim::new(&spec).expect("it can be simulated");
            sim.leave(0, sim.vcpus[0].pcpu.into());
            sim.enter(0, SlotId(3), Picos::ZERO, from);
            assert_eq!(sim.pcpus[3].entered, sim.now + Picos(1_000) + way, "from {from}");
        }
    }
}
