//! The vCPU's telemetry line, updated by its locks.

use core::arch::x86_64::_rdtsc;
use core::ptr::with_exposed_provenance;
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::compiler_fence;

use hypercalls::telemetry::{Line, MACHINE, MachineWords, NO_HEAD, Point, Wait};
use hypercalls::{MAX_VCPUS, ports};
use locks::{Place, Position, Unwatched, Watch};

use crate::port;
use crate::vcpu::CallingVcpu;

/// Steps reported by the workload in addition to its locks' steps, and information from the VMM.
pub trait WorkloadWatch: Watch {
    /// The vCPU is in the critical section.
    fn critical(&self) {}

    /// The vCPU holds no lock and waits for none.
    fn between(&self) {}

    /// Whether [`WorkloadWatch::between`] will yield the vCPU's CPU.
    fn will_yield(&self) -> bool {
        false
    }

    /// Whether the predecessor of `ticket` in `lock`, among the first `vcpus` vCPUs, is off its CPU.
    fn is_predecessor_off(&self, vcpus: usize, lock: usize, ticket: u16) -> bool {
        let _ = (vcpus, lock, ticket);
        false
    }

    /// Whether the VMM reports that `vcpu` is off its CPU.
    fn is_off(&self, vcpu: usize) -> bool {
        let _ = vcpu;
        false
    }

    /// Whether any vCPU that holds a lock or is next in line for one is off its CPU.
    fn is_critical_off(&self) -> bool {
        false
    }

    /// The rest of this vCPU's slice, in ticks of the TSC; `u64::MAX` if its end is unknown.
    fn slice_left(&self) -> u64 {
        u64::MAX
    }
}

impl WorkloadWatch for Unwatched {}

/// Writes the line of one vCPU. The processor keeps the order of its stores; where the VMM relies
/// on it, [`in_order`] makes the compiler keep it, too.
#[derive(Clone, Copy)]
pub struct Telemetry {
    line: &'static Line,
    /// The lines of all vCPUs.
    lines: &'static [Line; MAX_VCPUS as usize],
    machine: &'static MachineWords,
    preempt_point: u16,
    yield_port: u16,
    spun_out_port: u16,
}

/// Prevents the compiler from moving stores across it.
#[inline]
fn in_order() {
    compiler_fence(Release);
}

#[inline]
pub fn tsc() -> u64 {
    // SAFETY: every 64-bit processor has RDTSC; the VMM leaves CR4.TSD clear.
    unsafe { _rdtsc() }
}

impl Telemetry {
    /// The line of `vcpu`; `None` if the VMM requests no telemetry.
    pub fn for_vcpu(vcpu: &CallingVcpu) -> Option<Self> {
        let lines = vcpu.param(|params| &params.telemetry);
        if lines == 0 {
            return None;
        }
        // SAFETY: the VMM maps a zeroed, aligned line for every index that a vCPU can have, and the
        // machine's words behind them, for as long as the guest runs, and accesses them only by
        // atomics.
        let (lines, machine) = unsafe {
            let machine = lines as usize + MACHINE as usize;
            (
                &*with_exposed_provenance::<[Line; MAX_VCPUS as usize]>(lines as usize),
                &*with_exposed_provenance::<MachineWords>(machine),
            )
        };
        Some(Self {
            line: &lines[vcpu.index],
            lines,
            machine,
            preempt_point: port::at(ports::PREEMPT_POINT),
            yield_port: port::at(ports::YIELD),
            spun_out_port: port::at(ports::SPUN_OUT),
        })
    }

    #[inline]
    fn wait(&self, wait: Wait, ticket: u16) {
        self.line.wait.store(wait.word(ticket), Relaxed);
    }

    #[inline]
    fn point(&self, point: Point) {
        if self.line.points.load(Relaxed) & point.bit() != 0 {
            port::out32(self.preempt_point, point as u32);
        }
    }
}

impl Watch for Telemetry {
    #[inline]
    fn entering(&self, lock: Option<usize>) {
        self.wait(Wait::Entering, 0);
        in_order();
        self.line.wait_lock.store(lock.map_or(NO_HEAD, |lock| lock as u64), Relaxed);
        in_order();
    }

    #[inline]
    fn spinning(&self, lock: usize, ticket: u16) {
        self.line.wait_lock.store(lock as u64, Relaxed);
        self.line.wait_since.store(tsc(), Relaxed);
        in_order();
        self.wait(Wait::Spinning, ticket);
    }

    #[inline]
    fn throttled(&self, lock: usize, has_head: bool) {
        let no_head = if has_head { 0 } else { NO_HEAD };
        self.line.wait_lock.store(lock as u64 | no_head, Relaxed);
        self.line.wait_since.store(tsc(), Relaxed);
        in_order();
        self.wait(Wait::Throttled, 0);
    }

