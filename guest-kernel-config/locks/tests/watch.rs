//! The steps that a watcher is told, and their order. All CPUs are this one thread: CPU 0 holds the
//! lock and releases it from a hint, a halt or a step of CPU 1.

use std::cell::{Cell, RefCell};

use locks::{
    Cpu, Handoff, NativeTicketLock, Place, Pv, PvTicketLock, RawLock, Taken, WaitTable, Watch,
};

use Place::{BeforeFlag, FlagToHalt, ReleaseToKick};
use Step::{
    BeforeKick, Entering, Halt, Halting, Kick, Kicked, Reached, Released, Resumed, Spinning,
    SpunOut,
};

/// Most hints of a wait: then the release that was set up has been missed.
const PATIENCE: u32 = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Entering,
    Spinning(u16),
    SpunOut(u16),
    Halting(u16),
    /// The halt itself, which the lock makes and does not report.
    Halt(u16),
    Resumed(u16),
    Taken(u16),
    Released,
    BeforeKick(u16),
    Kicked,
    /// The kick itself, which the lock makes and does not report.
    Kick(usize),
    Reached(Place),
}

/// When CPU 0 releases the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cue {
    Hint(u32),
    Halt(u32),
    At(Place),
}

/// The lock, and all steps so far, each with its CPU.
struct Stage<L> {
    lock: L,
    waiters: WaitTable,
    spin_threshold: u32,
    spin_looks: u32,
    release: Cell<Option<Cue>>,
    hints: Cell<u32>,
    halts: Cell<u32>,
    steps: RefCell<Vec<(usize, Step)>>,
}

/// A CPU's halt and kick, and its watcher.
struct Actor<'a, L> {
    cpu: usize,
    stage: &'a Stage<L>,
}

impl<L: RawLock + Default> Stage<L> {
    fn new(spin_threshold: u32, spin_looks: u32) -> Self {
        Self {
            lock: L::default(),
            waiters: WaitTable::new(),
            spin_threshold,
            spin_looks,
            release: Cell::new(None),
            hints: Cell::new(0),
            halts: Cell::new(0),
            steps: RefCell::default(),
        }
    }

    fn with<R>(&self, id: usize, act: impl Fn(&Cpu<'_, Actor<'_, L>, &Actor<'_, L>>) -> R) -> R {
        let actor = Actor { cpu: id, stage: self };
        let Self { waiters, spin_threshold, .. } = self;
        let (spin_threshold, handoff) = (*spin_threshold, Handoff::default());
        act(&Cpu { id, spin_threshold, pv: &actor, waiters, watch: &actor, handoff })
    }

    fn lock(&self, id: usize) -> Taken {
        self.with(id, |cpu| self.lock.lock(cpu))
    }

    fn unlock(&self, id: usize) {
        self.with(id, |cpu| self.lock.unlock(cpu));
    }

    /// CPU 1 takes the lock from CPU 0; returns all steps from its entry on.
    fn hand_over(&self, release: Cue) -> Vec<(usize, Step)> {
        self.lock(0);
        assert_eq!(self.steps.take(), [(0, Entering), (0, Step::Taken(0))]);
        self.release.set(Some(release));
        let taken = self.lock(1);
        assert_eq!((taken.slow, taken.halts), (true, self.halts.get()));
        let steps = self.steps.take();
        self.unlock(1);
        assert_eq!(self.steps.take(), [(1, Released)], "no CPU is left to kick");
        steps
    }

    fn cue(&self, cue: Cue) {
        if self.release.get() == Some(cue) {
            self.release.set(None);
            self.unlock(0);
        }
    }
}

fn told(ticket: Option<u16>) -> u16 {
    ticket.expect("large tickets are told")
}

fn next(count: &Cell<u32>) -> u32 {
    count.set(count.get() + 1);
    count.get()
}

impl<L> Actor<'_, L> {
    fn note(&self, step: Step) {
        self.stage.steps.borrow_mut().push((self.cpu, step));
    }

    fn is_ours(&self, lock: usize) {
        assert_eq!(lock, (&raw const self.stage.lock).addr());
    }
}

impl<L: RawLock + Default> Pv for Actor<'_, L> {
    fn spin_hint(&self) {
        let hint = next(&self.stage.hints);
        assert!(hint < PATIENCE, "the lock is never released");
        self.stage.cue(Cue::Hint(hint));
    }

    fn lock_spinning(&self, ticket: u16) {
        self.note(Halt(ticket));
        self.stage.cue(Cue::Halt(next(&self.stage.halts)));
    }

    fn unlock_kick(&self, cpu: usize) {
        self.note(Kick(cpu));
    }
}

impl<L: RawLock + Default> Watch for &Actor<'_, L> {
    fn entering(&self, _: Option<usize>) {
        self.note(Entering);
    }

    fn spinning(&self, lock: usize, ticket: u16) {
        self.is_ours(lock);
        self.note(Spinning(ticket));
    }

    fn spin_looks(&self) -> u32 {
        self.stage.spin_looks
    }

    fn spun_out(&self, ticket: Option<u16>) {
        self.note(SpunOut(told(ticket)));
    }

    fn halting(&self, ticket: Option<u16>) {
        self.note(Halting(told(ticket)));
    }

    fn resumed(&self, ticket: Option<u16>) {
        self.note(Resumed(told(ticket)));
    }

    fn taken(&self, lock: usize, ticket: Option<u16>) {
        self.is_ours(lock);
        self.note(Step::Taken(told(ticket)));
    }

    fn released(&self) {
        self.note(Released);
    }

    fn before_kick(&self, lock: usize, ticket: Option<u16>) {
        self.is_ours(lock);
        self.note(BeforeKick(told(ticket)));
    }

    fn kicked(&self) {
        self.note(Kicked);
    }

    fn reached(&self, place: Place) {
        self.note(Reached(place));
        self.stage.cue(Cue::At(place));
    }
}

