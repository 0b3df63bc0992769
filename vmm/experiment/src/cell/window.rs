//! The window of Linux guests' benchmarks. The VMM reads its counts at the same two moments as the
//! guests, and several machines enter their windows together through a barrier.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::{counters::MachineCounts, host_counts::HostCounts};
use machine::{
    clock::Moment,
    devices::bench::{Bench, BenchStep},
    driver::{Account, AccountDelta},
    vm::Schedule,
};
use study::timeline::TimeSpan;

/// The machines of a cell, at the barrier and in their windows.
#[derive(Debug)]
pub(super) struct WindowBarrier {
    schedule: Schedule,
    state: Mutex<BarrierState>,
}

#[derive(Debug, Default)]
struct BarrierState {
    guests: Vec<GuestWindow>,
    /// The schedule's account when the last machine began its window.
    open: Option<Account>,
    measured: AccountDelta,
    counts: MachineCounts,
    /// Locks taken within completed windows.
    taken: Option<u64>,
    span: Option<TimeSpan>,
}

impl BarrierState {
    /// Adds the locks that a machine took within its window, if its telemetry counts them.
    fn add_taken(&mut self, locks: Option<u64>) {
        if let Some(locks) = locks {
            self.taken = Some(self.taken.unwrap_or(0).saturating_add(locks));
        }
    }
}

/// The state of one machine.
#[derive(Debug, Default, Clone)]
struct GuestWindow {
    /// Number of barriers that it has reached.
    arrivals: u32,
    /// Number of windows that it has begun.
    begun: u32,
    /// Number of windows that it has ended.
    ended: u32,
    /// Whether the machine has ended. Barriers do not wait for it.
    exited: bool,
    /// The VMM's counts at the beginning of the window.
    before: Option<MachineCounts>,
    /// The host kernel's counts at the beginning of the window.
    host_before: Option<HostCounts>,
    /// The host kernel's counts within completed windows.
    host: Option<HostCounts>,
    /// Locks that it had taken at the beginning of the window.
    taken_before: Option<u64>,
}

impl GuestWindow {
    /// Saturating, because a guest may report any number of steps.
    fn arrive(&mut self) {
        self.arrivals = self.arrivals.saturating_add(1);
    }
}

/// The figures of the windows of all machines of a cell.
#[derive(Debug)]
pub(super) struct Windows {
    /// The schedule's sums while all machines were in their windows; zero unless it is ours.
    pub(super) schedule: AccountDelta,
    /// The VMM's counts, for each machine over its own window.
    pub(super) counts: MachineCounts,
    /// The host kernel's counts for each machine over its own window.
    pub(super) host: Vec<HostCounts>,
    /// Locks taken by the guests' kernels, for each over its own window, if their telemetry counts
    /// them.
    pub(super) taken: Option<u64>,
    /// From the beginning of the first window to the end of the last.
    pub(super) span: TimeSpan,
}

impl WindowBarrier {
    /// Creates the barrier of `vms` machines under `schedule`.
    pub(super) fn new(vms: usize, schedule: Schedule) -> Arc<Self> {
        let state =
            BarrierState { guests: vec![GuestWindow::default(); vms], ..BarrierState::default() };
        Arc::new(Self { schedule, state: Mutex::new(state) })
    }

    /// Returns the handle through which machine `vm` reports its steps.
    pub(super) fn handle(self: &Arc<Self>, vm: usize) -> Arc<dyn Bench> {
        Arc::new(BarrierHandle { barrier: self.clone(), vm })
    }

    /// Marks machine `vm` as ended.
    pub(super) fn mark_ended(&self, vm: usize) {
        self.lock().guests[vm].exited = true;
    }

    /// Whether all machines have arrived, and at least one is in its window.
    pub(super) fn is_measured(&self) -> bool {
        let guests = &self.lock().guests;
        guests.iter().all(|guest| guest.arrivals > 0)
            && guests.iter().any(|guest| guest.begun > guest.ended)
    }

