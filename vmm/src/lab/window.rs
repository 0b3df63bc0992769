//! The window of Linux guests' benchmarks: what the VMM counts between the two moments between
//! which the guests count, and the gate through which several machines go together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{live::Phase, timeline::Span};
use crate::{
    clock::Moment,
    machine::{
        bench::{Bench, Step},
        counters::MachineCounts,
    },
    sched::{
        Driver,
        driver::{Account, Measured},
    },
};

/// The machines of a run, and what has been measured of them.
#[derive(Debug)]
pub(super) struct Gathering {
    schedule: Option<Arc<Driver>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    guests: Vec<Guest>,
    /// Since all windows are open.
    open: Option<Account>,
    measured: Measured,
    counts: MachineCounts,
    /// Locks taken in the windows that have ended.
    taken: Option<u64>,
    span: Option<Span>,
}

/// One machine.
#[derive(Debug, Default, Clone)]
struct Guest {
    /// Steps at which it waited, or waits, for the others.
    arrivals: u32,
    /// Windows that have begun,
    begun: u32,
    /// and that have ended.
    ended: u32,
    /// It has ended: nobody waits for it.
    gone: bool,
    /// At the beginning of the window,
    before: Option<MachineCounts>,
    /// and how many locks it had taken then.
    taken_before: Option<u64>,
}

impl Guest {
    /// What a guest writes is no reason to overflow.
    fn arrive(&mut self) {
        self.arrivals = self.arrivals.saturating_add(1);
    }
}

/// What was measured in the windows of all machines of a run.
#[derive(Debug)]
pub(super) struct Windows {
    /// What the schedule did while all machines were measured, if it is ours.
    pub(super) schedule: Measured,
    /// What the VMM counted, of each machine in its own window.
    pub(super) counts: MachineCounts,
    /// Locks that the guests' kernels took, of each in its own window, if their telemetry counts them.
    pub(super) taken: Option<u64>,
    /// From the first beginning to the last end.
    pub(super) span: Span,
}

impl Gathering {
    /// Of so many machines under that schedule, if it is one of ours.
    pub(super) fn new(vms: usize, schedule: Option<Arc<Driver>>) -> Arc<Self> {
        let state = State { guests: vec![Guest::default(); vms], ..State::default() };
        Arc::new(Self { schedule, state: Mutex::new(state) })
    }

    /// Where machine number `vm` announces its steps.
    pub(super) fn seat(self: &Arc<Self>, vm: usize) -> Arc<dyn Bench> {
        Arc::new(Seat { gathering: self.clone(), vm })
    }

    /// Machine number `vm` has ended.
    pub(super) fn gone(&self, vm: usize) {
        self.lock().guests[vm].gone = true;
    }

    /// How far the machines are.
    pub(super) fn phase(&self) -> Phase {
        let state = self.lock();
        let any = |is: fn(&Guest) -> bool| state.guests.iter().any(is);
        if any(|guest| guest.arrivals == 0) {
            Phase::Boot
        } else if any(|guest| guest.begun > guest.ended) {
            Phase::Measured
        } else if any(|guest| guest.begun == 0) {
            Phase::WarmUp
        } else {
            Phase::Running
        }
    }

    /// What was measured; None: not all of the machines have announced a window.
    pub(super) fn windows(&self) -> Option<Windows> {
        let state = self.lock();
        let is_whole = |guest: &Guest| guest.ended > 0 && guest.ended == guest.begun;
        let span = state.span.filter(|_| state.guests.iter().all(is_whole))?;
        Some(Windows { schedule: state.measured, counts: state.counts, taken: state.taken, span })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks that machine number `vm` has taken until now.
    fn taken(&self, vm: usize) -> Option<u64> {
        self.schedule.as_ref()?.taken(vm)
    }

    fn begins(&self, vm: usize, counts: MachineCounts) {
        let taken = self.taken(vm);
        let mut state = self.lock();
        let now = Moment::now().reading();
        let round = state.guests[vm].begun.saturating_add(1);
        let guest = &mut state.guests[vm];
        (guest.begun, guest.before, guest.taken_before) = (round, Some(counts), taken);
        state.span.get_or_insert(Span { from: now, to: now });
        // The last to begin: from here on all are measured.
        if state.guests.iter().all(|guest| guest.gone || guest.begun >= round) {
            state.open = self.schedule.as_ref().map(|schedule| schedule.account());
        }
    }

    fn ends(&self, vm: usize, counts: MachineCounts) {
        let taken = self.taken(vm);
        let mut state = self.lock();
        // The first to end.
        if let Some((open, schedule)) = state.open.take().zip(self.schedule.as_ref()) {
            state.measured += schedule.account().since(&open);
        }
        let guest = &mut state.guests[vm];
        guest.ended = guest.ended.saturating_add(1);
        guest.arrive();
        let before = guest.before.take();
        // Saturating: what a guest writes need not grow.
        let since = taken.zip(guest.taken_before.take());
        let since = since.map(|(taken, before)| taken.saturating_sub(before));
        if let Some(before) = before {
            state.counts += counts - before;
        }
        if let Some(since) = since {
            state.taken = Some(state.taken.unwrap_or(0).saturating_add(since));
        }
        if let Some(span) = &mut state.span {
            span.to = Moment::now().reading();
        }
    }
}

#[derive(Debug)]
struct Seat {
    gathering: Arc<Gathering>,
    vm: usize,
}

impl Bench for Seat {
    fn step(&self, step: Step, counts: MachineCounts) {
        match step {
            Step::Ready => self.gathering.lock().guests[self.vm].arrive(),
            Step::Begins => self.gathering.begins(self.vm, counts),
            Step::Ends => self.gathering.ends(self.vm, counts),
        }
    }

