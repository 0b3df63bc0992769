//! Who stands outside of a limited queue is let in within the bound that [`Handoff::bypasses`]
//! states, whatever those inside do: on CPUs that are threads of which one runs at a time, in the
//! order of a clock that counts steps. So every run is the same.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use locks::{Cpu, Handoff, Place, Pv, PvTicketLock, RawLock, SmallPvTicketLock, WaitTable, Watch};

/// From a kick to the first step of the kicked CPU.
const WAKEUP: u64 = 5;

/// What the CPUs do.
#[derive(Clone, Copy)]
struct Case {
    cpus: usize,
    handoff: Handoff,
    spin_threshold: u32,
    /// Steps with the lock, and from a release to the next acquisition.
    critical: u64,
    think: u64,
    /// A second lock, which each CPU takes by turns with the first.
    two_locks: bool,
    /// Acquisitions until the run ends.
    acquisitions: u64,
}

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    /// Acquisitions of each CPU.
    operations: Vec<u64>,
    /// The most acquisitions of the same lock by others while one waited, which it may still do.
    bypassed: u64,
}

struct Machine {
    state: Mutex<State>,
    turns: Vec<Condvar>,
}

struct State {
    now: u64,
    running: usize,
    /// When each CPU goes on; `None`: it halts until it is kicked.
    due: Vec<Option<u64>>,
    is_kicked: Vec<bool>,
    is_over: bool,
    /// By lock: acquisitions, and those there were when the wait of each CPU began.
    taken: [u64; 2],
    since: Vec<Option<(usize, u64)>>,
    outcome: Outcome,
}

/// The run is over: thrown through a lock for which its CPU waits.
struct Over;

/// A CPU as its lock sees it.
struct Vcpu<'a> {
    machine: &'a Machine,
    id: usize,
}

impl Machine {
    fn new(cpus: usize) -> Self {
        let state = State {
            now: 0,
            running: 0,
            due: vec![Some(0); cpus],
            is_kicked: vec![false; cpus],
            is_over: false,
            taken: [0; 2],
            since: vec![None; cpus],
            outcome: Outcome { operations: vec![0; cpus], bypassed: 0 },
        };
        Self { state: Mutex::new(state), turns: (0..cpus).map(|_| Condvar::new()).collect() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The CPU `id` goes on at `due`; until then others do.
    fn give_way(&self, id: usize, due: impl FnOnce(&mut State) -> Option<u64>) {
        let mut state = self.state();
        state.due[id] = due(&mut state);
        let next = (0..state.due.len())
            .filter_map(|cpu| state.due[cpu].map(|due| (due, cpu)))
            .min()
            .unwrap_or_else(|| panic!("all sleep: a lost wakeup"));
        state.now = next.0;
        state.running = next.1;
        if next.1 != id {
            self.turns[next.1].notify_one();
        }
        self.await_turn(id, state);
    }

    fn await_turn(&self, id: usize, mut state: MutexGuard<'_, State>) {
        while state.running != id && !state.is_over {
            state = self.turns[id].wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_over {
            drop(state);
            panic::resume_unwind(Box::new(Over));
        }
    }

    fn end(&self) {
        self.state().is_over = true;
        self.turns.iter().for_each(Condvar::notify_one);
    }
}

impl Vcpu<'_> {
    fn pass(&self, steps: u64) {
        self.machine.give_way(self.id, |state| Some(state.now + steps));
    }

    /// Takes and releases `locks` until the run is over.
    fn work<L: RawLock>(&self, case: &Case, locks: &[L; 2], waiters: &WaitTable) {
        let (id, spin_threshold, handoff) = (self.id, case.spin_threshold, case.handoff);
        let cpu = Cpu { id, spin_threshold, pv: self, waiters, watch: self, handoff };
        self.machine.await_turn(id, self.machine.state());
        for round in 0.. {
            let lock = if case.two_locks { round % 2 } else { 0 };
            {
                let mut state = self.machine.state();
                state.since[id] = Some((lock, state.taken[lock]));
            }
            locks[lock].lock(&cpu);
            self.took(case.acquisitions);
            self.pass(case.critical);
            locks[lock].unlock(&cpu);
            self.pass(case.think);
        }
    }

    fn took(&self, most: u64) {
        let mut state = self.machine.state();
        let Some((lock, since)) = state.since[self.id].take() else { return };
        let bypassed = state.taken[lock] - since;
        state.outcome.bypassed = state.outcome.bypassed.max(bypassed);
        state.outcome.operations[self.id] += 1;
        state.taken[lock] += 1;
        if state.taken.iter().sum::<u64>() == most {
            drop(state);
            self.machine.end();
        }
    }
}

impl Pv for Vcpu<'_> {
    fn spin_hint(&self) {
        self.pass(1);
    }

    fn lock_spinning(&self, _ticket: u16) {
        self.machine.give_way(self.id, |state| {
            let is_kicked = std::mem::take(&mut state.is_kicked[self.id]);
            is_kicked.then_some(state.now + 1)
        });
    }

    fn unlock_kick(&self, cpu: usize) {
        let mut state = self.machine.state();
        match state.due[cpu] {
            None => state.due[cpu] = Some(state.now + WAKEUP),
            Some(_) => state.is_kicked[cpu] = true,
        }
    }
}

impl Watch for &Vcpu<'_> {
    fn entering(&self, _: Option<usize>) {
        self.pass(1);
    }

