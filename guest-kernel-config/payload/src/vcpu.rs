//! One vCPU and its view of the [`Shared`] block.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use hypercalls::histogram;
use hypercalls::payload::{Ball, Params, SAMPLES, Shared, Slot, Waiting};

use crate::port;

pub struct CallingVcpu {
    /// Its index, which is its APIC id.
    pub index: usize,
    shared: &'static Shared,
    slot: &'static Slot,
}

impl CallingVcpu {
    /// Stores the base port. Panics if `index` has no slot.
    pub fn new(index: usize, shared: &'static Shared) -> Self {
        port::set_base(shared.params.port_base.load(Ordering::Relaxed) as u16);
        Self { index, shared, slot: &shared.slots[index] }
    }

    /// One of the experiment's parameters.
    pub fn param(&self, field: impl Fn(&Params) -> &AtomicU32) -> u32 {
        field(&self.shared.params).load(Ordering::Relaxed)
    }

    /// The index of the last vCPU.
    pub fn last(&self) -> usize {
        self.param(|params| &params.vcpus).saturating_sub(1) as usize
    }

    /// The ball that two vCPUs pass back and forth.
    pub fn ball(&self) -> &'static Ball {
        &self.shared.ball
    }

    /// The stamp of the vCPU that ran last.
    pub fn stamp(&self) -> &'static AtomicU64 {
        &self.shared.stamp.0
    }

    /// Reports arrival and waits until the VMM starts all vCPUs at once.
    pub fn wait_for_go(&self) {
        self.shared.arrived.0.fetch_add(1, Ordering::SeqCst);
        while self.shared.go.0.load(Ordering::Acquire) == 0 {
            core::hint::spin_loop();
        }
    }

    /// Whether the VMM has ended the workload.
    #[inline]
    pub fn stopped(&self) -> bool {
        self.shared.stop.0.load(Ordering::Relaxed) != 0
    }

    /// Records the TSC ticks of vCPU 0's operation number `operation`, and counts it.
    pub fn sample(&self, operation: u64, ticks: u64) {
        let sample = &self.shared.samples[operation as usize % SAMPLES];
        sample.store(ticks.min(u32::MAX.into()) as u32, Ordering::Relaxed);
        self.slot.operations.store(operation + 1, Ordering::Release);
    }

    /// Stores a figure in this vCPU's own slot.
    #[inline]
    pub fn publish(&self, field: impl Fn(&Slot) -> &AtomicU64, value: u64) {
        field(self.slot).store(value, Ordering::Relaxed);
    }

    /// Adds to a figure in this vCPU's own slot, which no other vCPU writes.
    #[inline]
    pub fn add(&self, field: impl Fn(&Slot) -> &AtomicU64, amount: u64) {
        if amount > 0 {
            let figure = field(self.slot);
            figure.store(figure.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
        }
    }

    /// Adds one and returns the sum. A reader that sees the sum also sees all earlier stores.
    #[inline]
    pub fn increment_release(&self, field: impl Fn(&Slot) -> &AtomicU64) -> u64 {
        let figure = field(self.slot);
        let now = figure.load(Ordering::Relaxed) + 1;
        figure.store(now, Ordering::Release);
        now
    }

    /// Raises a figure in this vCPU's own slot to at least `value`.
    pub fn raise_to(&self, field: impl Fn(&Slot) -> &AtomicU64, value: u64) {
        if field(self.slot).load(Ordering::Relaxed) < value {
            self.publish(field, value);
        }
    }

    /// Number of operations of this vCPU so far.
    #[inline]
    pub fn operations(&self) -> u64 {
        self.slot.operations.load(Ordering::Relaxed)
    }

    /// The figures of all vCPUs.
    pub fn slots(&self) -> &'static [Slot] {
        &self.shared.slots[..=self.last()]
    }

    /// Publishes whether this vCPU waits. A reader that sees this also sees all earlier stores.
    #[inline]
    pub fn publish_waiting(&self, waiting: Waiting) {
        self.slot.waiting.store(waiting.word(), Ordering::Release);
    }

    /// Adds a duration in TSC ticks to this vCPU's histogram, and ends the wait.
    #[inline]
    pub fn record_latency(&self, ticks: u64) {
        let count = &self.shared.latencies[self.index].0[histogram::bucket(ticks)];
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.publish_waiting(Waiting::No);
    }
}
