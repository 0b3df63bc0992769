//! Supervises a user's guest from the event loop: detects a guest that prints nothing, a guest that has ended
//! unnoticed by any device, and a timeout.

use std::{
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use crate::{
    devices::{Devices, console_monitor::RequestedEnd},
    vcpu::{
        End, VcpuShared,
        probe::{describe, have_ended},
    },
};
use base::units::{Nanos, VcpuId};
use kvm::{signal, vcpu::VcpuState};

/// Time between two checks, and between two polls for answers.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
const ANSWER_POLL: Duration = Duration::from_millis(20);

/// Maximum time that counts between two checks. If more has passed, the process was stopped.
const MAX_STEP: Duration = Duration::from_secs(2);

/// Time without output after which a guest is reported. Kernels with `quiet` print nothing until their init
/// does, and dozens of vCPUs on emulated CPUs take half a minute to boot.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// Time after a panic without a reset, after which the kernel is assumed not to reset.
const PANIC_TIMEOUT: Duration = Duration::from_secs(10);

/// Time without vCPU activity after which the guest may have ended.
const IDLE_TIMEOUT: Duration = Duration::from_secs(2);

/// Timeout for answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Configuration of the supervision.
#[derive(Debug, Clone, Copy)]
pub struct WatcherSpec {
    /// Receives lines for the user.
    pub notify: fn(&str),
    /// Maximum run time of the machine.
    pub timeout: Option<Duration>,
}

/// The reason to query the state of all vCPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Query {
    HasEnded,
    Silent,
    Panicked,
    TimedOut,
}

#[derive(Debug)]
pub(super) struct Watcher {
    spec: WatcherSpec,
    shared: Arc<VcpuShared>,
    /// Times of the last and the next check.
    last_check: Instant,
    next_check: Instant,
    started: Instant,
    /// Sum of the steps between checks, each limited to `MAX_STEP`.
    age: Duration,
    /// Exits and CPU time of each vCPU, and the age at their last change.
    work: Vec<(u64, Option<Nanos>)>,
    active_at: Duration,
    /// Whether the vCPUs were queried since that change and can still run.
    is_runnable: bool,
    /// Whether the guest has ended according to the last answers.
    seems_ended: bool,
    query: Option<(Query, Instant)>,
    panicked_at: Option<Duration>,
    has_notified: bool,
}

impl Watcher {
    pub(super) fn new(spec: WatcherSpec, shared: Arc<VcpuShared>) -> Self {
        let now = Instant::now();
        Self {
            spec,
            shared,
            last_check: now,
            next_check: now + CHECK_INTERVAL,
            started: now,
            age: Duration::ZERO,
            work: Vec::new(),
            active_at: Duration::ZERO,
            is_runnable: false,
            seems_ended: false,
            query: None,
            panicked_at: None,
            has_notified: false,
        }
    }

    /// Returns the time until the next check.
    pub(super) fn due_in(&self) -> Duration {
        let until = |at: Instant| at.saturating_duration_since(Instant::now());
        let next_check = until(self.next_check);
        self.deadline().map_or(next_check, |deadline| next_check.min(until(deadline)))
    }

    /// Returns the guest's deadline, unless it is already being handled.
    fn deadline(&self) -> Option<Instant> {
        let is_seen = matches!(self.query, Some((Query::TimedOut, _)));
        self.spec.timeout.filter(|_| !is_seen).map(|timeout| self.started + timeout)
    }

    /// Checks the guest, if a check is due.
    pub(super) fn check(&mut self, threads: &[(VcpuId, JoinHandle<()>)]) {
        let now = Instant::now();
        if self.deadline().is_some_and(|deadline| now >= deadline) {
            return self.send_query(Query::TimedOut, now, threads);
        }
        if now < self.next_check {
            return;
        }
        self.next_check = now + CHECK_INTERVAL;
        self.age += now.saturating_duration_since(self.last_check).min(MAX_STEP);
        self.last_check = now;
        match self.query {
            Some((query, since)) => {
                let states = self.shared.probe.answers();
                if states.iter().all(Option::is_some) || now >= since + ANSWER_TIMEOUT {
                    self.query = None;
                    self.conclude(query, &states);
                } else {
                    self.next_check = now + ANSWER_POLL;
                }
            }
            None => {
                if let Some(query) = self.reason_to_query() {
                    self.send_query(query, now, threads);
                }
            }
        }
    }

    /// Returns a reason to query the vCPUs, if there is any.
    fn reason_to_query(&mut self) -> Option<Query> {
        let work = self.work();
        if work != self.work {
            (self.is_runnable, self.seems_ended) = (false, false);
            (self.work, self.active_at) = (work, self.age);
        }
        let Devices { monitor, events, .. } = &self.shared.devices;
        self.panicked_at = monitor.panic().map(|_| self.panicked_at.unwrap_or(self.age));
        if !self.has_notified {
            if self.panicked_at.is_some_and(|since| self.age >= since + PANIC_TIMEOUT) {
                return Some(Query::Panicked);
            }
            let is_silent = !monitor.has_output() && events.init_time().is_none();
            if is_silent && self.age >= SILENCE_TIMEOUT {
                return Some(Query::Silent);
            }
        }
        let is_still = self.age >= self.active_at + IDLE_TIMEOUT && !self.is_runnable;
        is_still.then_some(Query::HasEnded)
    }

    fn work(&self) -> Vec<(u64, Option<Nanos>)> {
        let vcpu_work =
            |counts: (usize, u64)| (counts.1, self.shared.host.cpu_time(VcpuId(counts.0 as u32)));
        self.exits().into_iter().enumerate().map(vcpu_work).collect()
    }

    fn exits(&self) -> Vec<u64> {
        self.shared.counts().iter().map(|counts| counts.exits).collect()
    }

    fn send_query(&mut self, query: Query, now: Instant, threads: &[(VcpuId, JoinHandle<()>)]) {
        self.shared.probe.query();
        threads.iter().for_each(|(_, thread)| signal::kick(thread));
        self.query = Some((query, now));
        self.next_check = now + ANSWER_POLL;
    }

    fn conclude(&mut self, query: Query, states: &[Option<VcpuState>]) {
        let vcpus = describe(states, &self.exits());
        match query {
            Query::HasEnded => {
                let has_ended = have_ended(states);
                if has_ended && self.seems_ended {
                    let requested =
                        self.shared.devices.monitor.requested_end() == Some(RequestedEnd::Halt);
                    self.shared.life.finish(End::Halted { requested });
                }
                // The answers are not from a single moment, so all vCPUs are queried twice.
                self.seems_ended = has_ended;
                self.is_runnable = !has_ended;
            }
            Query::Silent => {
                let seconds = SILENCE_TIMEOUT.as_secs();
                self.notify(&format!("the guest has printed nothing for {seconds} s: {vcpus}"));
            }
            Query::Panicked => {
                self.notify(&format!("the guest's kernel panicked and does not restart: {vcpus}"));
            }
            Query::TimedOut => self.shared.life.finish(End::TimedOut(vcpus)),
        }
        // Answering the query does not count as guest activity.
        self.work = self.work();
    }

    fn notify(&mut self, line: &str) {
        self.has_notified = true;
        (self.spec.notify)(line);
    }
}
