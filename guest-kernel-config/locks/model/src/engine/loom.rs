//! loom: every schedule with a bounded number of preemptions, and every value that a load may see.
//!
//! loom treats `SeqCst` as acquire and release, which is weaker than the language, so code that
//! passes here does not rely on a total order.

pub use loom::sync::{Condvar, Mutex};
pub use loom::thread::spawn;

use self::atomics::Ordering;

atomics!(::loom::sync::atomic);

/// The longest execution, in thread switches.
const BRANCHES: usize = 5_000;

/// Limit on the executions of a scenario. Only the search with accidental matches needs more.
const EXECUTIONS: usize = 100_000;

/// Runs all executions of `work` with at most this many `preemptions`, or the first [`EXECUTIONS`].
pub fn explore(work: impl Fn() + Copy + Send + Sync + 'static, preemptions: usize) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = BRANCHES;
    builder.max_permutations = Some(EXECUTIONS);
    builder.check(work);
}

/// Called by spin loops: lets another thread run.
pub fn pause() {
    loom::thread::yield_now();
}

/// A full fence: of two threads that each write, call this and then read, at least one sees the
/// other's write.
pub fn total_order() {
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// A number below `bound`: here always the same.
pub fn draw(bound: u32) -> u32 {
    bound / 2
}

/// Interrupts before arbitrary steps are left to shuttle: loom would have too many schedules.
pub fn arm(_cpu: usize, _steps: u32, _handler: Box<dyn Fn()>) {}

/// See [`arm`].
pub fn mask(_cpu: usize, masked: bool) -> bool {
    masked
}

/// See [`arm`].
pub fn disarm() {}

/// See [`arm`].
pub fn before_step() {}

/// Stores. A sequentially consistent store becomes a swap, as on x86: loom keeps no total order of
/// an atomic's values, and would let a swap read a value that such a store has overwritten.
fn store<T>(cell: &T, plain: impl FnOnce(&T), swap: impl FnOnce(&T), order: Ordering) {
    if order == Ordering::SeqCst { swap(cell) } else { plain(cell) }
}
