//! Background noise: host threads that take CPUs away from vCPUs.

use super::*;

/// Retry interval of a host thread that cannot run because of an access in progress.
const RETRY_INTERVAL: Picos = Picos(100_000);

impl Sim {
    /// Starts the host thread of each CPU, asleep.
    pub(super) fn start_noise(&mut self, seed: u64) {
        self.noise_rng = SplitMix64::new(seed);
        (0..self.pcpus.len()).for_each(|pcpu| self.sleep_noise(pcpu, Picos::ZERO));
    }

    fn noise_leaf(&self, pcpu: usize) -> usize {
        self.late_leaf() + 1 + pcpu
    }

    fn sleep_noise(&mut self, pcpu: usize, start: Picos) {
        if let Some(noise) = self.noise {
            let idle = Span::Exponential(noise.idle).draw(&mut self.noise_rng);
            self.set_timer(self.noise_leaf(pcpu), start + idle);
        }
    }

    /// Runs the host thread of this CPU.
    #[cold]
    pub(super) fn run_noise(&mut self, pcpu: usize) {
        let Some(noise) = self.noise else { return };
        let v = self.pcpus[pcpu].vcpu as usize;
        if let Some(vcpu) = self.vcpus.get(v)
            && vcpu.state.is_transfer()
        {
            return self.set_timer(self.noise_leaf(pcpu), self.now + RETRY_INTERVAL);
        }
        let busy = Span::Exponential(noise.busy).draw(&mut self.noise_rng) + self.costs.switch;
        let until = self.now + busy;
        self.pcpus[pcpu].stolen_until = until;
        self.sleep_noise(pcpu, until);
        if v < self.vcpus.len() {
            self.stolen += busy;
            self.delay(v, pcpu, busy);
        }
    }

    /// Stops `v` on its CPU for `span`.
    pub(super) fn delay(&mut self, v: usize, pcpu: usize, span: Picos) {
        let until = self.now + span;
        let next = match self.vcpus[v].state {
            NextEvent::Parked => {
                self.interrupt_pause(v, pcpu);
                until
            }
            _ => match self.events.time(pcpu) {
                Picos::NEVER => Picos::NEVER,
                at => at + span,
            },
        };
        self.events.set(pcpu, next);
        self.restart_loop(v, until);
        let entered = &mut self.pcpus[pcpu].entered;
        *entered = (*entered).max(self.now) + span;
    }
}
