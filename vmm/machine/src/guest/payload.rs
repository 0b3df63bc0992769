//! The embedded payload, and the memory block shared between it and the VMM.

use std::{
    mem::{offset_of, size_of},
    sync::atomic::Ordering,
};

use hypercalls::{
    MAX_VCPUS,
    histogram::{self, BUCKETS},
    payload::{
        LatencyBuckets, PaddedU32, Params, SAMPLES, SHARED_GPA, Shared, Slot, TELEMETRY_GPA,
        Transport, Waiting, Workload,
    },
};
use kvm::{host::is_amd, sys::ram::Ram};
use locks::System;
use thiserror::Error;
use vm_memory::{AtomicAccess, Bytes, GuestAddress, GuestMemoryError};

use base::{
    backend::PvBackend,
    counters::WaitCounts,
    handoff::HandoffSpec,
    units::{VcpuCount, VcpuId},
    work,
};

pub use hypercalls::payload::SlotFigures;

/// The payload, a static ELF for [`hypercalls::payload::IMAGE_GPA`].
pub const PAYLOAD_ELF: &[u8] = include_bytes!(env!("PVTICKET_PAYLOAD_ELF"));

/// Parameters of a payload machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PayloadSpec {
    /// The workload of every vCPU.
    pub workload: Workload,
    /// The lock library system used by [`Workload::Operate`].
    pub system: System,
    /// Spin threshold: number of spin iterations before a PV waiter halts.
    pub spin_threshold: u32,
    /// Number of spinlocks, 1 to [`MAX_LOCKS`](hypercalls::payload::MAX_LOCKS). Operations pick randomly.
    pub locks: u32,
    /// Increments in the critical section, or a counter's addend.
    pub critical: u32,
    /// Increments between two operations.
    pub think: u32,
    /// Number of adds between two sums of a counter; zero disables sums.
    pub sum_every: u32,
    /// Whether the vCPUs record histograms of their operation times.
    pub timed: bool,
    /// The transport of halts and kicks.
    pub transport: Transport,
    /// Optimizations of PV lock handoffs.
    pub handoff: HandoffSpec,
}

impl PayloadSpec {
    /// Returns a workload of operations on `system`, with the defaults.
    pub const fn operate(system: System) -> Self {
        Self {
            workload: Workload::Operate,
            system,
            spin_threshold: work::SPINS,
            locks: 1,
            critical: work::CRITICAL,
            think: work::THINK,
            sum_every: work::SUM_EVERY,
            timed: false,
            transport: Transport::Ports,
            handoff: HandoffSpec::NONE,
        }
    }

    /// Whether the payload must run in ring 0, on a machine with local APICs. HLT requires both.
    pub fn needs_ring_0(&self) -> bool {
        self.transport != Transport::Ports
    }

    /// Returns a workload that uses no system of the lock library, with the defaults.
    pub const fn without_locks(workload: Workload) -> Self {
        Self { workload, ..Self::operate(System::NativeTicket) }
    }
}

/// Returns the payload's transport of halts and kicks for this backend.
pub fn transport(backend: PvBackend) -> Transport {
    match backend {
        PvBackend::Vmm | PvBackend::Off => Transport::Ports,
        PvBackend::Doorbell => Transport::Doorbell,
        PvBackend::Kvm if is_amd() => Transport::Vmmcall,
        PvBackend::Kvm => Transport::Vmcall,
    }
}

/// The shared block is outside the guest's memory.
#[derive(Debug, Error)]
#[error("the payload's shared block is outside guest memory")]
pub struct SharedError(#[from] GuestMemoryError);

/// The [`Shared`] block of a machine. Its fields are accessed atomically.
#[derive(Debug, Clone, Copy)]
pub struct SharedView<'a>(&'a Ram);

impl<'a> SharedView<'a> {
    /// Creates a view of the block in `memory`.
    pub const fn new(memory: &'a Ram) -> Self {
        Self(memory)
    }

