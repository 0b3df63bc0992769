//! Counts how many acquisitions by others come between a waiter and its own.

use fastrand::Rng;
use sim_cell::{Answer, Mark, Request, Work};

use crate::machine::{Fate, Harness};

/// What a vCPU halts for that stands outside of the queue of a PV ticketlock (`ASIDE` there).
const OUTSIDE: u16 = 1;

/// How long something takes, in steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// So many each time.
    Fixed(u32),
    /// Any number from zero to twice as many.
    About(u32),
}

impl Times {
    fn draw(self, rng: &mut Rng) -> u32 {
        match self {
            Self::Fixed(steps) => steps,
            Self::About(mean) => rng.u32(0..=2 * mean),
        }
    }
}

/// What the vCPUs do with the lock: think, acquire, work, release, again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Acquisitions in all, at least.
    pub acquisitions: u64,
    /// Steps between two acquisitions of a vCPU.
    pub think: Times,
    /// Steps with the lock held.
    pub critical: Times,
}

/// The most acquisitions by others that came between a waiter and its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bypassed {
    /// Counted from the waiter's first step in `lock`.
    pub from_call: u64,
    /// Counted from when it was in line and said so: from `Watch::spinning` or `Watch::queued`.
    pub in_line: u64,
    /// As `from_call`, without those that came after it was woken from its halt outside of a queue
    /// and before it had drawn its ticket: how soon it runs then is the host's doing.
    pub while_kept: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Wait {
    /// Its next step is the first in `lock`.
    is_entering: bool,
    /// It has made that step.
    is_waiting: bool,
    /// It halts outside of the queue, or did.
    is_outside: bool,
    /// Acquisitions when it was woken there, until it is in line.
    woken: Option<u64>,
    /// Acquisitions while it was woken and not yet in line.
    excused: u64,
    /// Acquisitions when it made that step.
    called: u64,
    /// Acquisitions when it was in line.
    in_line: Option<u64>,
}

/// See the module.
#[derive(Debug)]
pub struct Waits {
    load: Load,
    rng: Rng,
    waits: Vec<Wait>,
    acquisitions: u64,
    each: Vec<u64>,
    inside: Option<usize>,
    most: Bypassed,
    /// Acquisitions while another vCPU was inside.
    violations: u64,
}

impl Waits {
    /// For `vcpus` with that load, drawn from `seed`.
    pub fn new(load: Load, vcpus: usize, seed: u64) -> Self {
        Self {
            load,
            rng: Rng::with_seed(seed),
            waits: vec![Wait::default(); vcpus],
            acquisitions: 0,
            each: vec![0; vcpus],
            inside: None,
            most: Bypassed::default(),
            violations: 0,
        }
    }

    /// Acquisitions so far.
    pub fn acquisitions(&self) -> u64 {
        self.acquisitions
    }

    /// Those of each vCPU.
    pub fn each(&self) -> &[u64] {
        &self.each
    }

    /// Acquisitions of a lock that another vCPU held.
    pub fn violations(&self) -> u64 {
        self.violations
    }

    /// The most so far, of waits that are over.
    pub fn most(&self) -> Bypassed {
        self.most
    }

    /// It has its ticket.
    fn in_line(&mut self, vcpu: usize) {
        let wait = &mut self.waits[vcpu];
        // A mutex tells of its list's lock, too, which may be taken for a release.
        if !wait.is_waiting {
            return;
        }
        wait.in_line.get_or_insert(self.acquisitions);
        if let Some(woken) = wait.woken.take() {
            wait.excused += self.acquisitions - woken;
        }
    }

    fn taken(&mut self, vcpu: usize) {
        let wait = std::mem::take(&mut self.waits[vcpu]);
        let passed = self.acquisitions - wait.called;
        let excused = wait.excused + wait.woken.map_or(0, |woken| self.acquisitions - woken);
        self.most.from_call = self.most.from_call.max(passed);
        self.most.while_kept = self.most.while_kept.max(passed - excused);
        if let Some(since) = wait.in_line {
            self.most.in_line = self.most.in_line.max(self.acquisitions - since);
        }
        self.violations += u64::from(self.inside.replace(vcpu).is_some());
        self.acquisitions += 1;
        self.each[vcpu] += 1;
    }
}

impl Harness for Waits {
    fn mark(&mut self, vcpu: usize, mark: Mark) -> Answer {
        match mark {
            Mark::Round => return u32::from(self.acquisitions < self.load.acquisitions),
            Mark::Enter => self.waits[vcpu].is_entering = true,
            Mark::InLine(_) => self.in_line(vcpu),
            Mark::Taken => self.taken(vcpu),
            Mark::Release => self.inside = None,
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
    fn step(&mut self, vcpu: usize, request: Request) {
        let wait = &mut self.waits[vcpu];
        if wait.is_entering {
            (wait.is_entering, wait.is_waiting) = (false, true);
            wait.called = self.acquisitions;
        }
        if request == Request::Halt(OUTSIDE) {
            wait.is_outside = true;
        }
    }

    fn fate(&mut self, vcpu: usize, fate: Fate) {
        if let Some(wait) = self.waits.get_mut(vcpu)
            && fate == Fate::Woken
            && std::mem::take(&mut wait.is_outside)
        {
            wait.woken = Some(self.acquisitions);
        }
    }

    fn progress(&self) -> u64 {
        self.acquisitions
    }
}
