//! `random`: a random waiting vCPU for a random time, from a hundredth of a slice to two slices,
//! determined by the seed. Modelled on schedule fuzzers (PCT, Burckhardt et al., ASPLOS 2010), without
//! their guarantees. Suitable to provoke schedules that no sensible scheduler makes: for `run soak`,
//! lost wakeups and races in the driver.

use super::{Pick, Policy, Ready, Setup, Verdict, View, Why, queue::Queue};
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
    ends: Box<[Nanos]>,
}

impl Random {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        let vcpus = setup.vms.len();
        Self {
            queue: Queue::with_room(vcpus),
            slice: setup.slice,
            rng: SplitMix64::new(setup.seed),
            ends: vec![Nanos::ZERO; vcpus].into(),
        }
    }

    fn turn(&mut self, now: Nanos) -> Nanos {
        let hundredths = 1 + self.rng.below(200) as u64;
        now.after(Nanos(self.slice.0 / 100 * hundredths))
    }
}

impl Policy for Random {
    fn ready(&mut self, vcpu: VcpuIndex, _: Ready, _: &View<'_>) {
        self.queue.push(vcpu);
    }

    fn gone(&mut self, vcpu: VcpuIndex) {
        self.queue.remove(vcpu);
    }

    fn pick(&mut self, _: SlotId, view: &View<'_>) -> Option<Pick> {
        if self.queue.is_empty() {
            return None;
        }
        let at = self.rng.below(self.queue.len());
        let vcpu = self.queue.take_at(at)?;
        let until = self.turn(view.now);
        self.ends[vcpu.ix()] = until;
        Some(Pick::new(vcpu, until))
    }

    fn stopped(&mut self, vcpu: VcpuIndex, _: &Observation, view: &View<'_>) -> Verdict {
        if view.now < self.ends[vcpu.ix()] {
            return Verdict::Stay(self.ends[vcpu.ix()]);
        }
        if !self.queue.is_empty() {
            return Verdict::Preempt(Why::Slice);
        }
        let until = self.turn(view.now);
        self.ends[vcpu.ix()] = until;
        Verdict::Stay(until)
    }
}
