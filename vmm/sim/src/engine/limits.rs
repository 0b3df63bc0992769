//! Early ends of a simulation: it makes no progress, or its owner stops it.

use std::fmt;
use std::sync::Arc;

use super::*;

/// Steps between two checks of the limits for up to [`FEW_VCPUS`] vCPUs: milliseconds on the host. With more vCPUs
/// a step may take proportionally longer, because the scheduler's account scans the waiters.
const CHECK_INTERVAL: u64 = 1 << 16;
const FEW_VCPUS: usize = 16;

/// Steps without a completed operation after which a simulation is stuck. The engine executes at least ten
/// million per second, so this takes less than a minute of host time. A working lock stays far below: most
/// spin iterations are skipped; the rest of a time slice has a few million steps.
const MAX_IDLE_STEPS: u64 = 1 << 28;
/// Additional steps per CPU: all CPUs may spin for a slice.
const IDLE_STEPS_PER_CPU: u64 = 1 << 20;

/// The reason why a simulation cannot continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Stuck {
    /// No vCPU has completed an operation for this long.
    #[error("no operation was completed for {0} of simulated time: a lost wakeup, or starvation")]
    NoProgress(Picos),
    /// All unfinished vCPUs halt, and no kick is pending.
    #[error("all vCPUs halt and no kick is pending: a lost wakeup")]
    AllHalt,
    /// The vCPUs executed this many steps without a completed operation.
    #[error("no operation was completed in {0} steps of the simulation: no progress")]
    NoSteps(u64),
    /// No operation was completed in this many seconds of the host's CPU time.
    #[error("no operation was completed in {0} s of this host's CPU time: no progress")]
    NoTime(u64),
    /// The simulation's [`Brake`] stopped it. Nothing is wrong with the simulation.
    #[error("stopped")]
    Stopped,
}

/// Stops simulations early. It can depend on the host's time and signals, which a simulation itself never
/// reads. The default never stops a simulation.
#[derive(Clone, Default)]
pub struct Brake(Option<Arc<dyn Fn(u64) -> Option<Stuck> + Send + Sync>>);

impl Brake {
    /// Stops simulations soon after `is_pulled` returns true. It is polled every few milliseconds.
    pub fn when(is_pulled: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self::watching(move |_| is_pulled().then_some(Stuck::Stopped))
    }

    /// Stops simulations soon after `end` returns a reason. It is called every few milliseconds with the
    /// number of completed operations plus finished vCPUs of a simulation.
    pub fn watching(end: impl Fn(u64) -> Option<Stuck> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(end)))
    }

    /// The reason to stop a simulation with `done` completed operations and finished vCPUs, if any.
    pub fn stop_reason(&self, done: u64) -> Option<Stuck> {
        self.0.as_ref().and_then(|end| end(done))
    }
}

impl fmt::Debug for Brake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Brake({})", if self.0.is_some() { "when" } else { "never" })
    }
}

/// The reason why a simulation has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopReason {
    /// The simulation must not continue.
    Stuck(Stuck),
    /// The simulation has counted the requested number of events; it can continue.
    EventLimit,
}

#[derive(Debug)]
pub(super) struct Limits {
    brake: Brake,
    /// Maximum number of steps without a completed operation.
    max_idle_steps: u64,
    /// Maximum number of counted events.
    max_events: u64,
    /// Completed operations plus finished vCPUs at their last observed increase, and the steps at that time.
    progress: (u64, u64),
    check_interval: u64,
    /// Number of events at the next check; zero after the end.
    pub(super) next_check: u64,
    /// Timer events. They count as steps, too.
    timers: u64,
    pub(super) end: Option<StopReason>,
}

impl Limits {
    pub(super) fn new(cpus: usize, vcpus: usize) -> Self {
        let check_interval = CHECK_INTERVAL / vcpus.div_ceil(FEW_VCPUS).max(1) as u64;
        Self {
            brake: Brake::default(),
            max_idle_steps: MAX_IDLE_STEPS + IDLE_STEPS_PER_CPU * cpus as u64,
            max_events: u64::MAX,
            progress: (0, 0),
            check_interval,
            next_check: check_interval,
            timers: 0,
            end: None,
        }
    }

