//! "mutex: Make more scalable by doing less atomic operations" (Linux 2013): look before you write.

use crate::mutex::{Mutex, MutexTaken, Spinners};
use crate::{Cpu, Pv, Watch};

/// As the [`BaselineMutex`](crate::mutex::BaselineMutex), but the word is read first and written
/// only if that can change anything: by a spinner if the mutex is free, by a sleeper unless the
/// word is negative already (which means that there may be sleepers).
///
/// Right when many contend: waiting costs one write, the decrement, and one more for the first
/// sleeper. The price is a shared read before each success, and that a sleeper loses to a newcomer
/// a little more often.
pub type ReadFirstMutex = Mutex<ReadFirst>;

/// Spinners of a [`ReadFirstMutex`].
#[derive(Debug, Default)]
pub struct ReadFirst;

impl ReadFirstMutex {
    /// A free mutex.
    pub const fn new() -> Self {
        Self::with(ReadFirst)
    }
}

impl Default for ReadFirstMutex {
    fn default() -> Self {
        Self::new()
    }
}

impl Spinners for ReadFirst {
    const READS_FIRST: bool = true;

    fn enter<P: Pv, W: Watch>(&self, _: &Cpu<'_, P, W>, _: &mut MutexTaken) -> bool {
        true
    }

    fn leave<P: Pv, W: Watch>(&self, _: &Cpu<'_, P, W>, _: &mut MutexTaken) {}
}
