//! Systems of all families in random order, as a kernel uses them.

use hypercalls::payload::MAX_LOCKS;
use locks::counter::LockedCounter;
use locks::lockref::UnboundedLockref;
use locks::mutex::BaselineMutex;
use locks::{Cpu, Family, NativeTicketLock, Pv};

use super::{CachePadded, OperationParams, Outcome, Work, counter, lockref, mutex, spinlock};
use crate::telemetry::WorkloadWatch;
use crate::vcpu::CallingVcpu;

static SPINLOCK: spinlock::SpinlockWork<NativeTicketLock> = spinlock::SpinlockWork(
    [const { spinlock::Guarded::under(NativeTicketLock::new()) }; MAX_LOCKS],
);
static MUTEX: mutex::MutexWork<BaselineMutex> = mutex::MutexWork::under(BaselineMutex::new());
static COUNTER: counter::CounterWork<LockedCounter> =
    counter::CounterWork(LockedCounter::new(counter::CPUS, counter::BATCH));
static LOCKREF: lockref::LockrefWork<UnboundedLockref> =
    lockref::LockrefWork(CachePadded(UnboundedLockref::new(lockref::INITIAL_COUNT)));

const FAMILIES: [Family; 4] = [Family::Spinlock, Family::Mutex, Family::Counter, Family::Lockref];

/// The system under test, and the first system of each other family.
pub(super) struct Mixed<'a, O>(pub(super) &'a O);

impl<O: Work> Work for Mixed<'_, O> {
    const FAMILY: Family = O::FAMILY;

    fn operate<P: Pv, W: WorkloadWatch>(
        &self,
        cpu: &Cpu<'_, P, W>,
        load: &OperationParams<'_>,
    ) -> Outcome {
        let family = FAMILIES[draw(load.vcpu)];
        if family == O::FAMILY {
            return self.0.operate(cpu, load);
        }
        match family {
            Family::Spinlock => SPINLOCK.operate(cpu, load),
            Family::Mutex => MUTEX.operate(cpu, load),
            Family::Counter => COUNTER.operate(cpu, load),
            Family::Lockref => LOCKREF.operate(cpu, load),
        }
    }

    fn read_word(&self) -> bool {
        self.0.read_word()
    }
}

/// Draws an index into [`FAMILIES`]: the same in every run for the same vCPU and operation
/// number (SplitMix64's finalizer; Steele, Lea, Flood, 2014).
fn draw(vcpu: &CallingVcpu) -> usize {
    let mut bits = vcpu.operations() ^ (vcpu.index as u64) << 48;
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (bits ^ bits >> 31) as usize % FAMILIES.len()
}
