//! shuttle: many schedules, chosen at random or by PCT. Every load sees the latest store.

use std::{cell::RefCell, mem::ManuallyDrop};

pub use shuttle::sync::{Condvar, Mutex};
pub use shuttle::thread::spawn;
use shuttle::{
    Config, FailurePersistence, MaxSteps, Runner,
    rand::Rng as _,
    scheduler::{PctScheduler, RandomScheduler, Schedule, Scheduler, Task, TaskId},
};

use self::atomics::Ordering;
use super::MAX_CPUS;

atomics!(::shuttle::sync::atomic);

/// The longest execution, in steps.
const STEPS: usize = 50_000;

/// The depth of PCT: the number of priority changes plus one; an order of three steps needs two
/// changes.
const DEPTH: usize = 4;

/// Makes the schedules the same in each run; `SHUTTLE_RANDOM_SEED` overrides it.
const SEED: u64 = 2012;

/// Runs `times` executions of `work` at random, and as many by PCT.
pub fn explore(work: impl Fn() + Copy + Send + Sync + 'static, times: usize) {
    let mut config = Config::new();
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(STEPS);
    config.silence_warnings = true;
    let random = Quiet(ManuallyDrop::new(RandomScheduler::new_from_seed(SEED, times)));
    Runner::new(random, config.clone()).run(work);
    let pct = PctScheduler::new_from_seed(SEED, DEPTH, times);
    Runner::new(pct, config).run(work);
}

/// Never dropped: its drop would print the seed for each caught mutant, and the seed is [`SEED`].
struct Quiet(ManuallyDrop<RandomScheduler>);

impl Scheduler for Quiet {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.0.new_execution()
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        self.0.next_task(runnable, current, is_yielding)
    }

    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }
}

/// Called by spin loops: lets another thread run.
pub fn pause() {
    shuttle::hint::spin_loop();
}

/// A no-op: all operations are in one order already.
pub fn total_order() {}

/// A number below `bound`.
pub fn draw(bound: u32) -> u32 {
    shuttle::rand::thread_rng().gen_range(0..bound)
}

/// A pending interrupt on a CPU.
struct Armed {
    steps: u32,
    masked: bool,
    handler: Option<Box<dyn Fn()>>,
}

thread_local! {
    static ARMED: RefCell<[Option<Armed>; MAX_CPUS]> = const { RefCell::new([const { None }; MAX_CPUS]) };
}

/// Runs `handler` before atomic operation number `steps` of `cpu` from now, or once unmasked.
pub fn arm(cpu: usize, steps: u32, handler: Box<dyn Fn()>) {
    ARMED.with_borrow_mut(|armed| {
        armed[cpu] = Some(Armed { steps, masked: false, handler: Some(handler) });
    });
}

/// Disables or enables `cpu`'s interrupts; returns whether they were disabled, or `masked` if none is armed.
pub fn mask(cpu: usize, masked: bool) -> bool {
    ARMED.with_borrow_mut(|armed| match &mut armed[cpu] {
        Some(armed) => std::mem::replace(&mut armed.masked, masked),
        None => masked,
    })
}

/// Cancels all pending interrupts.
pub fn disarm() {
    ARMED.with_borrow_mut(|armed| armed.fill_with(|| None));
}

/// Runs a due interrupt, if any. Called before every atomic operation, and by the machine.
pub fn before_step() {
    if std::thread::panicking() {
        return;
    }
    let handler = ARMED.with_borrow_mut(|pending| {
        if pending.iter().all(Option::is_none) {
            return None;
        }
        // The machine starts its threads in the order of its CPUs.
        let armed = pending.get_mut(usize::from(shuttle::current::me()))?.as_mut()?;
        armed.steps = armed.steps.saturating_sub(1);
        if armed.steps == 0 && !armed.masked { armed.handler.take() } else { None }
    });
    if let Some(handler) = handler {
        handler();
    }
}

fn store<T>(cell: &T, plain: impl FnOnce(&T), _swap: impl FnOnce(&T), _order: Ordering) {
    plain(cell);
}
