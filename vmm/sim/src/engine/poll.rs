//! Halt polling.

use sched::core::State as Turn;
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
            && !self.core.is_wanted()
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
        let mut look = self.observe(v);
        if let LockActivity::Waiting { halted, .. } = &mut look.activity {
            // The vCPU has spun until now.
            *halted = false;
        }
        self.tell(v, Event::Halted(look), exit);
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
        let polls = |vcpu: &Vcpu| vcpu.state == NextEvent::Polling && vcpu.pcpu != NOWHERE;
        while self.core.is_wanted()
            && let Some(v) = self.vcpus.iter().position(polls)
        {
            self.end_poll(v);
        }
    }

    /// Delivers a kick to `v`, `exit` after its kicker left its guest.
    pub(super) fn kicked(&mut self, v: usize, by: Option<Kicker>, exit: Picos) {
        if !self.kick_ends_poll(v) {
            self.tell(v, Event::Kicked(by), exit);
        }
    }

    /// Ends the poll of `v` by a kick, without the schedule. Returns whether `v` was polling.
    fn kick_ends_poll(&mut self, v: usize) -> bool {
        if self.polls.is_none() {
            return false;
        }
        let vcpu = &mut self.vcpus[v];
        if vcpu.state != NextEvent::Polling {
            let state = self.core.state(VcpuIndex(v as u32));
            vcpu.halts.is_kicked = !matches!(state, Turn::Halted | Turn::Idle | Turn::Gone);
            return false;
        }
        self.polling -= 1;
        self.polled += 1;
        (vcpu.state, vcpu.answer) = (NextEvent::Done, 0);
        match vcpu.pcpu {
            NOWHERE => vcpu.left = Picos::ZERO,
            pcpu => {
                let free = self.pcpus[usize::from(pcpu)].stolen;
                let at = self.now.max(vcpu.halts.since).max(free);
                self.events.set(pcpu.into(), at);
            }
        }
        true
    }

    /// Adapts the polling window of `v`, which gets a CPU, if that ends a halt.
    pub(super) fn learn_poll(&mut self, v: usize) {
        let halts = &mut self.vcpus[v].halts;
        if let Some(polls) = &self.polls
            && std::mem::take(&mut halts.blocks)
        {
            halts.window = polls.after(halts.window, self.now.since(halts.since));
        }
    }
}