/// CPU 1's steps of one halt with ticket 2, up to the halt.
const HALTS: [(usize, Step); 4] =
    [(1, Reached(BeforeFlag)), (1, Halting(2)), (1, Reached(FlagToHalt)), (1, Halt(2))];

/// CPU 0's release, when CPU 1 halts or is about to.
const KICKS: [(usize, Step); 5] =
    [(0, BeforeKick(2)), (0, Released), (0, Reached(ReleaseToKick)), (0, Kick(1)), (0, Kicked)];

/// CPU 1's first steps in every handoff.
const ENTERS: [(usize, Step); 2] = [(1, Entering), (1, Spinning(2))];

/// CPU 1's last step in every handoff.
const TAKES: [(usize, Step); 1] = [(1, Step::Taken(2))];

fn alone<L: RawLock + Default>() {
    let stage = Stage::<L>::new(0, 1);
    for ticket in [0, 2] {
        assert_eq!(stage.lock(5), Taken { ticket: Some(ticket), ..Taken::default() });
        stage.unlock(5);
        let steps = [(5, Entering), (5, Step::Taken(ticket)), (5, Released)];
        assert_eq!(stage.steps.take(), steps);
    }
}

#[test]
fn alone_a_lock_is_entered_taken_and_released() {
    alone::<NativeTicketLock>();
    alone::<PvTicketLock>();
}

#[test]
fn a_waiter_that_only_spins_never_halts() {
    let steps = [&ENTERS[..], &[(0, Released)], &TAKES].concat();
    assert_eq!(Stage::<NativeTicketLock>::new(0, 0).hand_over(Cue::Hint(3)), steps);
    assert_eq!(Stage::<PvTicketLock>::new(5, 0).hand_over(Cue::Hint(3)), steps);
}

#[test]
fn a_halt_and_its_kick_are_told_from_both_sides() {
    let steps = [&ENTERS[..], &HALTS, &KICKS, &[(1, Resumed(2))], &TAKES].concat();
    assert_eq!(Stage::<PvTicketLock>::new(2, 0).hand_over(Cue::Halt(1)), steps);
}

#[test]
fn a_kick_may_come_before_the_halt() {
    let (before, halt) = HALTS.split_at(3);
    let steps = [&ENTERS[..], before, &KICKS, halt, &[(1, Resumed(2))], &TAKES].concat();
    assert_eq!(Stage::<PvTicketLock>::new(2, 0).hand_over(Cue::At(FlagToHalt)), steps);
}

#[test]
fn a_release_before_the_flag_leaves_nothing_to_kick_and_no_halt() {
    let steps = [&ENTERS[..], &[(1, Reached(BeforeFlag)), (0, Released)], &TAKES].concat();
    assert_eq!(Stage::<PvTicketLock>::new(2, 0).hand_over(Cue::At(BeforeFlag)), steps);
}

#[test]
fn a_flag_without_a_waiter_is_told_but_no_cpu_is_kicked() {
    // Hints 1 and 2 come before the halt, which is spurious; 3 after it.
    let between = [(1, Resumed(2)), (0, BeforeKick(2)), (0, Released), (0, Kicked)];
    let steps = [&ENTERS[..], &HALTS, &between, &TAKES].concat();
    assert_eq!(Stage::<PvTicketLock>::new(2, 0).hand_over(Cue::Hint(3)), steps);
}

#[test]
fn a_waiter_is_spun_out_after_each_set_number_of_looks() {
    let spun = [(1, SpunOut(2))];
    let steps = [&ENTERS[..], &spun, &spun, &[(0, Released)], &TAKES].concat();
    assert_eq!(Stage::<NativeTicketLock>::new(0, 3).hand_over(Cue::Hint(7)), steps);
    assert_eq!(Stage::<PvTicketLock>::new(9, 3).hand_over(Cue::Hint(7)), steps);
    let steps = [&ENTERS[..], &spun, &[(0, Released)], &TAKES].concat();
    assert_eq!(Stage::<NativeTicketLock>::new(0, 3).hand_over(Cue::Hint(5)), steps);
}

#[test]
fn looks_before_a_halt_do_not_count_after_it() {
    let spun = [(1, SpunOut(2))];
    let resumed = [(1, Resumed(2))];
    let steps =
        [&ENTERS[..], &spun, &HALTS, &resumed, &spun, &HALTS, &KICKS, &resumed, &TAKES].concat();
    assert_eq!(Stage::<PvTicketLock>::new(5, 3).hand_over(Cue::Halt(2)), steps);
}

#[test]
fn a_waiter_that_halts_first_is_not_spun_out() {
    let steps = [&ENTERS[..], &HALTS, &KICKS, &[(1, Resumed(2))], &TAKES].concat();
    for spin_looks in [4, 5] {
        assert_eq!(Stage::<PvTicketLock>::new(4, spin_looks).hand_over(Cue::Halt(1)), steps);
    }
}