    /// Returns the figures; None unless all machines have completed their windows.
    pub(super) fn windows(&self) -> Option<Windows> {
        let state = self.lock();
        let is_complete = |guest: &GuestWindow| guest.ended > 0 && guest.ended == guest.begun;
        let span = state.span.filter(|_| state.guests.iter().all(is_complete))?;
        let host = state.guests.iter().filter_map(|guest| guest.host.clone()).collect();
        let (schedule, counts, taken) = (state.measured.clone(), state.counts, state.taken);
        Some(Windows { schedule, counts, host, taken, span })
    }

    fn lock(&self) -> MutexGuard<'_, BarrierState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of locks that machine `vm` has taken so far, if known.
    pub(super) fn taken(&self, vm: usize) -> Option<u64> {
        self.schedule.acquisitions(vm)
    }

    fn begin_window(&self, vm: usize, counts: MachineCounts, host: HostCounts) {
        let taken = self.taken(vm);
        let mut state = self.lock();
        let now = Moment::now().nanos();
        let round = state.guests[vm].begun.saturating_add(1);
        let guest = &mut state.guests[vm];
        (guest.begun, guest.before, guest.taken_before) = (round, Some(counts), taken);
        guest.host_before = Some(host);
        state.span.get_or_insert(TimeSpan { from: now, to: now });
        // The last machine to begin: from now on all are in their windows.
        if state.guests.iter().all(|guest| guest.exited || guest.begun >= round) {
            state.open = self.schedule.account();
        }
    }

    fn end_window(&self, vm: usize, counts: MachineCounts, host: HostCounts) {
        let taken = self.taken(vm);
        let mut state = self.lock();
        // The first machine to end.
        if let Some((open, account)) = state.open.take().zip(self.schedule.account()) {
            state.measured += account.since(&open);
        }
        let guest = &mut state.guests[vm];
        guest.ended = guest.ended.saturating_add(1);
        guest.arrive();
        let before = guest.before.take();
        // Saturating: a guest's counts are untrusted and may go down.
        let since = taken.zip(guest.taken_before.take());
        let since = since.map(|(taken, before)| taken.saturating_sub(before));
        if let Some(before) = guest.host_before.take() {
            let counted = host.since(&before);
            guest.host =
                Some(guest.host.take().map_or_else(|| counted.clone(), |sum| sum.plus(&counted)));
        }
        if let Some(before) = before {
            state.counts += counts - before;
        }
        state.add_taken(since);
        if let Some(span) = &mut state.span {
            span.to = Moment::now().nanos();
        }
    }
}

#[derive(Debug)]
struct BarrierHandle {
    barrier: Arc<WindowBarrier>,
    vm: usize,
}

impl Bench for BarrierHandle {
    fn step(&self, step: BenchStep, counts: MachineCounts, host: HostCounts) {
        match step {
            BenchStep::Ready => self.barrier.lock().guests[self.vm].arrive(),
            BenchStep::Begins => self.barrier.begin_window(self.vm, counts, host),
            BenchStep::Ends => self.barrier.end_window(self.vm, counts, host),
        }
    }

