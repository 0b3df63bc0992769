//! Mocks of KVM, a schedule and a benchmark, for handling exits without KVM.

use std::{
    io::{self, ErrorKind, Write},
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

use base::{counters::MachineCounts, host_counts::HostCounts, units::VcpuId};
use hypercalls::telemetry::Point;
use kvm::sys::ram::Ram;
use machine::{
    devices::{
        bench::{Bench, BenchStep},
        output::Sink,
    },
    vcpu::{MachineHost, Stopped, VcpuScheduler, VcpuShared},
};
use sched::halts::{HaltScheduler, Host, KickPath};

/// A host without KVM. A vCPU that would block is kicked at once: by another vCPU or, at every second wait,
/// by the VMM, so that a fault that drops the kick does not hang the run.
#[derive(Debug)]
pub struct MockHost {
    pub memory: Ram,
    pub shared: OnceLock<Weak<VcpuShared<MockHost>>>,
    /// The vCPU whose exit is being handled.
    pub current: AtomicU32,
    pub scheduler: Option<MockScheduler>,
    waits: AtomicU32,
}

impl MockHost {
    pub fn new(memory: Ram, scheduler: Option<MockScheduler>) -> Self {
        Self {
            memory,
            shared: OnceLock::new(),
            current: AtomicU32::new(0),
            scheduler,
            waits: AtomicU32::new(0),
        }
    }
}

impl Host for MockHost {
    type Scheduler = dyn HaltScheduler;

    fn scheduler(&self) -> Option<&(dyn HaltScheduler + 'static)> {
        self.scheduler.as_ref()?.halts()
    }

    fn wait(&self, _: &AtomicU32, _: u32) {
        let shared = self.shared.get().and_then(Weak::upgrade).unwrap();
        let (current, vcpus) = (self.current.load(Relaxed), shared.counts().len() as u32);
        if vcpus > 1 && self.waits.fetch_add(1, Relaxed).is_multiple_of(2) {
            shared.kicks.kick(VcpuId((current + 1) % vcpus), VcpuId(current), KickPath::Latch);
        } else {
            shared.kicks.end_halt(VcpuId(current));
        }
    }

    fn wake(&self, _: &AtomicU32) {}

    fn send_kick_msi(&self, target: VcpuId) -> bool {
        target.0.is_multiple_of(2)
    }
}

impl MachineHost for MockHost {
    fn memory(&self) -> &Ram {
        &self.memory
    }

    fn vcpu_scheduler(&self) -> Option<&dyn VcpuScheduler> {
        self.scheduler.as_ref().map(|scheduler| scheduler as &dyn VcpuScheduler)
    }
}

/// A scheduler under which every vCPU always has a slot.
#[derive(Debug, Default)]
pub struct MockScheduler {
    /// Whether the scheduler takes part in halts and kicks.
    pub halts: bool,
    /// Number of vCPUs that wait for a reader of the output.
    pub waiting: AtomicI32,
}

impl VcpuScheduler for MockScheduler {
    fn halts(&self) -> Option<&(dyn HaltScheduler + 'static)> {
        self.halts.then_some(self)
    }

    fn enter(&self, _: VcpuId) -> io::Result<()> {
        Ok(())
    }

    fn interrupted(&self, _: VcpuId, _: &dyn Stopped) {}

    fn after_exit(&self, _: VcpuId) {}

    fn yield_slot(&self, _: VcpuId) {}

    fn spun_out(&self, _: VcpuId) {}

    fn yield_to(&self, _: VcpuId, _: VcpuId) {}

    fn preempt_point(&self, _: VcpuId, _: Point) {}

    fn begin_wait(&self, _: VcpuId) {
        self.waiting.fetch_add(1, Relaxed);
    }

    fn end_wait(&self, _: VcpuId) {
        self.waiting.fetch_sub(1, Relaxed);
    }

    fn awaits_slot(&self, _: VcpuId) -> bool {
        false
    }

    fn lacks_telemetry(&self, _: VcpuId) -> bool {
        true
    }

    fn leave(&self, _: VcpuId) {}
}

/// A halt may end spuriously, so `halt` need not block.
impl HaltScheduler for MockScheduler {
    fn halt(&self, _: VcpuId) {}

    fn hand_over(&self, _: VcpuId, _: VcpuId) {}

    fn wake(&self, _: VcpuId, _: Option<VcpuId>) {}

    fn kicked_unparked(&self, _: VcpuId, _: Option<VcpuId>) {}

    fn stop(&self) {}
}

/// A benchmark whose gate opens with the first step that the guest announces.
#[derive(Debug, Default)]
pub struct MockBench(AtomicBool);

impl Bench for MockBench {
    fn step(&self, _: BenchStep, _: MachineCounts, _: HostCounts) {
        self.0.store(true, Relaxed);
    }

    fn is_gate_open(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// Counts the guest's output. After `room` bytes, writes fail: disk full (`room` even) or pipe closed (odd).
pub struct CountingSink {
    pub bytes: Arc<AtomicU64>,
    pub room: u64,
}

impl Sink for CountingSink {}

impl Write for CountingSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.fetch_add(bytes.len() as u64, Relaxed) > self.room {
            let is_full = self.room.is_multiple_of(2);
            let kind = if is_full { ErrorKind::StorageFull } else { ErrorKind::BrokenPipe };
            return Err(kind.into());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