    #[inline]
    fn queued(&self, lock: usize, position: Option<Position>) {
        let (name, gate) = position.map_or((0, 0), |position| (position.name, position.gate));
        self.line.wait_lock.store(lock as u64 | NO_HEAD, Relaxed);
        self.line.queue_node.store(gate as u64, Relaxed);
        self.line.wait_since.store(tsc(), Relaxed);
        in_order();
        self.wait(Wait::Spinning, name);
    }

    #[inline]
    fn spin_limit(&self) -> u32 {
        self.line.spin_limit.load(Relaxed)
    }

    #[cold]
    fn spun_out(&self, ticket: Option<u16>) {
        port::out32(self.spun_out_port, ticket.unwrap_or(0).into());
    }

    #[inline]
    fn halting(&self, ticket: Option<u16>) {
        self.wait(Wait::Halted, ticket.unwrap_or(0));
    }

    #[inline]
    fn resumed(&self, ticket: Option<u16>) {
        self.line.resumed_at.store(tsc(), Relaxed);
        in_order();
        self.wait(Wait::Spinning, ticket.unwrap_or(0));
    }

    #[inline]
    fn try_failed(&self) {
        self.wait(Wait::Nothing, 0);
    }

    #[inline]
    fn taken(&self, lock: usize, ticket: Option<u16>) {
        let line = self.line;
        let no_head = if ticket.is_some() { 0 } else { NO_HEAD };
        line.held_lock[0].store(lock as u64 | no_head, Relaxed);
        line.held_ticket[0].store(ticket.unwrap_or(0), Relaxed);
        in_order();
        line.held.store(1, Relaxed);
        in_order();
        self.wait(Wait::Nothing, 0);
    }

    #[inline]
    fn released(&self) {
        in_order();
        self.line.held.store(0, Relaxed);
    }

    #[inline]
    fn before_kick(&self, lock: usize, ticket: Option<u16>) {
        let no_head = if ticket.is_some() { 0 } else { NO_HEAD };
        self.line.wait_lock.store(lock as u64 | no_head, Relaxed);
        in_order();
        self.wait(Wait::Kicking, ticket.unwrap_or(0));
        self.line.released_at.store(tsc(), Relaxed);
    }

    #[inline]
    fn kicked(&self) {
        in_order();
        self.wait(Wait::Nothing, 0);
    }

    #[inline]
    fn reached(&self, place: Place) {
        self.point(match place {
            Place::BeforeFlag => Point::BeforeFlag,
            Place::FlagToHalt => Point::FlagToHalt,
            Place::ReleaseToKick => Point::ReleaseToKick,
        });
    }
}

/// Distance between consecutive tickets.
const INC: u16 = 2;

impl WorkloadWatch for Telemetry {
    #[inline]
    fn will_yield(&self) -> bool {
        self.line.yield_wanted.load(Relaxed) != 0
    }

    fn is_predecessor_off(&self, vcpus: usize, lock: usize, ticket: u16) -> bool {
        let before = ticket.wrapping_sub(INC);
        let is_predecessor = |line: &&Line| {
            let (wait, waiting_ticket) = Wait::parse(line.wait.load(Relaxed));
            match wait {
                Wait::Spinning | Wait::Halted => {
                    waiting_ticket == before && line.wait_lock.load(Relaxed) == lock as u64
                }
                Wait::Nothing | Wait::Entering | Wait::Throttled | Wait::Kicking => {
                    line.held.load(Relaxed) == 1
                        && line.held_ticket[0].load(Relaxed) == before
                        && line.held_lock[0].load(Relaxed) == lock as u64
                }
            }
        };
        // The predecessor's state may have changed since: then this CPU halts a little early.
        let line = self.lines[..vcpus].iter().find(is_predecessor);
        line.is_some_and(|line| line.off_cpu.load(Relaxed) != 0)
    }

    #[inline]
    fn is_off(&self, vcpu: usize) -> bool {
        self.lines[vcpu].off_cpu.load(Relaxed) != 0
    }

    #[inline]
    fn is_critical_off(&self) -> bool {
        self.machine.critical_off.load(Relaxed) != 0
    }

    #[inline]
    fn slice_left(&self) -> u64 {
        match self.line.slice_end.load(Relaxed) {
            0 => u64::MAX,
            end => end.saturating_sub(tsc()),
        }
    }

    #[inline]
    fn critical(&self) {
        self.point(Point::Critical);
    }

    #[inline]
    fn between(&self) {
        if self.line.yield_wanted.load(Relaxed) != 0 {
            self.line.yield_wanted.store(0, Relaxed);
            port::out32(self.yield_port, 0);
        }
    }
}