    fn is_open(&self) -> bool {
        let state = self.gathering.lock();
        let own = state.guests[self.vm].arrivals;
        state.guests.iter().all(|guest| guest.gone || guest.arrivals >= own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::counters::{Counts, FaultCounts};

    fn exits(exits: u64) -> MachineCounts {
        MachineCounts { vcpus: Counts { exits, ..Counts::default() }, faults: None }
    }

    #[test]
    fn no_machine_begins_before_all_are_ready_nor_stops_before_all_have_ended() {
        let gathering = Gathering::new(2, None);
        let (a, b) = (gathering.seat(0), gathering.seat(1));
        a.step(Step::Ready, exits(5));
        assert!(!a.is_open() && gathering.phase() == Phase::Boot);
        b.step(Step::Ready, exits(5));
        assert!(a.is_open() && b.is_open() && gathering.phase() == Phase::WarmUp);
        a.step(Step::Begins, exits(10));
        b.step(Step::Begins, exits(100));
        assert_eq!(gathering.phase(), Phase::Measured);
        a.step(Step::Ends, exits(11));
        assert!(!a.is_open() && b.is_open(), "b is still measured");
        assert!(gathering.windows().is_none());
        b.step(Step::Ends, exits(102));
        assert!(a.is_open() && b.is_open());
        let windows = gathering.windows().unwrap();
        assert_eq!(windows.counts.vcpus.exits, 3, "each machine's in its own window");
        assert!(windows.span.from <= windows.span.to);
    }

    #[test]
    fn nobody_waits_for_a_machine_that_has_ended() {
        let gathering = Gathering::new(2, None);
        let a = gathering.seat(0);
        a.step(Step::Ready, exits(0));
        assert!(!a.is_open());
        gathering.gone(1);
        assert!(a.is_open());
    }

    #[test]
    fn the_windows_of_a_benchmark_in_parts_add_up() {
        let gathering = Gathering::new(1, None);
        let seat = gathering.seat(0);
        for (before, after) in [(10, 11), (50, 55)] {
            seat.step(Step::Ready, exits(before));
            assert!(seat.is_open());
            seat.step(Step::Begins, exits(before));
            seat.step(Step::Ends, exits(after));
        }
        assert_eq!(gathering.windows().unwrap().counts.vcpus.exits, 6);
    }

    /// Wrong before: faults were those of the whole life of a machine, and more than its kicks.
    #[test]
    fn faults_are_counted_over_the_window_of_the_kicks() {
        let counts = |unlock_kick, duplicated| MachineCounts {
            vcpus: Counts { unlock_kick, ..Counts::default() },
            faults: Some(FaultCounts { duplicated, ..FaultCounts::default() }),
        };
        let gathering = Gathering::new(2, None);
        for (vm, before, after) in [(0, (100, 40), (300, 140)), (1, (7, 7), (27, 17))] {
            let seat = gathering.seat(vm);
            seat.step(Step::Begins, counts(before.0, before.1));
            seat.step(Step::Ends, counts(after.0, after.1));
        }
        assert_eq!(gathering.windows().unwrap().counts, counts(220, 110));
    }

    #[test]
    fn a_guest_that_announces_nothing_has_no_window() {
        assert!(Gathering::new(1, None).windows().is_none());
    }
}
