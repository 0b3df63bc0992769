//! What the vCPUs of a guest do.

use base::faults::Probability;
use base::rng::SplitMix64;

use crate::random::Span;
use crate::time::Picos;

/// What a vCPU does in a loop: it thinks, takes a lock, works and releases the lock. A system that
/// is not acquired, such as a counter, is used once after each thought.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// Time between two operations: a thought.
    pub think: Span,
    /// The locks of each guest, at least one. Each operation takes one of them.
    pub locks: Vec<LockLoad>,
    /// The locks of a guest share one waiter table, as the locks of a kernel do. Otherwise each lock has a table of its own:
    /// the profiles with several locks were fitted that way.
    pub shares_table: bool,
    /// An operation on a lockref also locks it, before it gets and puts a reference; the wait for that lock is counted.
    pub locks_lockrefs: bool,
    /// Touch shared data with the lock held, as the payload's critical section does, and check it.
    pub has_data: bool,
    /// What one use of a counter adds. If this is at least the counter's batch, each use folds.
    pub adds: u32,
    /// The critical time is exponential, with a mean that grows by half of this for each vCPU that waits, and
    /// is drawn again at each arrival: the law of Boyd-Wickizer et al. (OLS 2012), for one lock. Zero: critical
    /// times are those of the lock's load.
    pub crowd: Picos,
    /// Tasks sleep after some thoughts; None: never.
    pub sleep: Option<Sleep>,
    /// vCPUs interrupt the others of their guest and wait for their answers; None: never.
    pub shootdown: Option<Shootdown>,
}

/// The use of one of a guest's locks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LockLoad {
    /// Share of the operations that take this lock, relative to the other locks' shares. More than zero.
    pub share: f64,
    /// Time for which the lock is held.
    pub critical: Span,
}

/// The task of a vCPU sleeps after some of its thoughts. The vCPU is idle until a timer wakes it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sleep {
    /// The chance that a thought ends in sleep.
    pub chance: Probability,
    /// How long the task sleeps.
    pub time: Span,
}

/// A vCPU interrupts all vCPUs of its guest that are not idle, and spins until each has answered, as
/// for a TLB shootdown. A vCPU that has no CPU answers when it gets one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shootdown {
    /// The chance that a thought, or with [`Self::is_held`] a critical section, ends in a shootdown.
    pub chance: Probability,
    /// The shootdown ends a critical section: the lock is held meanwhile.
    pub is_held: bool,
    /// How long a vCPU is interrupted, without the exit.
    pub handler: Picos,
}

impl Load {
    /// One lock, without data.
    pub fn of(think: Span, critical: Span) -> Self {
        Self {
            think,
            locks: vec![LockLoad { share: 1.0, critical }],
            shares_table: false,
            locks_lockrefs: false,
            has_data: false,
            adds: 1,
            crowd: Picos::ZERO,
            sleep: None,
            shootdown: None,
        }
    }

    /// Draws the lock of an operation.
    #[inline]
    pub(crate) fn draw_lock(&self, rng: &mut SplitMix64) -> usize {
        let last = self.locks.len() - 1;
        if last == 0 {
            return 0;
        }
        let all: f64 = self.locks.iter().map(|lock| lock.share).sum();
        let mut left = all * unit(rng);
        let is_reached = |lock: &LockLoad| {
            left -= lock.share;
            left < 0.0
        };
        self.locks.iter().position(is_reached).unwrap_or(last)
    }

    /// Does this thought end in sleep?
    #[inline]
    pub(crate) fn sleeps(&self, rng: &mut SplitMix64) -> bool {
        self.sleep.is_some_and(|sleep| sleep.chance.happens(rng))
    }

    /// Does this thought, or this critical section, end in a shootdown?
    #[inline]
    pub(crate) fn shoots(&self, is_held: bool, rng: &mut SplitMix64) -> bool {
        let such = self.shootdown.filter(|shootdown| shootdown.is_held == is_held);
        such.is_some_and(|shootdown| shootdown.chance.happens(rng))
    }
}

/// A number from zero to less than one.
fn unit(rng: &mut SplitMix64) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}
