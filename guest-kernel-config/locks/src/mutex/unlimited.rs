//! Any number of spinners: Linux's mutex before and after "mutex: Make more scalable by doing less atomic operations"
//! (2013).

use crate::mutex::{Mutex, MutexCost, Spinners};
use crate::{Cpu, Pv, Watch};

/// The code that the patch of 2013 starts from: every attempt is a write. There are three atomic
/// read-modify-writes in rapid succession on the way to sleep: the decrement of the first attempt, a swap at
/// the start of the list's critical section, and another before the halt; in addition, every spinner does a
/// compare-exchange whenever the mutex has no owner.
///
/// Good when two or three CPUs contend: a CPU that spins at the release takes the mutex without reading it
/// first. With many, all of them pass the word's cache line around.
pub type BaselineMutex = Mutex<Unlimited<false>>;

/// Like the [`BaselineMutex`], but the word is read first and written only if that can change anything: by a
/// spinner if the mutex is free, by a sleeper unless the word is negative already (there may be sleepers).
///
/// Good when many CPUs contend: waiting costs one write, the decrement, and one more for the first sleeper.
/// The price is a shared read before each success, and that a sleeper loses to a newcomer a little more
/// often.
pub type ReadFirstMutex = Mutex<Unlimited<true>>;

/// Spinners without a limit.
#[derive(Debug, Default)]
pub struct Unlimited<const READS_FIRST: bool>;

impl<const READS_FIRST: bool> Mutex<Unlimited<READS_FIRST>> {
    /// Creates a free mutex.
    pub const fn new() -> Self {
        Self::with(Unlimited)
    }
}

impl<const READS_FIRST: bool> Spinners for Unlimited<READS_FIRST> {
    const READS_FIRST: bool = READS_FIRST;

    fn enter<P: Pv, W: Watch>(&self, _: &Cpu<'_, P, W>, _: &mut MutexCost) -> bool {
        true
    }

    fn leave<P: Pv, W: Watch>(&self, _: &Cpu<'_, P, W>, _: &mut MutexCost) {}
}