    fn reached(&self, _place: Place) {
        self.pass(1);
    }
}

fn run<L: RawLock + Default + Sync>(case: &Case) -> Outcome {
    let machine = Machine::new(case.cpus);
    let (locks, waiters) = ([L::default(), L::default()], WaitTable::new());
    thread::scope(|scope| {
        for id in 0..case.cpus {
            let (machine, locks, waiters) = (&machine, &locks, &waiters);
            scope.spawn(move || {
                let vcpu = Vcpu { machine, id };
                let end = panic::catch_unwind(AssertUnwindSafe(|| vcpu.work(case, locks, waiters)));
                machine.end();
                end.unwrap_or_else(|why: Box<dyn Any + Send>| {
                    if !why.is::<Over>() {
                        panic::resume_unwind(why);
                    }
                });
            });
        }
    });
    let state = machine.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut outcome = state.outcome;
    for (lock, since) in state.since.into_iter().flatten() {
        outcome.bypassed = outcome.bypassed.max(state.taken[lock] - since);
    }
    outcome
}

/// The bound holds, and each gets at least `share` of what the luckiest does.
fn is_bounded<L: RawLock + Default + Sync>(case: &Case, share: f64) {
    let outcome = run::<L>(case);
    let bound = u64::from(case.handoff.bypasses::<L>(case.cpus as u32, 0));
    assert!(outcome.bypassed <= bound, "more than {bound}: {outcome:?}");
    let operations = || outcome.operations.iter().copied();
    let (least, most) = (operations().min().unwrap_or(0), operations().max().unwrap_or(0));
    assert!(least as f64 >= share * most as f64, "less than {share} of it: {outcome:?}");
}

fn queue(queue: u16) -> Handoff {
    Handoff { queue, ..Handoff::default() }
}

/// Every wait in the queue is longer than the threshold.
fn long(cpus: usize, handoff: Handoff) -> Case {
    let (critical, think) = (60, 5);
    Case {
        cpus,
        handoff,
        spin_threshold: 20,
        critical,
        think,
        two_locks: false,
        acquisitions: 3_000,
    }
}

/// No wait in the queue is.
fn short(cpus: usize, handoff: Handoff) -> Case {
    let (critical, think) = (3, 1);
    Case { spin_threshold: 2048, critical, think, acquisitions: 6_000, ..long(cpus, handoff) }
}

#[test]
fn none_is_kept_out_where_each_handoff_is_a_kick() {
    is_bounded::<PvTicketLock>(&long(4, queue(2)), 0.9);
    is_bounded::<PvTicketLock>(&long(6, queue(4)), 0.9);
    is_bounded::<SmallPvTicketLock>(&long(4, queue(2)), 0.9);
    // Who lets in the next, and comes back before it has woken up, has every other turn.
    is_bounded::<PvTicketLock>(&long(8, queue(1)), 0.1);
}

#[test]
fn none_is_kept_out_where_all_with_others_before_them_halt() {
    for handoff in [
        Handoff { far: 1, ..queue(2) },
        Handoff { far: 1, adapt: true, ..queue(3) },
        Handoff { far: 1, claim: true, ahead: true, ..queue(2) },
    ] {
        let case = Case { spin_threshold: 2048, critical: 20, ..long(5, handoff) };
        is_bounded::<PvTicketLock>(&case, 0.6);
        is_bounded::<SmallPvTicketLock>(&case, 0.6);
    }
}

#[test]
fn none_is_kept_out_where_nobody_halts() {
    is_bounded::<SmallPvTicketLock>(&short(4, queue(2)), 0.8);
    is_bounded::<SmallPvTicketLock>(&short(7, queue(3)), 0.8);
    let many = Case { acquisitions: 40_000, ..short(4, queue(2)) };
    is_bounded::<PvTicketLock>(&many, 0.3);
}

/// Releases of one lock are not counted for another.
#[test]
fn none_is_kept_out_of_one_of_two_locks() {
    is_bounded::<PvTicketLock>(&Case { two_locks: true, ..long(5, queue(2)) }, 0.5);
    is_bounded::<SmallPvTicketLock>(&Case { two_locks: true, ..short(6, queue(2)) }, 0.4);
}

#[test]
fn a_run_is_the_same_again() {
    let case = long(4, queue(2));
    assert_eq!(run::<PvTicketLock>(&case), run::<PvTicketLock>(&case));
}
