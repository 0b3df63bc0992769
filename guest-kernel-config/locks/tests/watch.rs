//! The order of the steps that an observer sees. One thread runs all CPUs: CPU 0 holds the lock and
//! releases it from a hint, a halt or a step of CPU 1.

use std::cell::{Cell, RefCell};
use std::fmt::Display;

use locks::{
    Acquisition, Cpu, Handoff, NativeTicketLock, Place, Pv, PvTicketLock, RawLock, WaitTable, Watch,
};

use Place::{BeforeFlag, FlagToHalt};

/// Limit on the hints of a wait: beyond it, the planned release has been missed.
const MAX_HINTS: u32 = 1000;

/// CPU 0 releases the lock at the hint or halt with this number, or at a place.
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
    spin_limit: u32,
    release: Cell<Option<Cue>>,
    hints: Cell<u32>,
    halts: Cell<u32>,
    steps: RefCell<Vec<String>>,
}

/// A CPU's halt and kick, and its observer.
struct Actor<'a, L> {
    cpu: usize,
    stage: &'a Stage<L>,
}

impl<L: RawLock + Default> Stage<L> {
    fn new(spin_threshold: u32, spin_limit: u32) -> Self {
        Self {
            lock: L::default(),
            waiters: WaitTable::new(),
            spin_threshold,
            spin_limit,
            release: Cell::default(),
            hints: Cell::default(),
            halts: Cell::default(),
            steps: RefCell::default(),
        }
    }

    fn with<R>(&self, id: usize, act: impl Fn(&Cpu<'_, Actor<'_, L>, &Actor<'_, L>>) -> R) -> R {
        let actor = Actor { cpu: id, stage: self };
        let Self { waiters, spin_threshold, .. } = self;
        let (spin_threshold, handoff) = (*spin_threshold, Handoff::default());
        act(&Cpu { id, spin_threshold, pv: &actor, waiters, watch: &actor, handoff })
    }

    fn lock(&self, id: usize) -> Acquisition {
        self.with(id, |cpu| self.lock.lock(cpu))
    }

    fn unlock(&self, id: usize) {
        self.with(id, |cpu| self.lock.unlock(cpu));
    }

    fn cue(&self, cue: Cue) {
        if self.release.get() == Some(cue) {
            self.release.set(None);
            self.unlock(0);
        }
    }
}

/// CPU 1 takes the lock from CPU 0. Returns the steps between CPU 1's first two and its last.
fn hand_over<L: RawLock + Default>(threshold: u32, spins: u32, release: Cue) -> Vec<String> {
    let stage = Stage::<L>::new(threshold, spins);
    stage.lock(0);
    assert_eq!(stage.steps.take(), ["0 enters", "0 takes 0"]);
    stage.release.set(Some(release));
    let taken = stage.lock(1);
    assert_eq!((taken.slow, taken.halts), (true, stage.halts.get()));
    let mut steps = stage.steps.take();
    assert_eq!(steps.drain(..2).as_slice(), ["1 enters", "1 spins 2"]);
    assert_eq!(steps.pop().as_deref(), Some("1 takes 2"));
    stage.unlock(1);
    assert_eq!(stage.steps.take(), ["1 releases"], "no CPU is left to kick");
    steps
}

fn next(count: &Cell<u32>) -> u32 {
    count.set(count.get() + 1);
    count.get()
}

impl<L> Actor<'_, L> {
    fn note(&self, step: impl Display) {
        self.stage.steps.borrow_mut().push(format!("{} {step}", self.cpu));
    }

    fn note_ticket(&self, step: &str, ticket: Option<u16>) {
        self.note(format_args!("{step} {}", ticket.expect("large tickets are passed")));
    }

    fn check_lock(&self, lock: usize) {
        assert_eq!(lock, (&raw const self.stage.lock).addr());
    }
}

impl<L: RawLock + Default> Pv for Actor<'_, L> {
    fn spin_hint(&self) {
        let hint = next(&self.stage.hints);
        assert!(hint < MAX_HINTS, "the lock is never released");
        self.stage.cue(Cue::Hint(hint));
    }

    fn lock_spinning(&self, ticket: u16) {
        self.note_ticket("halts", Some(ticket));
        self.stage.cue(Cue::Halt(next(&self.stage.halts)));
    }

    fn unlock_kick(&self, cpu: usize) {
        self.note(format_args!("kicks {cpu}"));
    }
}

