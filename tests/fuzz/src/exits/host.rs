//! Mocks of KVM, a schedule and a benchmark, for a machine that handles exits.

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
    vcpu::{Board, MachineHost, Stopped, VcpuScheduler},
};
use sched::halts::{HaltScheduler, Host, KickPath};

/// A host without KVM. A vCPU that would sleep is kicked at once: by another vCPU or, at every
/// second wait, by the VMM, so that a fault that drops the kick does not end the run.
#[derive(Debug)]
pub struct MockHost {
    pub memory: Ram,
    pub board: OnceLock<Weak<Board<MockHost>>>,
    /// The vCPU whose exit is being handled.
    pub current: AtomicU32,
    pub scheduler: Option<MockScheduler>,
    waits: AtomicU32,
}

impl MockHost {
    pub fn new(memory: Ram, scheduler: Option<MockScheduler>) -> Self {
        Self {
            memory,
            board: OnceLock::new(),
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
        let board = self.board.get().and_then(Weak::upgrade).unwrap();
        let (own, vcpus) = (self.current.load(Relaxed), board.counts().len() as u32);
        if vcpus > 1 && self.waits.fetch_add(1, Relaxed).is_multiple_of(2) {
            board.kicks.kick(VcpuId((own + 1) % vcpus), VcpuId(own), KickPath::Latch);
        } else {
            board.kicks.end_halt(VcpuId(own));
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
    pub aside: AtomicI32,
}

impl VcpuScheduler for MockScheduler {
    fn halts(&self) -> Option<&(dyn HaltScheduler + 'static)> {
        self.halts.then_some(self)
    }

    fn enter(&self, _: VcpuId) -> io::Result<()> {
        Ok(())
    }

    fn interrupted(&self, _: VcpuId, _: &dyn Stopped) {}

    fn came_out(&self, _: VcpuId) {}

    fn yielded(&self, _: VcpuId) {}

    fn spun_out(&self, _: VcpuId) {}

    fn yields_to(&self, _: VcpuId, _: VcpuId) {}

    fn point(&self, _: VcpuId, _: Point) {}

    fn waits(&self, _: VcpuId) {
        self.aside.fetch_add(1, Relaxed);
    }

    fn waited(&self, _: VcpuId) {
        self.aside.fetch_sub(1, Relaxed);
    }

    fn awaits_turn(&self, _: VcpuId) -> bool {
        false
    }

    fn observes(&self, _: VcpuId) -> bool {
        true
    }

    fn leave(&self, _: VcpuId) {}
}

/// A halt may end without a wakeup, so none has to block.
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

    fn is_open(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// Counts the guest's output; its reader may have exited, or its disk may be full.
pub struct Said {
    pub bytes: Arc<AtomicU64>,
    pub room: u64,
}

impl Sink for Said {}

impl Write for Said {
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