    /// Writes the parameters, and whether the vCPUs publish [`hypercalls::telemetry`] lines. Must be called
    /// before the first vCPU runs.
    pub fn write_params(
        &self,
        spec: &PayloadSpec,
        vcpus: VcpuCount,
        port_base: u16,
        telemetry: bool,
    ) -> Result<(), SharedError> {
        let params = offset_of!(Shared, params);
        let telemetry = if telemetry { TELEMETRY_GPA as u32 } else { 0 };
        for (offset, value) in [
            (offset_of!(Params, workload), spec.workload as u32),
            (offset_of!(Params, system), spec.system as u32),
            (offset_of!(Params, vcpus), vcpus.get()),
            (offset_of!(Params, spin_threshold), spec.spin_threshold),
            (offset_of!(Params, critical), spec.critical),
            (offset_of!(Params, think), spec.think),
            (offset_of!(Params, port_base), port_base.into()),
            (offset_of!(Params, telemetry), telemetry),
            (offset_of!(Params, transport), spec.transport as u32),
            (offset_of!(Params, handoff), spec.handoff.bits),
            (offset_of!(Params, far), spec.handoff.far.into()),
            (offset_of!(Params, queue), spec.handoff.queue.into()),
            (offset_of!(Params, restrict), spec.handoff.restrict.into()),
            (offset_of!(Params, sum_every), spec.sum_every),
            (offset_of!(Params, timed), spec.timed.into()),
            (offset_of!(Params, locks), spec.locks),
        ] {
            self.store(params + offset, value)?;
        }
        Ok(())
    }

    /// Number of vCPUs that wait for [`SharedView::start`].
    pub fn arrived(&self) -> Result<u32, SharedError> {
        self.load(offset_of!(Shared, arrived) + offset_of!(PaddedU32, 0))
    }

    /// Starts the workload on every vCPU.
    pub fn start(&self) -> Result<(), SharedError> {
        self.store(offset_of!(Shared, go) + offset_of!(PaddedU32, 0), 1u32)
    }

    /// Ends the workload at each vCPU's next check.
    pub fn stop(&self) -> Result<(), SharedError> {
        self.store(offset_of!(Shared, stop) + offset_of!(PaddedU32, 0), 1u32)
    }

    /// Returns the figures of one vCPU, or zeros for an id out of range.
    pub fn slot(&self, vcpu: VcpuId) -> Result<SlotFigures, SharedError> {
        if vcpu.0 >= MAX_VCPUS {
            return Ok(SlotFigures::default());
        }
        let slot = offset_of!(Shared, slots) + vcpu.0 as usize * size_of::<Slot>();
        SlotFigures::read(|figure| self.load(slot + figure))
    }

    /// Returns the times of vCPU 0's last operations in TSC ticks, in no particular order.
    pub fn samples(&self) -> Result<Vec<u32>, SharedError> {
        let operations = self.slot(VcpuId(0))?.operations;
        let count = usize::try_from(operations).map_or(SAMPLES, |count| count.min(SAMPLES));
        let at = |ix| offset_of!(Shared, samples) + ix * size_of::<u32>();
        (0..count).map(|ix| self.load(at(ix))).collect()
    }

    /// Returns the waits of every vCPU so far, if they are timed.
    pub fn waits(&self, vcpus: VcpuCount) -> Result<WaitCounts, SharedError> {
        let mut waits = WaitCounts { counts: vec![0; BUCKETS], pending: Vec::new() };
        for vcpu in vcpus.ids() {
            let offset =
                offset_of!(Shared, latencies) + vcpu.0 as usize * size_of::<LatencyBuckets>();
            let before = self.waiting(vcpu)?;
            for (bucket, count) in waits.counts.iter_mut().enumerate() {
                let entry: u64 = self.load(offset + bucket * size_of::<u64>())?;
                *count = count.saturating_add(entry);
            }
            // An unchanged word belongs to a wait that is not in the counts. Otherwise the vCPU has begun or
            // ended a short wait in between, which is left to the next reading.
            match self.waiting(vcpu)? {
                now if now != before => {}
                Waiting::No => {}
                Waiting::Over(ticks) => {
                    let count = &mut waits.counts[histogram::bucket(ticks)];
                    *count = count.saturating_add(1);
                }
                Waiting::Since(tsc) => waits.pending.push((vcpu, tsc)),
            }
        }
        Ok(waits)
    }

