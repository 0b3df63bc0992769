//! Supervises a user's guest from the event loop: detects a guest that prints nothing, a guest that has ended
//! unnoticed by any device, and a timeout.

use std::{
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use crate::{
    devices::last_words::Order,
    vcpu::{
        Board, End,
        probe::{have_ended, in_words},
    },
};
use base::units::{Nanos, VcpuId};
use kvm::{signal, vcpu::VcpuState};

/// Time between two checks, and between two polls for answers.
const PERIOD: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_millis(20);

/// Longest step between two checks that counts. During a longer step the process was stopped.
const LONGEST_STEP: Duration = Duration::from_secs(2);

/// Time without output after which a guest is reported. Kernels with `quiet` print nothing until their init
/// does, and dozens of vCPUs on emulated CPUs take half a minute to boot.
const SILENCE: Duration = Duration::from_secs(60);

/// Time after a panic without a reset, after which the kernel is assumed not to reset.
const PANIC: Duration = Duration::from_secs(10);

/// Time without vCPU activity after which the guest may have ended.
const STILL: Duration = Duration::from_secs(2);

/// Timeout for answers.
const ANSWERED: Duration = Duration::from_secs(1);

/// Configuration of the supervision.
#[derive(Debug, Clone, Copy)]
pub struct LookoutSpec {
    /// Receives lines for the user.
    pub notify: fn(&str),
    /// Maximum run time of the machine.
    pub timeout: Option<Duration>,
}

/// The reason to query the state of all vCPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Question {
    HasEnded,
    Silent,
    Panicked,
    TimeIsUp,
}

/// The state of one machine's lookout.
#[derive(Debug)]
pub(super) struct Lookout {
    spec: LookoutSpec,
    board: Arc<Board>,
    /// Times of the last and the next check.
    looked: Instant,
    next: Instant,
    started: Instant,
    /// Sum of the steps between checks, each limited to `LONGEST_STEP`.
    age: Duration,
    /// Exits and CPU time of each vCPU, and the age at their last change.
    work: Vec<(u64, Option<Nanos>)>,
    moved: Duration,
    /// Whether the vCPUs were queried since that change and can still run.
    is_asked: bool,
    /// Whether the guest has ended according to the last answers.
    seems_over: bool,
    question: Option<(Question, Instant)>,
    panicked: Option<Duration>,
    has_notified: bool,
}

impl Lookout {
    pub(super) fn new(spec: LookoutSpec, board: Arc<Board>) -> Self {
        let now = Instant::now();
        Self {
            spec,
            board,
            looked: now,
            next: now + PERIOD,
            started: now,
            age: Duration::ZERO,
            work: Vec::new(),
            moved: Duration::ZERO,
            is_asked: false,
            seems_over: false,
            question: None,
            panicked: None,
            has_notified: false,
        }
    }

    /// Returns the time until the next check.
    pub(super) fn due_in(&self) -> Duration {
        let until = |at: Instant| at.saturating_duration_since(Instant::now());
        let next = until(self.next);
        self.end().map_or(next, |end| next.min(until(end)))
    }

    /// Returns the guest's deadline, unless it is already being handled.
    fn end(&self) -> Option<Instant> {
        let is_seen = matches!(self.question, Some((Question::TimeIsUp, _)));
        self.spec.timeout.filter(|_| !is_seen).map(|timeout| self.started + timeout)
    }

    /// Checks the guest, if a check is due.
    pub(super) fn look(&mut self, threads: &[(VcpuId, JoinHandle<()>)]) {
        let now = Instant::now();
        if self.end().is_some_and(|end| now >= end) {
            return self.ask(Question::TimeIsUp, now, threads);
        }
        if now < self.next {
            return;
        }
        self.next = now + PERIOD;
        self.age += now.saturating_duration_since(self.looked).min(LONGEST_STEP);
        self.looked = now;
        match self.question {
            Some((question, since)) => {
                let states = self.board.probe.answers();
                if states.iter().all(Option::is_some) || now >= since + ANSWERED {
                    self.question = None;
                    self.conclude(question, &states);
                } else {
                    self.next = now + SOON;
                }
            }
            None => {
                if let Some(question) = self.doubt() {
                    self.ask(question, now, threads);
                }
            }
        }
    }

    /// Returns a reason to query the vCPUs, if there is any.
    fn doubt(&mut self) -> Option<Question> {
        let work = self.work();
        if work != self.work {
            (self.is_asked, self.seems_over) = (false, false);
            (self.work, self.moved) = (work, self.age);
        }
        let words = &self.board.devices.words;
        self.panicked = words.panic().map(|_| self.panicked.unwrap_or(self.age));
        if !self.has_notified {
            if self.panicked.is_some_and(|since| self.age >= since + PANIC) {
                return Some(Question::Panicked);
            }
            let is_silent = !words.has_spoken() && self.board.devices.events.init_time().is_none();
            if is_silent && self.age >= SILENCE {
                return Some(Question::Silent);
            }
        }
        let is_still = self.age >= self.moved + STILL && !self.is_asked;
        is_still.then_some(Question::HasEnded)
    }

    fn work(&self) -> Vec<(u64, Option<Nanos>)> {
        let of_one =
            |counts: (usize, u64)| (counts.1, self.board.host.cpu_time(VcpuId(counts.0 as u32)));
        self.exits().into_iter().enumerate().map(of_one).collect()
    }

    fn exits(&self) -> Vec<u64> {
        self.board.counts().iter().map(|counts| counts.exits).collect()
    }

    fn ask(&mut self, question: Question, now: Instant, threads: &[(VcpuId, JoinHandle<()>)]) {
        self.board.probe.ask();
        threads.iter().for_each(|(_, thread)| signal::kick(thread));
        self.question = Some((question, now));
        self.next = now + SOON;
    }

    fn conclude(&mut self, question: Question, states: &[Option<VcpuState>]) {
        let words = in_words(states, &self.exits());
        match question {
            Question::HasEnded => {
                let is_over = have_ended(states);
                if is_over && self.seems_over {
                    let ordered = self.board.devices.words.order() == Some(Order::Halt);
                    self.board.life.finish(End::Halted { ordered });
                }
                // The answers are not from a single moment, so all vCPUs are queried twice.
                self.seems_over = is_over;
                self.is_asked = !is_over;
            }
            Question::Silent => {
                let seconds = SILENCE.as_secs();
                self.tell(&format!("the guest has printed nothing for {seconds} s: {words}"));
            }
            Question::Panicked => {
                self.tell(&format!("the guest's kernel panicked, and does not restart: {words}"));
            }
            Question::TimeIsUp => self.board.life.finish(End::TimedOut(words)),
        }
        // Answering the query does not count as guest activity.
        self.work = self.work();
    }

    fn tell(&mut self, line: &str) {
        self.has_notified = true;
        (self.spec.notify)(line);
    }
}
