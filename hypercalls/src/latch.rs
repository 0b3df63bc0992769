//! The sticky bit between a kick and a halt.
//!
//! A kick that comes before the halt must not be lost, and several kicks count as one.
//! [`WakeLatch`] combines that bit with the halt: one word with three states, so that checking for
//! a pending kick and going to sleep are one atomic step. The latch itself neither sleeps nor
//! wakes: the owner waits on [`WakeLatch::word`] (a futex) while [`WakeLatch::is_parked`], and the
//! kicker wakes that futex when [`WakeLatch::kick`] returns [`Kick::Wake`].

use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// Futex value while the owner sleeps or is about to sleep.
pub const PARKED: u32 = 1;
const IDLE: u32 = 0;
const PENDING: u32 = 2;

/// The state that a kick found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kick {
    /// The owner is parked, or about to park: wake its futex.
    Wake,
    /// The owner runs: its next halt returns at once.
    LeftPending,
    /// An earlier kick was still pending; this kick joined it.
    Coalesced,
}

/// The owner's next action after [`WakeLatch::park`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Park {
    /// Sleep while [`WakeLatch::is_parked`], then call [`WakeLatch::unpark`].
    Wait,
    /// A pending kick was consumed: do not sleep.
    Consumed,
}

/// The latch of one vCPU: written by its owner and by every kicker.
#[derive(Debug, Default)]
pub struct WakeLatch(AtomicU32);

impl WakeLatch {
    /// Creates a latch with no kick pending.
    pub const fn new() -> Self {
        Self(AtomicU32::new(IDLE))
    }

    /// Leaves or joins a pending kick, or finds that the owner must be woken. Called by kickers.
    pub fn kick(&self) -> Kick {
        match self.0.swap(PENDING, SeqCst) {
            PARKED => Kick::Wake,
            IDLE => Kick::LeftPending,
            _ => Kick::Coalesced,
        }
    }

    /// Consumes a pending kick, or commits to sleeping. Called by the owner.
    pub fn park(&self) -> Park {
        match self.0.compare_exchange(IDLE, PARKED, SeqCst, SeqCst) {
            Ok(_) => Park::Wait,
            Err(_) => {
                self.clear();
                Park::Consumed
            }
        }
    }

    /// Whether the owner must stay asleep: futexes wake spuriously.
    pub fn is_parked(&self) -> bool {
        self.0.load(SeqCst) == PARKED
    }

    /// Clears the kick after the owner has woken, *before* the guest runs again and checks the
    /// lock; a later kick stays pending (clearing later would lose it).
    pub fn unpark(&self) {
        self.clear();
    }

    /// Clears all kicks so far. A swap, not a store: the owner then sees the earlier writes of
    /// each kicker, including kickers that came after the kick that woke it.
    fn clear(&self) {
        self.0.swap(IDLE, SeqCst);
    }

    /// The futex word.
    pub fn word(&self) -> &AtomicU32 {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kick_before_the_halt_is_consumed_once() {
        let latch = WakeLatch::new();
        assert_eq!(latch.kick(), Kick::LeftPending);
        assert_eq!(latch.kick(), Kick::Coalesced);
        assert_eq!(latch.park(), Park::Consumed);
        assert_eq!(latch.park(), Park::Wait);
    }

    /// A kick left over from before a vCPU's reset costs at most one halt that returns at once.
    #[test]
    fn a_stale_kick_ends_only_one_halt() {
        let latch = WakeLatch::new();
        assert_eq!(latch.park(), Park::Wait);
        latch.unpark();
        assert_eq!(latch.kick(), Kick::LeftPending);
        assert_eq!(latch.kick(), Kick::Coalesced);
        assert_eq!(latch.park(), Park::Consumed);
        assert_eq!(latch.park(), Park::Wait, "it is used up");
        assert_eq!(latch.kick(), Kick::Wake, "and kicks arrive as before");
    }

    #[test]
    fn kicking_a_parked_owner_requests_a_wakeup() {
        let latch = WakeLatch::new();
        assert_eq!(latch.park(), Park::Wait);
        assert!(latch.is_parked());
        assert_eq!(latch.kick(), Kick::Wake);
        assert!(!latch.is_parked());
        latch.unpark();
        assert_eq!(latch.kick(), Kick::LeftPending);
    }
}
