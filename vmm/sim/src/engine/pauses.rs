//! Pause-loop exits.

use sched::core::State;

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
        let exit = self.pause_exit_cost(v);
        self.end_pause_loop(v);
        self.spins += 1;
        let vcpu = &mut self.vcpus[v];
        vcpu.round = Round::default();
        (vcpu.state, vcpu.answer) = (NextEvent::Done, 1);
        self.events.set(pcpu, self.now + exit);
        let observation = self.observe(v);
        self.handle_event(v, Event::SpunOut(observation), exit);
    }

    /// The cost of a pause-loop exit of `v`: with a try to yield if a vCPU of its guest waits for a CPU.
    pub(super) fn pause_exit_cost(&self, v: usize) -> Picos {
        let waits = |peer: usize| self.core.state(VcpuIndex(peer as u32)) == State::Ready;
        let has_target = self.costs.yield_to > Picos::ZERO && self.guest_vcpus(v).any(waits);
        let tried = if has_target { self.costs.yield_to } else { Picos::ZERO };
        self.costs.kernel_exit() + tried
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_model::{HostModel, Ple};
    use crate::tests::{MILLI, spec};
    use crate::{SimFigures, System};

    const KERNEL: Picos = Picos(1_000_000);
    const TRY: Picos = Picos(7_000_000);

    fn exiting(system: System, vcpus: usize, in_kernel: Option<Picos>, yield_to: Picos) -> Spec {
        let mut spec = spec(system, vcpus, "host-cfs:1200us,150us,200us");
        spec.host = HostModel { ple: Some(Ple::fixed()), ..HostModel::default() };
        (spec.machine.costs.in_kernel, spec.machine.costs.yield_to) = (in_kernel, yield_to);
        spec
    }

    #[test]
    fn a_pause_exit_tries_to_yield_only_to_a_waiting_vcpu() {
        for (vcpus, cost) in [(4, KERNEL), (5, KERNEL + TRY)] {
            let spec = exiting(System::NativeTicket, vcpus, Some(KERNEL), TRY);
            let mut sim = Sim::new(&spec).expect("it can be simulated");
            sim.run_until(MILLI).expect("it goes on");
            assert_eq!(sim.pause_exit_cost(0), cost, "{vcpus} vCPUs on 4 CPUs");
            sim.finish().expect("it ends");
        }
    }

    #[test]
    fn exits_in_the_kernel_cost_an_exit_unless_the_file_states_them() {
        let run = |system, in_kernel, yield_to, serves_in_kernel| {
            let mut spec = exiting(system, 8, in_kernel, yield_to);
            spec.host.serves_in_kernel = serves_in_kernel;
            crate::tests::run(&spec, Picos(8 * MILLI.0))
        };
        let figures = |in_kernel, serves| run(System::PvTicket, in_kernel, Picos::ZERO, serves);
        let exit = spec(System::PvTicket, 8, "rr").machine.costs.exit;
        let usual: SimFigures = figures(None, false);
        assert!(usual.halts > 20 && usual.pause_exits > 20, "{usual:?}");
        assert_eq!(figures(Some(exit), true), usual);
        assert_ne!(figures(Some(KERNEL), false), usual, "pause-loop exits");
        assert_ne!(figures(Some(KERNEL), false), figures(Some(KERNEL), true), "halts and kicks");
        // Waiters that only spin leave vCPUs without a CPU.
        let tries = |yield_to| run(System::NativeTicket, Some(KERNEL), yield_to, true);
        assert_ne!(tries(TRY), tries(Picos::ZERO));
    }
}
