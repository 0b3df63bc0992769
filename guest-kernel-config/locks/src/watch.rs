//! The interface to observe a CPU's locks.

use crate::{Awaited, Cpu, Pv};

/// A place in the lock paths where preemption is costly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A waiter has published its record and not yet set the slowpath flag.
    BeforeFlag,
    /// A waiter has set the flag, has looked once more, and is about to halt.
    FlagToHalt,
    /// A holder has released the lock and found the waiter to kick, but not kicked it yet.
    ReleaseToKick,
}

/// Is told each step of a CPU's locks, by that CPU and as it happens. A watcher
/// cannot change the course of a lock.
///
/// Every method does nothing by default, and locks are monomorphized per watcher:
/// with [`Unwatched`] none of this is in the code.
///
/// `lock` is the address of a lock's word. Where a ticket is passed, the head is
/// first in the word, in 16 bits; where none is, the word means nothing to a
/// watcher.
pub trait Watch {
    /// A lock is about to be taken: a ticket drawn, if it has tickets. `lock` is given if the
    /// watcher can read head and tail there, in 16 bits each.
    fn entering(&self, lock: Option<usize>) {
        let _ = lock;
    }

    /// Another CPU is served: this one spins for `ticket`.
    fn spinning(&self, lock: usize, ticket: u16) {
        let _ = (lock, ticket);
    }

    /// The queue is full: this CPU waits outside of it, and halts or is about to. Followed by
    /// [`Watch::entering`] as soon as it continues. `has_head`: the head is in the first 16 bits.
    fn outside(&self, lock: usize, has_head: bool) {
        let _ = (lock, has_head);
    }

    /// Another CPU has the lock: this one waits for it without a ticket that the
    /// watcher could compare with the head. Called instead of [`Watch::spinning`];
    /// a CPU that queues has joined the queue. `awaited` tells its place there; None: it
    /// is in no queue, or in one whose places no memory tells.
    fn queued(&self, lock: usize, awaited: Option<Awaited>) {
        let _ = (lock, awaited);
    }

    /// Number of looks at the head after which a waiter is [`Watch::spun_out`]; zero:
    /// never. Read once by each waiter, when it begins to spin.
    fn spin_looks(&self) -> u32 {
        0
    }

    /// The waiter, for `ticket` if it has one, has looked [`Watch::spin_looks`] times since it
    /// began to spin, was last spun out or last halted.
    fn spun_out(&self, ticket: Option<u16>) {
        let _ = ticket;
    }

    /// The waiter for `ticket` is about to halt.
    fn halting(&self, ticket: Option<u16>) {
        let _ = ticket;
    }

    /// The waiter for `ticket` has just returned from its halt, and spins.
    fn resumed(&self, ticket: Option<u16>) {
        let _ = ticket;
    }

    /// A `try_lock` found the lock taken.
    fn gave_up(&self) {}

    /// This CPU holds the lock.
    fn taken(&self, lock: usize, ticket: Option<u16>) {
        let _ = (lock, ticket);
    }

    /// This CPU has released the lock. It may be freed memory.
    fn released(&self) {}

    /// This CPU has just released the lock and must send a kick: to the waiter for `ticket`, if the
    /// lock has tickets, or to a CPU that waits outside. No kick is sent if that waiter is not, or
    /// no longer, about to halt. Called before [`Watch::released`].
    fn before_kick(&self, lock: usize, ticket: Option<u16>) {
        let _ = (lock, ticket);
    }

    /// The kick has been sent, or none was needed.
    fn kicked(&self) {}

    /// This CPU is at `place`.
    fn reached(&self, place: Place) {
        let _ = place;
    }
}

/// No observer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unwatched;

impl Watch for Unwatched {}

/// Counts a waiter's looks for [`Watch::spun_out`].
pub(crate) struct Looks {
    /// [`Watch::spin_looks`].
    most: u32,
    left: u32,
}

impl Looks {
    /// A counter without looks.
    #[inline]
    pub(crate) fn new<W: Watch>(watch: &W) -> Self {
        let most = watch.spin_looks();
        Self { most, left: most }
    }

    /// Starts over.
    #[inline]
    pub(crate) fn restart(&mut self) {
        self.left = self.most;
    }

    /// To be called before each look. The watcher is told here and not after the
    /// last look of a count, so that a waiter that halts at that very moment
    /// gives its CPU away once and not twice.
    #[inline]
    pub(crate) fn count<W: Watch>(&mut self, watch: &W, ticket: Option<u16>) {
        if self.most == 0 {
            return;
        }
        if self.left == 0 {
            watch.spun_out(ticket);
            self.restart();
        }
        self.left -= 1;
    }

    /// Looks until `is_over`: the wait of a CPU that spins for `ticket`, if it has one.
    #[inline(always)]
    pub(crate) fn until<P: Pv, W: Watch>(
        &mut self,
        cpu: &Cpu<'_, P, W>,
        ticket: Option<u16>,
        is_over: impl Fn() -> bool,
    ) {
        loop {
            self.count(&cpu.watch, ticket);
            if is_over() {
                return;
            }
            self.spin(cpu.pv, u32::MAX);
        }
    }

    /// [`Pv::spin`], but not past a look at which the watcher has to be told.
    #[inline(always)]
    pub(crate) fn spin<P: Pv>(&mut self, pv: &P, most: u32) -> u32 {
        if self.most == 0 {
            return pv.spin(most);
        }
        let looks = pv.spin(most.min(self.left.saturating_add(1)));
        self.left -= looks - 1;
        looks
    }
}