    /// Checks the limits after `counted` non-timer events, with `done` operations and finished vCPUs.
    fn check(&mut self, counted: u64, done: u64) {
        let steps = counted + self.timers;
        self.next_check = (counted + self.check_interval).min(self.max_events);
        if done != self.progress.0 {
            self.progress = (done, steps);
        }
        let end = match self.brake.stop_reason(done) {
            Some(stuck) => Some(StopReason::Stuck(stuck)),
            None if steps - self.progress.1 >= self.max_idle_steps => {
                Some(StopReason::Stuck(Stuck::NoSteps(self.max_idle_steps)))
            }
            None if counted >= self.max_events => Some(StopReason::EventLimit),
            None => None,
        };
        if end.is_some() {
            (self.end, self.next_check) = (end, 0);
        }
    }
}

impl Sim {
    /// Makes the simulation end with the brake's reason when `brake` is pulled.
    pub fn set_brake(&mut self, brake: &Brake) {
        self.limits.brake = brake.clone();
    }

    /// Limits the steps without a completed operation to `steps`.
    pub(crate) fn limit_idle_steps(&mut self, steps: u64) {
        self.limits.max_idle_steps = steps;
    }

    /// Limits the total number of events to `events`; `u64::MAX`: no limit.
    pub(super) fn limit_events(&mut self, events: u64) {
        let limits = &mut self.limits;
        limits.max_events = events;
        if limits.end == Some(StopReason::EventLimit) {
            limits.end = None;
        }
        if limits.end.is_none() {
            limits.next_check = (self.num_events + limits.check_interval).min(events);
        }
    }

    /// Whether the simulation has to end. Called at [`Limits::next_check`], and by `count_timer`.
    #[cold]
    #[inline(never)]
    pub(super) fn is_at_limit(&mut self) -> bool {
        if self.limits.end.is_none() {
            let done = self.done();
            self.limits.check(self.num_events, done);
        }
        self.limits.end.is_some()
    }

    /// Counts a timer event. A simulation with timer events only could otherwise continue forever.
    pub(super) fn count_timer(&mut self) {
        let limits = &mut self.limits;
        limits.timers += 1;
        if limits.timers.is_multiple_of(limits.check_interval) {
            self.is_at_limit();
        }
    }

    /// Completed operations plus finished vCPUs.
    pub(super) fn done(&self) -> u64 {
        self.operations() + (self.vcpus.len() - self.unfinished) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first of 999 checks, `interval` events apart and with `done(check)` operations, that ends the run, or zero.
    fn checks(limits: &mut Limits, interval: u64, mut done: impl FnMut(u64) -> u64) -> u64 {
        (1..1_000)
            .find(|check| {
                limits.check(check * interval, done(*check));
                limits.end.is_some()
            })
            .unwrap_or_default()
    }

    #[test]
    fn idle_steps_are_limited() {
        let mut limits = Limits { max_idle_steps: 100, ..Limits::new(1, 1) };
        assert_eq!(checks(&mut limits, 10, |check| check / 9), 0, "one now and then is enough");
        let mut limits = Limits { max_idle_steps: 100, ..Limits::new(1, 1) };
        assert_eq!(checks(&mut limits, 10, |check| check.min(5)), 15);
        assert_eq!(limits.end, Some(StopReason::Stuck(Stuck::NoSteps(100))));
        assert_eq!(limits.next_check, 0, "it is asked at once from now on");
        assert!(Limits::new(1_024, 1).max_idle_steps > Limits::new(1, 1).max_idle_steps);
    }

    #[test]
    fn timer_events_count_as_idle_steps() {
        let mut limits = Limits { max_idle_steps: 100, timers: 100, ..Limits::new(1, 1) };
        limits.check(1, 0);
        assert_eq!(limits.end, Some(StopReason::Stuck(Stuck::NoSteps(100))));
    }

    #[test]
    fn a_brake_stops_a_progressing_simulation() {
        let brake = Brake::when(|| true);
        let mut limits = Limits { brake, ..Limits::new(1, 1) };
        assert_eq!(checks(&mut limits, 1, |check| check), 1);
        assert_eq!(limits.end, Some(StopReason::Stuck(Stuck::Stopped)));
        assert_eq!(Brake::default().stop_reason(0), None);
    }

    #[test]
    fn a_brake_receives_the_progress() {
        let brake = Brake::watching(|done| (done < 3).then_some(Stuck::NoTime(7)));
        let mut limits = Limits { brake, ..Limits::new(1, 1) };
        assert_eq!(checks(&mut limits, 1, |check| 5 - check), 3);
        assert_eq!(limits.end, Some(StopReason::Stuck(Stuck::NoTime(7))));
    }
}
