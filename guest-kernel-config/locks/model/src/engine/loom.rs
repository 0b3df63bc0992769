//! loom: every schedule with so many preemptions at most, and every value a load may see.
//!
//! It takes `SeqCst` for acquire and release, which is weaker than the language, so what passes
//! here does not lean on a total order.

pub use loom::sync::{Condvar, Mutex};
pub use loom::thread::spawn;

use self::atomics::Ordering;
use crate::{Run, Scenario};

atomics!(::loom::sync::atomic);

/// Longest execution, in switches of threads.
const BRANCHES: usize = 5_000;

/// Most executions of a scenario. All but the search that finds by accident have fewer.
const EXECUTIONS: usize = 100_000;

/// All executions of `scenario` with `preemptions` at most, or the first [`EXECUTIONS`].
pub fn check(run: Run, scenario: &'static Scenario, preemptions: usize) {
    explore(move || run(scenario), preemptions);
}

/// The same of any `work`.
pub fn explore(work: impl Fn() + Copy + Send + Sync + 'static, preemptions: usize) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = BRANCHES;
    builder.max_permutations = Some(EXECUTIONS);
    builder.check(work);
}

/// A spin loop goes round.
pub fn pause() {
    loom::thread::yield_now();
}

/// What is before it in one thread and after it in another is so for all of them.
pub fn total_order() {
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// A number below `bound`: here always the same.
pub fn draw(bound: u32) -> u32 {
    bound / 2
}

/// Interrupts before any step are shuttle's: loom would have too many schedules.
pub fn arm(_cpu: usize, _steps: u32, _handler: Box<dyn Fn()>) {}

/// See [`arm`].
pub fn mask(_cpu: usize, masked: bool) -> bool {
    masked
}

/// See [`arm`].
pub fn disarm() {}

/// See [`arm`].
pub fn before_step() {}

/// A store. A sequentially consistent one is done by a swap, which is what x86 makes of it: loom
/// keeps no total order of an atomic's values, and would let a swap read what such a store has
/// overwritten.
fn store<T>(cell: &T, plain: impl FnOnce(&T), swap: impl FnOnce(&T), order: Ordering) {
    if order == Ordering::SeqCst { swap(cell) } else { plain(cell) }
}
