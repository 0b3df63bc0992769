//! Who may watch the locks of a CPU at work.

/// A place in the lock paths where being kept off the CPU hurts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A waiter has published its record and not yet set the slowpath flag.
    BeforeFlag,
    /// A waiter has set the flag, has looked once more, and is about to halt.
    FlagToHalt,
    /// A holder has released the lock, knows whom to kick and has not yet done so.
    ReleaseToKick,
}

/// Is told what a CPU's locks are doing, by that CPU and as they do it. Nothing
/// that a watcher does changes the course of a lock.
///
/// Every method does nothing unless it is implemented, and a lock is compiled
/// for each watcher by itself: with [`Unwatched`] none of this is in the code.
///
/// `lock` is the address of a lock, which is that of its word. Where a ticket is
/// told, the head is first in it, in 16 bits; where none is, the word says nothing
/// to a watcher.
pub trait Watch {
    /// A lock is about to be taken: a ticket drawn, if it has tickets. `lock` is told where the
    /// watcher can read head and tail there, in 16 bits each.
    fn entering(&self, lock: Option<usize>) {
        let _ = lock;
    }

    /// Somebody else is served: this CPU spins for `ticket`.
    fn spinning(&self, lock: usize, ticket: u16) {
        let _ = (lock, ticket);
    }

    /// The queue is full: this CPU stands outside of it, and halts or is about to. What follows is
    /// [`Watch::entering`], as soon as it goes on. `has_head`: the head is in the first 16 bits.
    fn outside(&self, lock: usize, has_head: bool) {
        let _ = (lock, has_head);
    }

    /// Somebody else has the lock: this CPU waits for it without a ticket that the
    /// watcher could compare with the head. Instead of [`Watch::spinning`]; who
    /// queues has joined the queue.
    fn queued(&self, lock: usize) {
        let _ = lock;
    }

    /// After how many looks at the head a waiter is [`Watch::spun_out`]; zero:
    /// never. Asked once by each waiter, when it begins to spin.
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

    /// The waiter for `ticket` has just come back from its halt, and spins.
    fn resumed(&self, ticket: Option<u16>) {
        let _ = ticket;
    }

    /// A lock that was to be taken only if it is free was not.
    fn gave_up(&self) {}

    /// This CPU holds the lock.
    fn taken(&self, lock: usize, ticket: Option<u16>) {
        let _ = (lock, ticket);
    }

    /// This CPU has released the lock. It may be freed memory.
    fn released(&self) {}

    /// This CPU has just released the lock, which asks for a kick: of the waiter for `ticket`, if
    /// it has tickets, or of one that stands outside. There is none if its waiter is not, or no
    /// longer, about to halt. Comes before [`Watch::released`].
    fn before_kick(&self, lock: usize, ticket: Option<u16>) {
        let _ = (lock, ticket);
    }

    /// The kick has been sent, or there was none to send.
    fn kicked(&self) {}

    /// This CPU is at `place`.
    fn reached(&self, place: Place) {
        let _ = place;
    }
}

/// Nobody watches.
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
    /// None made yet.
    #[inline]
    pub(crate) fn new<W: Watch>(watch: &W) -> Self {
        let most = watch.spin_looks();
        Self { most, left: most }
    }

    /// Counts anew.
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
}
