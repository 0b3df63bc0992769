//! Looks after a user's guest from the event loop: one that prints nothing, one that has ended as no device sees, and one
//! that takes longer than it may.

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

/// Time between two looks, and between two looks for answers.
const PERIOD: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_millis(20);

/// The longest step between two looks that counts: beyond it, the process stood still.
const LONGEST_STEP: Duration = Duration::from_secs(2);

/// A guest that has printed nothing for so long is worth a line. Kernels with `quiet` print nothing until their init does,
/// and dozens of vCPUs on emulated CPUs take half a minute to boot.
const SILENCE: Duration = Duration::from_secs(60);

/// A kernel that does not reset so long after its panic does not reset at all.
const PANIC: Duration = Duration::from_secs(10);

/// No vCPU has run for so long: it may be that none ever will.
const STILL: Duration = Duration::from_secs(2);

/// Answers that have not come by then do not come.
const ANSWERED: Duration = Duration::from_secs(1);

/// How a guest is looked after.
#[derive(Debug, Clone, Copy)]
pub struct LookoutSpec {
    /// Is given lines for the user.
    pub notify: fn(&str),
    /// How long the machine may run.
    pub timeout: Option<Duration>,
}

/// Asked of all vCPUs for this reason.
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
    /// Times of the last look and the next.
    looked: Instant,
    next: Instant,
    started: Instant,
    /// Sum of the steps between looks, each limited.
    age: Duration,
    /// Exits and CPU time of each vCPU, and the age at which they last changed.
    work: Vec<(u64, Option<Nanos>)>,
    moved: Duration,
    /// The vCPUs were asked since, and can run again.
    is_asked: bool,
    /// By the last answers, the guest has ended.
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

    /// Time until the next look.
    pub(super) fn due_in(&self) -> Duration {
        let until = |at: Instant| at.saturating_duration_since(Instant::now());
        let next = until(self.next);
        self.end().map_or(next, |end| next.min(until(end)))
    }

    /// When the guest's time is up, if that is still to be seen.
    fn end(&self) -> Option<Instant> {
        let is_seen = matches!(self.question, Some((Question::TimeIsUp, _)));
        self.spec.timeout.filter(|_| !is_seen).map(|timeout| self.started + timeout)
    }

    /// Looks, if it is time.
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

    /// Is there a reason to ask?
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
                // Answers are not of one moment: all are asked twice.
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
        // The answers are no work of the guest.
        self.work = self.work();
    }

    fn tell(&mut self, line: &str) {
        self.has_notified = true;
        (self.spec.notify)(line);
    }
}
