//! Linux's mutex before "mutex: Make more scalable by doing less atomic operations" (2013): any
//! number of spinners, and every look is a write.

use crate::mutex::{Mutex, MutexTaken, Spinners};
use crate::{Cpu, Pv, Watch};

/// The code that the patch of 2013 starts from. Three atomic read-modify-writes in rapid succession
/// on the way to sleep: the decrement of the first look, a swap at the start of the list's critical
/// section, and another before the halt; and a compare-exchange by every spinner whenever the mutex
/// has no owner.
///
/// Right when two or three CPUs contend: a CPU that spins at the release takes the mutex without
/// reading it first. With many, all of them pass the word's cache line around.
pub type BaselineMutex = Mutex<Baseline>;

/// Spinners of a [`BaselineMutex`].
#[derive(Debug, Default)]
pub struct Baseline;

impl BaselineMutex {
    /// A free mutex.
    pub const fn new() -> Self {
        Self::with(Baseline)
    }
}

impl Default for BaselineMutex {
    fn default() -> Self {
        Self::new()
    }
}

impl Spinners for Baseline {
    const READS_FIRST: bool = false;

    fn enter<P: Pv, W: Watch>(&self, _: &Cpu<'_, P, W>, _: &mut MutexTaken) -> bool {
        true
    }

    fn leave<P: Pv, W: Watch>(&self, _: &Cpu<'_, P, W>, _: &mut MutexTaken) {}
}
