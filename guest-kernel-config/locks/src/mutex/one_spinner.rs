//! "mutex: restrict mutex spinning to only one task per mutex" (Linux 2013).

use crate::mutex::{Mutex, MutexCost, Spinners};
use crate::sync::{AtomicU32, Ordering};
use crate::{Cpu, Pv, Watch};

/// Like the [`ReadFirstMutex`](crate::mutex::ReadFirstMutex), with at most one optimistic spinner
/// per mutex: a second spinner goes to sleep at once.
///
/// Good when spinners keep others from useful work (AIM7's fserver: +16 %), bad when critical
/// sections are short and sleeping is the main cost (AIM7's short: -7.7 %). In addition to the
/// guarantees of every mutex, no two CPUs spin for it at once.
pub type OneSpinnerMutex = Mutex<OneSpinner>;

/// The spinner of a [`OneSpinnerMutex`].
#[derive(Debug, Default)]
pub struct OneSpinner {
    /// The CPU that spins plus one; zero: none.
    spinner: AtomicU32,
}

impl OneSpinnerMutex {
    /// Creates a free mutex.
    pub const fn new() -> Self {
        Self::with(OneSpinner { spinner: AtomicU32::new(0) })
    }
}

// All relaxed: the field protects nothing, and "at most one" only needs the modification order of
// one atomic.
impl Spinners for OneSpinner {
    const READS_FIRST: bool = true;

    fn enter<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, taken: &mut MutexCost) -> bool {
        if self.spinner.load(Ordering::Relaxed) != 0 {
            return false;
        }
        taken.spinner_rmw += 1;
        let me = cpu.id as u32 + 1;
        self.spinner.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    fn leave<P: Pv, W: Watch>(&self, _: &Cpu<'_, P, W>, _: &mut MutexCost) {
        self.spinner.store(0, Ordering::Relaxed);
    }
}
