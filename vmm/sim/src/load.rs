//! The loads of simulated vCPUs.

use base::faults::Probability;
use base::rng::SplitMix64;

use crate::random::Span;
use crate::time::Picos;

/// The loop of a vCPU: think, take a lock, work, release the lock. Systems that are not acquired,
/// such as counters, are used once after each think time.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// Think time between two operations.
    pub think: Span,
    /// The locks of each guest, at least one. Each operation takes one of them.
    pub locks: Vec<LockLoad>,
    /// Whether the locks of a guest share one waiter table, like the locks of a kernel. Otherwise
    /// each lock has a separate table; the profiles with several locks were fitted that way.
    pub shares_table: bool,
    /// Whether an operation on a lockref also locks it, with a recorded wait, before it gets and puts a reference.
    pub locks_lockrefs: bool,
    /// Probability that an operation on a spinlock calls `try_lock`, and `lock` only if that fails.
    pub tries: Option<Probability>,
    /// Whether critical sections update and check shared data, as the payload's do.
    pub has_data: bool,
    /// Amount added by one use of a counter. If it is at least the counter's batch, each use adds to the shared sum.
    pub adds: u32,
    /// If not zero, the critical time is exponential with a mean that grows by half of this for
    /// each waiting vCPU, and is redrawn at each arrival: the law of Boyd-Wickizer et al. (OLS
    /// 2012), for one lock. If zero, the lock's load defines the critical time.
    pub crowd: Picos,
    /// Tasks sleep after some think times; `None`: never.
    pub sleep: Option<Sleep>,
    /// vCPUs interrupt the others of their guest and wait for the answers; `None`: never.
    pub shootdown: Option<Shootdown>,
}

/// The use of one lock of a guest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LockLoad {
    /// Weight in the choice of an operation's lock, relative to the guest's other locks. Positive.
    pub share: f64,
    /// Hold time of the lock.
    pub critical: Span,
}

/// The task of a vCPU sleeps after some think times. The vCPU is idle until a timer wakes it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sleep {
    /// Probability that a think time ends in sleep.
    pub chance: Probability,
    /// Duration of the sleep.
    pub time: Span,
}

/// A vCPU interrupts all non-idle vCPUs of its guest and spins until each has answered, as for a
/// TLB shootdown. A vCPU without a CPU answers when it gets one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shootdown {
    /// Probability of a shootdown at the end of a think time, or of a critical section with [`Self::is_held`].
    pub chance: Probability,
    /// Whether the shootdown is at the end of a critical section, with the lock held.
    pub is_held: bool,
    /// Duration of the interrupt handler, without the exit.
    pub handler: Picos,
}

impl Load {
    /// A load with one lock, without data.
    pub fn new(think: Span, critical: Span) -> Self {
        Self {
            think,
            locks: vec![LockLoad { share: 1.0, critical }],
            shares_table: false,
            locks_lockrefs: false,
            tries: None,
            has_data: false,
            adds: 1,
            crowd: Picos::ZERO,
            sleep: None,
            shootdown: None,
        }
    }

    #[inline]
    pub(crate) fn draw_lock(&self, rng: &mut SplitMix64) -> usize {
        let last = self.locks.len() - 1;
        if last == 0 {
            return 0;
        }
        let total: f64 = self.locks.iter().map(|lock| lock.share).sum();
        let mut remaining = total * unit(rng);
        let is_reached = |lock: &LockLoad| {
            remaining -= lock.share;
            remaining < 0.0
        };
        self.locks.iter().position(is_reached).unwrap_or(last)
    }

    /// Draws whether this think time ends in sleep.
    #[inline]
    pub(crate) fn draw_sleep(&self, rng: &mut SplitMix64) -> bool {
        self.sleep.is_some_and(|sleep| sleep.chance.happens(rng))
    }

    /// Draws whether this think time or critical section ends in a shootdown.
    #[inline]
    pub(crate) fn draw_shootdown(&self, is_held: bool, rng: &mut SplitMix64) -> bool {
        let drawn = self.shootdown.filter(|shootdown| shootdown.is_held == is_held);
        drawn.is_some_and(|shootdown| shootdown.chance.happens(rng))
    }
}

/// A uniform number in `[0, 1)`.
fn unit(rng: &mut SplitMix64) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}
