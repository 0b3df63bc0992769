//! Halt polling.

use sched::core::State;
use sched::event::{Kicker, LockActivity};

use super::*;

impl Sim {
    /// Halts `v`: it polls for a kick if allowed, otherwise it gives up its CPU. It is outside its
    /// guest until `back`.
    pub(super) fn halt(&mut self, v: usize, pcpu: usize, back: Picos) {
        let vcpu = &mut self.vcpus[v];
        let is_kicked = std::mem::take(&mut vcpu.halts.is_kicked);
        vcpu.halts.since = back;
        if self.polls.is_some()
            && !is_kicked
            && vcpu.halts.window > Picos::ZERO
            && !self.core.has_waiters()
        {
            vcpu.state = NextEvent::Polling;
            self.events.set(pcpu, back + vcpu.halts.window);
            self.polling += 1;
            return;
        }
        vcpu.halts.blocks = true;
        self.block(v, back.since(self.now));
    }

    fn block(&mut self, v: usize, exit: Picos) {
        let mut observation = self.observe(v);
        if let LockActivity::Waiting { halted, .. } = &mut observation.activity {
            // The vCPU has spun until now.
            *halted = false;
        }
        self.handle_event(v, Event::Halted(observation), exit);
    }

    /// Ends the poll of `v`: its window has passed, or another vCPU needs its CPU.
    #[cold]
    pub(super) fn end_poll(&mut self, v: usize) {
        self.polling -= 1;
        let vcpu = &mut self.vcpus[v];
        (vcpu.state, vcpu.answer, vcpu.halts.blocks) = (NextEvent::Done, 0, true);
        self.block(v, Picos::ZERO);
    }

    /// Makes polling vCPUs give up their CPUs while other vCPUs need one.
    #[cold]
    pub(super) fn yield_polls(&mut self) {
        let polls = |vcpu: &Vcpu| vcpu.state == NextEvent::Polling && vcpu.pcpu != NO_CPU;
        while self.core.has_waiters()
            && let Some(v) = self.vcpus.iter().position(polls)
        {
            self.end_poll(v);
        }
    }

    /// Delivers a kick to `v`. `exit` is the time since its kicker left its guest.
    pub(super) fn deliver_kick(&mut self, v: usize, by: Option<Kicker>, exit: Picos) {
        if !self.kick_ends_poll(v) {
            self.handle_event(v, Event::Kicked(by), exit);
        }
    }

    /// Ends the poll of `v` by a kick, without an event for the schedule. Returns whether `v` was polling.
    fn kick_ends_poll(&mut self, v: usize) -> bool {
        if self.polls.is_none() {
            return false;
        }
        let vcpu = &mut self.vcpus[v];
        if vcpu.state != NextEvent::Polling {
            let state = self.core.state(VcpuIndex(v as u32));
            vcpu.halts.is_kicked = !matches!(state, State::Halted | State::Idle | State::Exited);
            return false;
        }
        self.polling -= 1;
        self.polled += 1;
        (vcpu.state, vcpu.answer) = (NextEvent::Done, 0);
        match vcpu.pcpu {
            NO_CPU => vcpu.remaining = Picos::ZERO,
            pcpu => {
                let free = self.pcpus[usize::from(pcpu)].stolen_until;
                let at = self.now.max(vcpu.halts.since).max(free);
                self.events.set(pcpu.into(), at);
            }
        }
        true
    }

    /// Adapts the polling window of `v`, which gets a CPU, if that ends a halt.
    pub(super) fn adapt_poll_window(&mut self, v: usize) {
        let halts = &mut self.vcpus[v].halts;
        if let Some(polls) = &self.polls
            && std::mem::take(&mut halts.blocks)
        {
            halts.window = polls.after(halts.window, self.now.since(halts.since));
        }
    }
}