impl<L: RawLock + Default> Watch for &Actor<'_, L> {
    fn entering(&self, _: Option<usize>) {
        self.note("enters");
    }

    fn spinning(&self, lock: usize, ticket: u16) {
        self.check_lock(lock);
        self.note_ticket("spins", Some(ticket));
    }

    fn spin_limit(&self) -> u32 {
        self.stage.spin_limit
    }

    fn spun_out(&self, ticket: Option<u16>) {
        self.note_ticket("spun out", ticket);
    }

    fn halting(&self, ticket: Option<u16>) {
        self.note_ticket("halting", ticket);
    }

    fn resumed(&self, ticket: Option<u16>) {
        self.note_ticket("resumed", ticket);
    }

    fn taken(&self, lock: usize, ticket: Option<u16>) {
        self.check_lock(lock);
        self.note_ticket("takes", ticket);
    }

    fn released(&self) {
        self.note("releases");
    }

    fn before_kick(&self, lock: usize, ticket: Option<u16>) {
        self.check_lock(lock);
        self.note_ticket("before kick", ticket);
    }

    fn kicked(&self) {
        self.note("kicked");
    }

    fn reached(&self, place: Place) {
        self.note(format_args!("{place:?}"));
        self.stage.cue(Cue::At(place));
    }
}

/// CPU 1's steps of one halt with ticket 2, up to the halt.
const HALTS: [&str; 4] = ["1 BeforeFlag", "1 halting 2", "1 FlagToHalt", "1 halts 2"];

/// CPU 0's release, when CPU 1 halts or is about to halt.
const KICKS: [&str; 5] =
    ["0 before kick 2", "0 releases", "0 ReleaseToKick", "0 kicks 1", "0 kicked"];

const RELEASES: [&str; 1] = ["0 releases"];
const RESUMED: [&str; 1] = ["1 resumed 2"];
const SPUN: [&str; 1] = ["1 spun out 2"];

#[test]
fn uncontended_steps_are_observed_in_order() {
    fn alone<L: RawLock + Default>() {
        let stage = Stage::<L>::new(0, 1);
        for ticket in [0, 2] {
            let expected = Acquisition { ticket: Some(ticket), ..Acquisition::default() };
            assert_eq!(stage.lock(5), expected);
            stage.unlock(5);
            let steps = ["5 enters".into(), format!("5 takes {ticket}"), "5 releases".into()];
            assert_eq!(stage.steps.take(), steps);
        }
    }
    alone::<NativeTicketLock>();
    alone::<PvTicketLock>();
}

#[test]
fn a_native_waiter_spins_out_at_each_limit() {
    for (spins, hint, steps) in
        [(0, 3, vec![RELEASES]), (3, 7, vec![SPUN, SPUN, RELEASES]), (3, 5, vec![SPUN, RELEASES])]
    {
        let observed = hand_over::<NativeTicketLock>(0, spins, Cue::Hint(hint));
        assert_eq!(observed, steps.concat(), "{spins} {hint}");
    }
}

#[test]
fn pv_halts_and_kicks_are_observed_in_order() {
    let (before, halt) = HALTS.split_at(3);
    let once = [&HALTS[..], &KICKS, &RESUMED].concat();
    for (threshold, spins, cue, steps) in [
        (5, 0, Cue::Hint(3), RELEASES.to_vec()),
        (2, 0, Cue::Halt(1), once.clone()),
        // The kick comes before the halt.
        (2, 0, Cue::At(FlagToHalt), [before, &KICKS, halt, &RESUMED].concat()),
        // A release before the flag leaves nothing to kick, and no halt.
        (2, 0, Cue::At(BeforeFlag), vec!["1 BeforeFlag", "0 releases"]),
        // A flag without a waiter: hints 1 and 2 come before the halt, which returns spuriously; 3 after it.
        (
            2,
            0,
            Cue::Hint(3),
            [&HALTS[..], &RESUMED, &["0 before kick 2", "0 releases", "0 kicked"]].concat(),
        ),
        (9, 3, Cue::Hint(7), [SPUN, SPUN, RELEASES].concat()),
        // Spin iterations before a halt do not count after it.
        (5, 3, Cue::Halt(2), [&SPUN[..], &HALTS, &RESUMED, &SPUN, &once].concat()),
        // A waiter that halts first is not spun out.
        (4, 4, Cue::Halt(1), once.clone()),
        (4, 5, Cue::Halt(1), once.clone()),
    ] {
        let observed = hand_over::<PvTicketLock>(threshold, spins, cue);
        assert_eq!(observed, steps, "{threshold} {spins} {cue:?}");
    }
}
