//! Counts the acquisitions by others between a waiter's start and its own acquisition.

use fastrand::Rng;
use sim_cell::{Answer, Mark, Request, Work};

use crate::LOCKS;
use crate::machine::{Fate, Harness};

/// A duration in steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepDuration {
    /// Always this many.
    Fixed(u32),
    /// Uniformly from zero to twice as many.
    About(u32),
}

impl StepDuration {
    fn draw(self, rng: &mut Rng) -> u32 {
        match self {
            Self::Fixed(steps) => steps,
            Self::About(mean) => rng.u32(0..=2 * mean),
        }
    }
}

/// What the vCPUs do with the lock: think, acquire, work, release, again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepperLoad {
    /// Total acquisitions, at least.
    pub acquisitions: u64,
    /// Number of locks, which each vCPU takes in turn: up to [`LOCKS`].
    pub locks: usize,
    /// Steps between two acquisitions of a vCPU.
    pub think: StepDuration,
    /// Steps with the lock held.
    pub critical: StepDuration,
}

/// The most acquisitions by others before a waiter's own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bypassed {
    /// From the waiter's first step in `lock`.
    pub from_call: u64,
    /// From the moment at which it was in line: from `Watch::spinning` or `Watch::queued`.
    pub in_line: u64,
    /// For waiters outside of a queue: from the moment at which they were outside, without
    /// acquisitions between the kick that lets them in and their ticket. That delay depends on the
    /// host.
    pub outside: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct WaiterProgress {
    /// The vCPU's next step is the first one in `lock`.
    is_entering: bool,
    /// The vCPU has made that step.
    is_waiting: bool,
    /// Number of acquisitions when it was outside of the queue.
    outside: Option<u64>,
    /// Number of acquisitions when it was woken there; cleared when it has its ticket.
    woken: Option<u64>,
    /// The vCPU's next step draws its ticket.
    is_drawing: bool,
    /// Acquisitions between these two.
    excused: u64,
    /// Number of acquisitions when it made its first step.
    called: u64,
    /// Number of acquisitions when it was in line.
    in_line: Option<u64>,
}

/// A harness that counts bypasses.
#[derive(Debug)]
pub struct BypassCounter {
    load: StepperLoad,
    rng: Rng,
    waits: Vec<WaiterProgress>,
    acquisitions: u64,
    /// Acquisitions of each lock.
    per_lock: [u64; LOCKS],
    each: Vec<u64>,
    inside: [Option<usize>; LOCKS],
    most: Bypassed,
    /// Acquisitions while another vCPU held the lock.
    violations: u64,
}

impl BypassCounter {
    /// For `vcpus` vCPUs with this load; random times are drawn from `seed`.
    pub fn new(load: StepperLoad, vcpus: usize, seed: u64) -> Self {
        Self {
            load,
            rng: Rng::with_seed(seed),
            waits: vec![WaiterProgress::default(); vcpus],
            acquisitions: 0,
            per_lock: [0; LOCKS],
            each: vec![0; vcpus],
            inside: [None; LOCKS],
            most: Bypassed::default(),
            violations: 0,
        }
    }

    /// Acquisitions so far.
    pub fn acquisitions(&self) -> u64 {
        self.acquisitions
    }

    /// Acquisitions of each vCPU.
    pub fn each(&self) -> &[u64] {
        &self.each
    }

    /// Acquisitions of a lock that another vCPU held.
    pub fn violations(&self) -> u64 {
        self.violations
    }

    /// The most bypasses so far, over waits that have ended.
    pub fn most(&self) -> Bypassed {
        self.most
    }

    /// Index of the lock that a vCPU takes or holds.
    fn lock_of(&self, vcpu: usize) -> usize {
        self.each[vcpu] as usize % self.load.locks
    }

    /// Acquisitions of that lock.
    fn of_lock_of(&self, vcpu: usize) -> u64 {
        self.per_lock[self.lock_of(vcpu)]
    }

    /// The vCPU waits in line. A mutex also reports waits for its list's lock, possibly during a release.
    fn in_line(&mut self, vcpu: usize) {
        let taken = self.of_lock_of(vcpu);
        let wait = &mut self.waits[vcpu];
        if wait.is_waiting {
            wait.in_line.get_or_insert(taken);
        }
    }

    /// The vCPU has published that it waits: outside, if it is not in line.
    fn published(&mut self, vcpu: usize) {
        let taken = self.of_lock_of(vcpu);
        let wait = &mut self.waits[vcpu];
        if wait.is_waiting && wait.in_line.is_none() {
            wait.outside.get_or_insert(taken);
        }
    }

    fn taken(&mut self, vcpu: usize) {
        let lock = self.lock_of(vcpu);
        let taken = self.per_lock[lock];
        let wait = std::mem::take(&mut self.waits[vcpu]);
        self.most.from_call = self.most.from_call.max(taken - wait.called);
        if let Some(since) = wait.outside {
            let kept = taken - since - wait.excused;
            self.most.outside = self.most.outside.max(kept);
        }
        if let Some(since) = wait.in_line {
            self.most.in_line = self.most.in_line.max(taken - since);
        }
        self.violations += u64::from(self.inside[lock].replace(vcpu).is_some());
        self.acquisitions += 1;
        self.per_lock[lock] += 1;
        self.each[vcpu] += 1;
    }

    fn released(&mut self, vcpu: usize) {
        // The lock before the next one.
        let lock = (self.lock_of(vcpu) + self.load.locks - 1) % self.load.locks;
        self.inside[lock] = None;
    }
}

impl Harness for BypassCounter {
    fn mark(&mut self, vcpu: usize, mark: Mark) -> Answer {
        match mark {
            Mark::Round => return u32::from(self.acquisitions < self.load.acquisitions),
            Mark::Enter => self.waits[vcpu].is_entering = true,
            Mark::Draw => self.waits[vcpu].is_drawing = true,
            Mark::InLine(_) => self.in_line(vcpu),
            Mark::Published => self.published(vcpu),
            Mark::Taken => self.taken(vcpu),
            Mark::Release => self.released(vcpu),
            Mark::Beside => (),
        }
        0
    }

    fn work(&mut self, _: usize, work: Work) -> u32 {
        let times = match work {
            Work::Think => self.load.think,
            Work::Critical => self.load.critical,
        };
        times.draw(&mut self.rng)
    }

    #[inline]
    fn step(&mut self, vcpu: usize, _: Request) {
        let WaiterProgress { is_entering, is_drawing, .. } = self.waits[vcpu];
        if !is_entering && !is_drawing {
            return;
        }
        let taken = self.of_lock_of(vcpu);
        let wait = &mut self.waits[vcpu];
        if wait.is_entering {
            (wait.is_entering, wait.is_waiting) = (false, true);
            wait.called = taken;
        }
        if wait.is_drawing {
            wait.is_drawing = false;
            if let Some(woken) = wait.woken.take() {
                wait.excused += taken - woken;
            }
        }
    }

    fn fate(&mut self, vcpu: usize, fate: Fate) {
        if vcpu >= self.waits.len() {
            return;
        }
        let taken = self.of_lock_of(vcpu);
        if let Some(wait) = self.waits.get_mut(vcpu)
            && fate == Fate::Woken
            && wait.outside.is_some()
            && wait.in_line.is_none()
        {
            wait.woken = Some(taken);
        }
    }

    fn progress(&self) -> u64 {
        self.acquisitions
    }
}