    fn waiting(&self, vcpu: VcpuId) -> Result<Waiting, SharedError> {
        let slot = offset_of!(Shared, slots) + vcpu.0 as usize * size_of::<Slot>();
        self.load(slot + offset_of!(Slot, waiting)).map(Waiting::parse)
    }

    /// Returns the figures of every vCPU, in order.
    pub fn slots(&self, vcpus: VcpuCount) -> Result<Vec<SlotFigures>, SharedError> {
        vcpus.ids().map(|vcpu| self.slot(vcpu)).collect()
    }

    fn load<T: AtomicAccess>(&self, offset: usize) -> Result<T, SharedError> {
        Ok(self.0.load(Self::address(offset), Ordering::SeqCst)?)
    }

    fn store<T: AtomicAccess>(&self, offset: usize, value: T) -> Result<(), SharedError> {
        Ok(self.0.store(value, Self::address(offset), Ordering::SeqCst)?)
    }

    const fn address(offset: usize) -> GuestAddress {
        GuestAddress(SHARED_GPA + offset as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hypercalls::payload::{IMAGE_GPA, MEMORY, STACKS_GPA};
    use kvm::sys::ram;

    fn memory() -> Ram {
        ram::map(&[(GuestAddress(0), MEMORY as usize)], 0x1000).unwrap()
    }

    fn word(bytes: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
    }

    #[test]
    fn the_payload_is_a_static_elf_at_its_address() {
        assert_eq!(PAYLOAD_ELF[..6], *b"\x7fELF\x02\x01", "64-bit, little-endian");
        assert_eq!(PAYLOAD_ELF[16..18], [2, 0], "ET_EXEC");
        assert_eq!(word(PAYLOAD_ELF, 24), IMAGE_GPA, "entry");
        assert_eq!(PAYLOAD_ELF[56..58], [1, 0], "one segment, so no interpreter");
        let segment = word(PAYLOAD_ELF, 32) as usize;
        assert_eq!(word(PAYLOAD_ELF, segment + 24), IMAGE_GPA, "physical address");
        assert!(IMAGE_GPA + word(PAYLOAD_ELF, segment + 40) <= STACKS_GPA, "size in memory");
    }

    fn params(spec: &PayloadSpec, telemetry: bool) -> Vec<u32> {
        let memory = memory();
        SharedView::new(&memory).write_params(spec, VcpuCount::ONE, 0x600, telemetry).unwrap();
        let mut words = [0u8; 64];
        memory.read_slice(&mut words, GuestAddress(SHARED_GPA)).unwrap();
        words.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
    }

    #[test]
    fn parameters_follow_the_contract_layout() {
        let spec = PayloadSpec { critical: 7, think: 9, ..PayloadSpec::operate(System::PvTicket) };
        let words = [1, 1, 1, 2048, 7, 9, 0x600, 0, 0, 0, 0, 0, 0, 1000, 0, 1];
        assert_eq!(params(&spec, false), words);
        let handoff = "far:3+fuse+queue:2".parse().unwrap();
        let transport = Transport::Doorbell;
        let spec = PayloadSpec { transport, handoff, sum_every: 5, timed: true, locks: 16, ..spec };
        let words = [1, 1, 1, 2048, 7, 9, 0x600, 0x1c_0000, 1, 1 << 4, 3, 2, 0, 5, 1, 16];
        assert_eq!(params(&spec, true), words);
        let spec = PayloadSpec { handoff: "restrict:4".parse().unwrap(), ..spec };
        assert_eq!(params(&spec, true)[9..13], [0, 0, 0, 4]);
    }

    #[test]
    fn slots_and_flags_are_lines_apart() {
        let memory = memory();
        let view = SharedView::new(&memory);
        let slots = SHARED_GPA + 6 * 128;
        memory.write_obj(11u64, GuestAddress(slots + 127 * 128)).unwrap();
        memory.write_obj(5u64, GuestAddress(slots + 127 * 128 + 32)).unwrap();
        let last = SlotFigures { operations: 11, violations: 5, ..SlotFigures::default() };
        assert_eq!(view.slot(VcpuId(127)).unwrap(), last);
        assert_eq!(view.slot(VcpuId(128)).unwrap(), SlotFigures::default());
        memory.write_obj(3u32, GuestAddress(SHARED_GPA + 128)).unwrap();
        assert_eq!(view.arrived().unwrap(), 3);
        view.stop().unwrap();
        assert_eq!(memory.read_obj::<u32>(GuestAddress(SHARED_GPA + 3 * 128)).unwrap(), 1);
        assert_eq!(memory.read_obj::<u32>(GuestAddress(SHARED_GPA + 2 * 128)).unwrap(), 0);
    }

    #[test]
    fn latencies_of_all_vcpus_are_one_histogram() {
        let memory = memory();
        let first = SHARED_GPA + offset_of!(Shared, latencies) as u64;
        memory.write_obj(2u64, GuestAddress(first + 8 * 40)).unwrap();
        let second = first + size_of::<LatencyBuckets>() as u64;
        memory.write_obj(3u64, GuestAddress(second + 8 * 40)).unwrap();
        memory.write_obj(1u64, GuestAddress(second + 8 * (BUCKETS as u64 - 1))).unwrap();
        let view = SharedView::new(&memory);
        let counts = view.waits(VcpuCount::try_from(2).unwrap()).unwrap().counts;
        assert_eq!((counts[40], counts[BUCKETS - 1], counts.iter().sum::<u64>()), (5, 1, 6));
        assert_eq!(view.waits(VcpuCount::ONE).unwrap().counts[40], 2);
    }

    #[test]
    fn impossible_counts_saturate() {
        let memory = memory();
        let ended = histogram::bucket(40);
        let counts = SHARED_GPA + offset_of!(Shared, latencies) as u64 + 8 * ended as u64;
        memory.write_obj(u64::MAX, GuestAddress(counts)).unwrap();
        let slot = SHARED_GPA + (offset_of!(Shared, slots) + offset_of!(Slot, waiting)) as u64;
        memory.write_obj(Waiting::Over(40).word(), GuestAddress(slot)).unwrap();
        let waits = SharedView::new(&memory).waits(VcpuCount::ONE).unwrap();
        assert_eq!(waits.counts[ended], u64::MAX);
    }

    #[test]
    fn includes_waits_not_counted_yet() {
        let memory = memory();
        let slots = SHARED_GPA + offset_of!(Shared, slots) as u64;
        let waiting =
            |vcpu: u64| GuestAddress(slots + vcpu * 128 + offset_of!(Slot, waiting) as u64);
        memory.write_obj(Waiting::Over(40).word(), waiting(0)).unwrap();
        memory.write_obj(Waiting::Since(1234).word(), waiting(1)).unwrap();
        let waits = SharedView::new(&memory).waits(VcpuCount::try_from(3).unwrap()).unwrap();
        assert_eq!(waits.pending, [(VcpuId(1), 1234)]);
        assert_eq!(waits.counts.iter().sum::<u64>(), 1);
        assert_eq!(waits.counts[histogram::bucket(40)], 1);
    }

    #[test]
    fn too_little_memory_is_an_error() {
        let memory = ram::map(&[(GuestAddress(0), 0x1000)], 0x1000).unwrap();
        assert!(SharedView::new(&memory).start().is_err());
    }
}
