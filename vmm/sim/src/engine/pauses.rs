//! Pause-loop exits.

use super::*;

impl Sim {
    /// `v` pauses at `at`, for up to `most` looks. Returns for how many it may do so without an exit;
    /// `None`: it has to leave its guest.
    #[cold]
    pub(super) fn looks_without_exit(&mut self, v: usize, most: u32, at: Picos) -> Option<u32> {
        let period = self.look_period(self.vcpus[v].round.loads().unwrap_or(1));
        match (&self.pauses, &mut self.vcpus[v].pauses) {
            (Some(pauses), Some(pause_loop)) => {
                pauses.pause(pause_loop, at, period).map(|looks| looks.min(most))
            }
            _ => Some(most),
        }
    }

    /// `v` leaves its guest because it has paused for too long.
    #[cold]
    pub(super) fn pause_exit(&mut self, v: usize, pcpu: usize) {
        let exit = self.costs.exit;
        self.leaves_loop(v);
        self.looks += 1;
        let vcpu = &mut self.vcpus[v];
        vcpu.round = Round::default();
        (vcpu.state, vcpu.answer) = (NextEvent::Done, 1);
        self.events.set(pcpu, self.now + exit);
        let look = self.observe(v);
        self.tell(v, Event::SpunOut(look), exit);
    }

    /// An exit ends the loop of `v`.
    pub(super) fn leaves_loop(&mut self, v: usize) {
        if let (Some(pauses), Some(pause_loop)) = (&self.pauses, &mut self.vcpus[v].pauses) {
            pauses.exits(pause_loop);
        }
        self.pause_exits += 1;
    }

    /// A pause of `v` has stood for this many looks.
    #[inline(always)]
    pub(super) fn has_paused(&mut self, v: usize, looks: u32) {
        let vcpu = &mut self.vcpus[v];
        if let Some(pause_loop) = &mut vcpu.pauses {
            let LongPause { first, period, .. } = vcpu.park;
            // A pause precedes each look.
            let more = period.0 * u64::from(looks.saturating_sub(1));
            Pauses::paused(pause_loop, first.since(self.costs.pause) + Picos(more));
        }
    }

    /// `v` is out of its guest until `back`. A loop whose looks are skipped goes on then.
    pub(super) fn restart_loop(&mut self, v: usize, back: Picos) {
        self.vcpus[v].pauses.as_mut().into_iter().for_each(|pause_loop| pause_loop.begin(back));
    }

    /// `v` gets a CPU.
    pub(super) fn reset_pauses(&mut self, v: usize) {
        if let (Some(pauses), Some(pause_loop)) = (&self.pauses, &mut self.vcpus[v].pauses) {
            *pause_loop = pauses.fresh();
        }
    }
}
