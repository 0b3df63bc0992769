//! The workloads of the lock library: each vCPU uses one system repeatedly.
//!
//! Each family's file defines its operation. A new system of a family needs a line in the library's
//! list and no change here.

mod counter;
mod lockref;
mod machine;
mod mixed;
mod mutex;
mod spinlock;
mod switch;

use core::cell::Cell;

use hypercalls::payload::{MAX_LOCKS, Waiting, Workload, handoff::Options};
use locks::{
    Cpu, Family, Handoff, Pv, Restricted, System, Unwatched, WaitTable, Words, settle, systems,
};

use crate::telemetry::{Telemetry, WorkloadWatch, tsc};
use crate::vcpu::CallingVcpu;
use machine::HypercallPv;
use mixed::Mixed;

/// The status of a vCPU whose system is unknown.
const STATUS_UNKNOWN_SYSTEM: u32 = 3;

static WAITERS: WaitTable = WaitTable::new();

/// With more increments than this between two operations, an owed kick is settled first.
const SHORT_THINK: u32 = 1000;

/// Gives a value its own pair of cache lines.
#[repr(align(128))]
struct CachePadded<T>(T);

/// An operation on a system.
trait Work {
    const FAMILY: Family;

    fn operate<P: Pv, W: WorkloadWatch>(
        &self,
        cpu: &Cpu<'_, P, W>,
        load: &OperationParams<'_>,
    ) -> Outcome;

    /// Reads the word that others write, by one or two loads.
    fn read_word(&self) -> bool;
}

struct OperationParams<'a> {
    vcpu: &'a CallingVcpu,
    /// Spinlocks in use; from 1 to [`MAX_LOCKS`].
    locks: u32,
    /// The state of a random number generator (G. Marsaglia, "Xorshift RNGs", 2003); not zero.
    random: Cell<u32>,
    /// Increments with the lock held, or the addend.
    critical: u32,
    /// Adds between two sums; zero: no sums.
    sum_every: u32,
    /// Whether to record the time of each operation.
    timed: bool,
}

impl OperationParams<'_> {
    /// The lock that the next operation takes.
    #[inline]
    fn lock(&self) -> usize {
        if self.locks == 1 {
            return 0;
        }
        let mut random = self.random.get();
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        self.random.set(random);
        ((u64::from(random) * u64::from(self.locks)) >> 32) as usize
    }

    /// Begins a wait; returns the TSC, or 0 if operations are not timed.
    #[inline]
    fn begin_wait(&self) -> u64 {
        if !self.timed {
            return 0;
        }
        let now = tsc();
        self.vcpu.publish_waiting(Waiting::Since(now));
        now
    }

    /// Ends a wait; returns its TSC ticks, or 0 if operations are not timed.
    #[inline]
    fn end_wait(&self, since: u64) -> u64 {
        if !self.timed {
            return 0;
        }
        let ticks = tsc().wrapping_sub(since);
        self.vcpu.publish_waiting(Waiting::Over(ticks));
        ticks
    }
}

/// The results of an operation. See [`Slot`](hypercalls::payload::Slot).
#[derive(Default)]
struct Outcome {
    slow: bool,
    halts: u32,
    kicks: u32,
    rmw: u32,
    spinner_rmw: u32,
    spins: u32,
    retries: u32,
    is_violated: bool,
    is_disorderly: bool,
    /// The length of its wait in TSC ticks.
    ticks: u64,
}

impl Outcome {
    #[inline]
    fn publish(&self, vcpu: &CallingVcpu) {
        vcpu.add(|slot| &slot.slow, self.slow.into());
        vcpu.add(|slot| &slot.halts, self.halts.into());
        vcpu.add(|slot| &slot.kicks, self.kicks.into());
        vcpu.add(|slot| &slot.rmw, self.rmw.into());
        vcpu.add(|slot| &slot.spinner_rmw, self.spinner_rmw.into());
        vcpu.add(|slot| &slot.spins, self.spins.into());
        vcpu.add(|slot| &slot.retries, self.retries.into());
        vcpu.add(|slot| &slot.violations, self.is_violated.into());
        vcpu.add(|slot| &slot.disorder, self.is_disorderly.into());
    }
}