    fn is_gate_open(&self) -> bool {
        let state = self.barrier.lock();
        let arrivals = state.guests[self.vm].arrivals;
        state.guests.iter().all(|guest| guest.exited || guest.arrivals >= arrivals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{
        counters::{Counts, FaultCounts},
        host_counts::ThreadTimes,
        units::Nanos,
    };

    fn exits(exits: u64) -> MachineCounts {
        MachineCounts { vcpus: Counts { exits, ..Counts::default() }, faults: None }
    }

    #[test]
    fn windows_start_and_end_at_the_barrier() {
        let barrier = WindowBarrier::new(2, Schedule::Host);
        let (a, b) = (barrier.handle(0), barrier.handle(1));
        a.step(BenchStep::Ready, exits(5), HostCounts::default());
        assert!(!a.is_gate_open());
        b.step(BenchStep::Ready, exits(5), HostCounts::default());
        assert!(a.is_gate_open() && b.is_gate_open() && !barrier.is_measured());
        a.step(BenchStep::Begins, exits(10), HostCounts::default());
        b.step(BenchStep::Begins, exits(100), HostCounts::default());
        assert!(barrier.is_measured());
        a.step(BenchStep::Ends, exits(11), HostCounts::default());
        assert!(!a.is_gate_open() && b.is_gate_open(), "b is still measured");
        assert!(barrier.windows().is_none());
        b.step(BenchStep::Ends, exits(102), HostCounts::default());
        assert!(a.is_gate_open() && b.is_gate_open());
        let windows = barrier.windows().unwrap();
        assert_eq!(windows.counts.vcpus.exits, 3, "each machine's in its own window");
        assert!(windows.span.from <= windows.span.to);
    }

    #[test]
    fn barrier_ignores_ended_machines() {
        let barrier = WindowBarrier::new(2, Schedule::Host);
        let a = barrier.handle(0);
        a.step(BenchStep::Ready, exits(0), HostCounts::default());
        assert!(!a.is_gate_open());
        barrier.mark_ended(1);
        assert!(a.is_gate_open());
    }

    #[test]
    fn windows_of_a_benchmark_add_up() {
        let barrier = WindowBarrier::new(1, Schedule::Host);
        let handle = barrier.handle(0);
        for (before, after) in [(10, 11), (50, 55)] {
            handle.step(BenchStep::Ready, exits(before), HostCounts::default());
            assert!(handle.is_gate_open());
            handle.step(BenchStep::Begins, exits(before), HostCounts::default());
            handle.step(BenchStep::Ends, exits(after), HostCounts::default());
        }
        assert_eq!(barrier.windows().unwrap().counts.vcpus.exits, 6);
    }

    /// Regression: faults were counted over the lifetime of a machine, and exceeded its kicks.
    #[test]
    fn faults_are_counted_over_the_kicks_window() {
        let counts = |unlock_kick, duplicated| MachineCounts {
            vcpus: Counts { unlock_kick, ..Counts::default() },
            faults: Some(FaultCounts { duplicated, ..FaultCounts::default() }),
        };
        let barrier = WindowBarrier::new(2, Schedule::Host);
        for (vm, before, after) in [(0, (100, 40), (300, 140)), (1, (7, 7), (27, 17))] {
            let handle = barrier.handle(vm);
            handle.step(BenchStep::Begins, counts(before.0, before.1), HostCounts::default());
            handle.step(BenchStep::Ends, counts(after.0, after.1), HostCounts::default());
        }
        assert_eq!(barrier.windows().unwrap().counts, counts(220, 110));
    }

    /// One machine has two windows; the host's kernel does not count the other machine.
    #[test]
    fn host_counts_are_per_machine() {
        let reading = |at, ran| HostCounts {
            window: Nanos(at),
            vcpus: vec![ThreadTimes { ran: Nanos(ran), ..ThreadTimes::default() }],
            ..HostCounts::default()
        };
        let barrier = WindowBarrier::new(2, Schedule::Host);
        let (a, b) = (barrier.handle(0), barrier.handle(1));
        for (from, to) in [((100, 10), (200, 60)), ((300, 80), (500, 90))] {
            a.step(BenchStep::Begins, exits(0), reading(from.0, from.1));
            a.step(BenchStep::Ends, exits(0), reading(to.0, to.1));
        }
        b.step(BenchStep::Begins, exits(0), HostCounts::default());
        b.step(BenchStep::Ends, exits(0), HostCounts::default());
        let host = barrier.windows().unwrap().host;
        assert_eq!(host, [reading(300, 60), HostCounts::default()]);
    }

    #[test]
    fn taken_locks_add_up_over_windows() {
        let mut state = BarrierState::default();
        state.add_taken(None);
        assert_eq!(state.taken, None, "no telemetry counts them");
        [Some(5), None, Some(7)].into_iter().for_each(|locks| state.add_taken(locks));
        assert_eq!(state.taken, Some(12));
    }

    #[test]
    fn silent_guest_has_no_window() {
        assert!(WindowBarrier::new(1, Schedule::Host).windows().is_none());
    }
}
