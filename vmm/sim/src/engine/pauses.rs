//! Pause-loop exits.

use super::*;

impl Sim {
    /// Pauses `v` at `at`, for up to `most` spin iterations. Returns the number of iterations before
    /// an exit, or `None` if `v` has to exit now.
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

    /// Makes `v` leave its guest after a pause loop that exceeds its window.
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

    /// Ends the pause loop of `v` with an exit.
    pub(super) fn leaves_loop(&mut self, v: usize) {
        if let (Some(pauses), Some(pause_loop)) = (&self.pauses, &mut self.vcpus[v].pauses) {
            pauses.exits(pause_loop);
        }
        self.pause_exits += 1;
    }

    /// Records that a pause of `v` has covered this many spin iterations.
    #[inline(always)]
    pub(super) fn has_paused(&mut self, v: usize, looks: u32) {
        let vcpu = &mut self.vcpus[v];
        if let Some(pause_loop) = &mut vcpu.pauses {
            let LongPause { first, period, .. } = vcpu.park;
            // A pause precedes each iteration.
            let more = period.0 * u64::from(looks.saturating_sub(1));
            Pauses::paused(pause_loop, first.since(self.costs.pause) + Picos(more));
        }
    }

    /// Restarts the pause loop of `v` at `back`, when it is in its guest again.
    pub(super) fn restart_loop(&mut self, v: usize, back: Picos) {
        self.vcpus[v].pauses.as_mut().into_iter().for_each(|pause_loop| pause_loop.begin(back));
    }

    /// Resets the pause loop of `v`, which gets a CPU.
    pub(super) fn reset_pauses(&mut self, v: usize) {
        if let (Some(pauses), Some(pause_loop)) = (&self.pauses, &mut self.vcpus[v].pauses) {
            *pause_loop = pauses.fresh();
        }
    }
}