macro_rules! run_each {
    ($($family:ident $system:ident $name:literal $type:ty: $needs:ident, $about:literal, $origin:ident;)*) => {
        /// Runs the workload with the system in the parameters; returns the vCPU's status.
        pub fn run(vcpu: &CallingVcpu, workload: Workload) -> u32 {
            match vcpu.param(|params| &params.system) {
                $(number if number == System::$system as u32 => run_each!(@$family $type, vcpu, workload),)*
                _ => return STATUS_UNKNOWN_SYSTEM,
            }
            0
        }
    };
    (@Spinlock $lock:ty, $vcpu:ident, $workload:ident) => {
        if $vcpu.param(|params| &params.restrict) == 0 {
            static WORK: spinlock::SpinlockWork<$lock> = spinlock::SpinlockWork(
                [const { spinlock::Guarded::under(<$lock>::new()) }; MAX_LOCKS],
            );
            run_with($vcpu, $workload, &WORK);
        } else {
            static WORK: spinlock::SpinlockWork<Restricted<$lock>> = spinlock::SpinlockWork(
                [const { spinlock::Guarded::under(Restricted::around(<$lock>::new())) };
                    MAX_LOCKS],
            );
            run_with($vcpu, $workload, &WORK);
        }
    };
    (@Mutex $mutex:ty, $vcpu:ident, $workload:ident) => {{
        static WORK: mutex::MutexWork<$mutex> = mutex::MutexWork::under(<$mutex>::new());
        run_with($vcpu, $workload, &WORK);
    }};
    (@Counter $counter:ty, $vcpu:ident, $workload:ident) => {{
        static WORK: counter::CounterWork<$counter> =
            counter::CounterWork(<$counter>::new(counter::CPUS, counter::BATCH));
        run_with($vcpu, $workload, &WORK);
    }};
    (@Lockref $lockref:ty, $vcpu:ident, $workload:ident) => {{
        static WORK: lockref::LockrefWork<$lockref> =
            lockref::LockrefWork(CachePadded(<$lockref>::new(lockref::INITIAL_COUNT)));
        run_with($vcpu, $workload, &WORK);
    }};
}

systems!(run_each);

/// The handoff options in the parameters.
fn handoff(vcpu: &CallingVcpu) -> Handoff {
    let bits = vcpu.param(|params| &params.handoff);
    let Options { predecessor, adapt, claim, ahead, fuse } = Options::from_bits(bits);
    let [far, queue, restrict] = [
        vcpu.param(|params| &params.far),
        vcpu.param(|params| &params.queue),
        vcpu.param(|params| &params.restrict),
    ]
    .map(|n| n as u16);
    const _: () = assert!(Handoff::ADAPTIVE == hypercalls::payload::handoff::ADAPTIVE);
    Handoff { far, predecessor, adapt, claim, ahead, fuse, queue, restrict }
}

fn run_with(vcpu: &CallingVcpu, workload: Workload, work: &impl Work) {
    match workload {
        Workload::HotLine if vcpu.index == vcpu.last() => read(vcpu, work),
        Workload::Operate | Workload::HotLine => watch(vcpu, work),
        Workload::Mixed => watch(vcpu, &Mixed(work)),
        Workload::Switch => switch::time(vcpu),
        // These workloads use no system, and are not run here.
        Workload::Hello
        | Workload::PortExit
        | Workload::PingPong
        | Workload::KickRunning
        | Workload::PendingHalt
        | Workload::Misuse
        | Workload::Rest => {}
    }
}

/// Reads repeatedly, in batches, so that the vCPU's own stores are rare.
fn read(vcpu: &CallingVcpu, work: &impl Work) {
    const BATCH: u64 = 64;
    vcpu.wait_for_go();
    while !vcpu.stopped() {
        for _ in 0..BATCH {
            core::hint::black_box(work.read_word());
        }
        vcpu.add(|slot| &slot.reads, BATCH);
    }
}

fn watch(vcpu: &CallingVcpu, work: &impl Work) {
    match Telemetry::for_vcpu(vcpu) {
        Some(telemetry) => contend_watched(vcpu, work, telemetry),
        None => contend(vcpu, work, Unwatched),
    }
}

/// Out of line, so that it takes no registers from the unwatched loop.
#[inline(never)]
fn contend_watched(vcpu: &CallingVcpu, work: &impl Work, telemetry: Telemetry) {
    contend(vcpu, work, telemetry);
}

fn contend<W: WorkloadWatch + Copy>(vcpu: &CallingVcpu, work: &impl Work, watch: W) {
    let pv = HypercallPv::new(vcpu, &watch);
    let cpu = Cpu {
        id: vcpu.index,
        spin_threshold: vcpu.param(|params| &params.spin_threshold),
        pv: &pv,
        waiters: &WAITERS,
        watch,
        handoff: handoff(vcpu),
    };
    let load = OperationParams {
        vcpu,
        locks: vcpu.param(|params| &params.locks).clamp(1, MAX_LOCKS as u32),
        random: Cell::new(vcpu.index as u32 + 1),
        critical: vcpu.param(|params| &params.critical),
        sum_every: vcpu.param(|params| &params.sum_every),
        timed: vcpu.param(|params| &params.timed) != 0,
    };
    let think = vcpu.param(|params| &params.think);
    let private = CachePadded(Words::new());
    vcpu.wait_for_go();
    while !vcpu.stopped() {
        let outcome = work.operate(&cpu, &load);
        vcpu.add(|slot| &slot.operations, 1);
        outcome.publish(vcpu);
        if load.timed {
            vcpu.record_latency(outcome.ticks);
        }
        if think > SHORT_THINK || cpu.watch.will_yield() {
            settle(&cpu);
        }
        cpu.watch.between();
        private.0.increment(think);
    }
    settle(&cpu);
}
