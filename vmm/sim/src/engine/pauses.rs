//! Pause-loop exits.

use super::*;

impl Sim {
    /// Pauses `v` at `at`, for up to `limit` spin iterations. Returns the number of iterations
    /// before an exit, or `None` if `v` has to exit now.
    #[cold]
    pub(super) fn spins_before_exit(&mut self, v: usize, limit: u32, at: Picos) -> Option<u32> {
        let period = self.iteration_period(self.vcpus[v].round.loads().unwrap_or(1));
        match (&self.pauses, &mut self.vcpus[v].pauses) {
            (Some(pauses), Some(pause_loop)) => {
                pauses.pause(pause_loop, at, period).map(|iterations| iterations.min(limit))
            }
            _ => Some(limit),
        }
    }

    /// Makes `v` leave its guest after a pause loop that exceeds its window.
    #[cold]
    pub(super) fn pause_exit(&mut self, v: usize, pcpu: usize) {
        let exit = self.costs.exit;
        self.end_pause_loop(v);
        self.spins += 1;
        let vcpu = &mut self.vcpus[v];
        vcpu.round = Round::default();
        (vcpu.state, vcpu.answer) = (NextEvent::Done, 1);
        self.events.set(pcpu, self.now + exit);
        let observation = self.observe(v);
        self.handle_event(v, Event::SpunOut(observation), exit);
    }

    /// Ends the pause loop of `v` with an exit.
    pub(super) fn end_pause_loop(&mut self, v: usize) {
        if let (Some(pauses), Some(pause_loop)) = (&self.pauses, &mut self.vcpus[v].pauses) {
            pauses.grow_window(pause_loop);
        }
        self.pause_exits += 1;
    }

    /// Records that a pause of `v` has covered this many spin iterations.
    #[inline(always)]
    pub(super) fn record_iterations(&mut self, v: usize, iterations: u32) {
        let vcpu = &mut self.vcpus[v];
        if let Some(pause_loop) = &mut vcpu.pauses {
            let LongPause { first, period, .. } = vcpu.long_pause;
            // A pause precedes each iteration.
            let more = period.0 * u64::from(iterations.saturating_sub(1));
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
            *pause_loop = pauses.reset();
        }
    }
}
