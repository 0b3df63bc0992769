//! `random`: a random waiting vCPU for a random time, from a hundredth of a slice to two slices,
//! determined by the seed. Modelled on schedule fuzzers (PCT, Burckhardt et al., ASPLOS 2010),
//! without their guarantees. Suitable for provoking schedules that no sensible scheduler makes: for
//! `run soak`, to find lost wakeups and races in the driver.

use super::{Pick, Policy, Ready, Reason, Setup, Verdict, View, queue::Queue};
use crate::event::{Observation, VcpuIndex};
use base::{
    rng::SplitMix64,
    units::{Nanos, SlotId},
};

#[derive(Debug)]
pub(super) struct Random {
    queue: Queue,
    slice: Nanos,
    rng: SplitMix64,
    /// By vCPU: its deadline.
    deadlines: Box<[Nanos]>,
}

impl Random {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        let vcpus = setup.vms.len();
        Self {
            queue: Queue::with_room(vcpus),
            slice: setup.slice,
            rng: SplitMix64::new(setup.seed),
            deadlines: vec![Nanos::ZERO; vcpus].into(),
        }
    }

    fn random_deadline(&mut self, now: Nanos) -> Nanos {
        let hundredths = 1 + self.rng.below(200) as u64;
        now.after(Nanos(self.slice.0 / 100 * hundredths))
    }
}

impl Policy for Random {
    fn ready(&mut self, vcpu: VcpuIndex, _: Ready, _: &View<'_>) {
        self.queue.push(vcpu);
    }

    fn exited(&mut self, vcpu: VcpuIndex) {
        self.queue.remove(vcpu);
    }

    fn pick(&mut self, _: SlotId, view: &View<'_>) -> Option<Pick> {
        if self.queue.is_empty() {
            return None;
        }
        let at = self.rng.below(self.queue.len());
        let vcpu = self.queue.take_at(at)?;
        let until = self.random_deadline(view.now);
        self.deadlines[vcpu.ix()] = until;
        Some(Pick::new(vcpu, until))
    }

    fn stopped(&mut self, vcpu: VcpuIndex, _: &Observation, view: &View<'_>) -> Verdict {
        if view.now < self.deadlines[vcpu.ix()] {
            return Verdict::Stay(self.deadlines[vcpu.ix()]);
        }
        if !self.queue.is_empty() {
            return Verdict::Preempt(Reason::Slice);
        }
        let until = self.random_deadline(view.now);
        self.deadlines[vcpu.ix()] = until;
        Verdict::Stay(until)
    }
}
