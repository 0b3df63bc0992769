//! Observation of a CPU's locks.

use crate::{Cpu, Position, Pv};

/// A place in the lock paths where preemption is costly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A waiter has published its record, but has not set the slowpath flag yet.
    BeforeFlag,
    /// A waiter has set the flag, has checked the lock again, and is about to halt.
    FlagToHalt,
    /// A holder has released the lock and found the waiter to kick, but not kicked it yet.
    ReleaseToKick,
}

/// Observes each step of a CPU's locks. That CPU calls the methods as the steps happen; they cannot
/// change the course of a lock.
///
/// Every method does nothing by default, and locks are monomorphized per observer: with
/// [`Unwatched`] they contain none of this code.
///
/// `lock` is the address of a lock's word. Where a ticket is passed, the first 16 bits of the word
/// are the head. Otherwise its layout is unspecified, except as `has_head` and [`Position`] define
/// it.
pub trait Watch {
    /// This CPU is about to take a lock or, if the lock has tickets, to draw one. `lock` is passed
    /// if the observer can read head and tail there, in 16 bits each.
    fn entering(&self, lock: Option<usize>) {
        let _ = lock;
    }

    /// Another CPU is served: this CPU spins for `ticket`.
    fn spinning(&self, lock: usize, ticket: u16) {
        let _ = (lock, ticket);
    }

    /// The queue is full, or all waiters have to halt: this CPU waits outside, and halts or is
    /// about to halt. Followed by [`Watch::entering`] or [`Watch::queued`] as soon as it continues.
    /// `has_head`: the first 16 bits are the head.
    fn throttled(&self, lock: usize, has_head: bool) {
        let _ = (lock, has_head);
    }

    /// Another CPU has the lock: this CPU waits for it without a ticket that could be compared with
    /// the head. Called instead of [`Watch::spinning`]; a CPU that queues has joined the queue.
    /// `position` shows its place there. `None` if it is in no queue, or no memory shows its place.
    fn queued(&self, lock: usize, position: Option<Position>) {
        let _ = (lock, position);
    }

    /// Number of spin iterations after which a waiter is [`Watch::spun_out`]; zero: never. Read
    /// once by each waiter, when it begins to spin.
    fn spin_limit(&self) -> u32 {
        0
    }

    /// The waiter, for `ticket` if it has one, has completed [`Watch::spin_limit`] spin iterations
    /// since it began to spin, was last spun out or last halted.
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
    fn try_failed(&self) {}

    /// This CPU holds the lock.
    fn taken(&self, lock: usize, ticket: Option<u16>) {
        let _ = (lock, ticket);
    }

    /// This CPU has released the lock, which may be freed memory.
    fn released(&self) {}

    /// This CPU has just released the lock and must send a kick: to the waiter for `ticket`, if the
    /// lock has tickets, or to a CPU that waits outside. No kick is sent if that waiter is not, or
    /// no longer, about to halt. Called before [`Watch::released`].
    fn before_kick(&self, lock: usize, ticket: Option<u16>) {
        let _ = (lock, ticket);
    }

    /// The kick has been sent, or was not needed.
    fn kicked(&self) {}

    /// This CPU has reached `place`.
    fn reached(&self, place: Place) {
        let _ = place;
    }
}

/// Observes nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unwatched;

impl Watch for Unwatched {}

/// Counts a waiter's spin iterations for [`Watch::spun_out`].
#[derive(Debug)]
pub struct Spins {
    /// [`Watch::spin_limit`].
    limit: u32,
    remaining: u32,
}

impl Spins {
    /// Begins to count the iterations of a wait.
    #[inline]
    pub fn new<W: Watch>(watch: &W) -> Self {
        let limit = watch.spin_limit();
        Self { limit, remaining: limit }
    }

    /// Begins again, after a halt.
    #[inline]
    pub fn restart(&mut self) {
        self.remaining = self.limit;
    }

    /// Counts a spin iteration; must be called before each. Notifies the observer here and not
    /// after the last iteration of a count, so that a waiter that halts at that very moment gives
    /// up its CPU once and not twice.
    #[inline]
    pub fn count<W: Watch>(&mut self, watch: &W, ticket: Option<u16>) {
        if self.limit == 0 {
            return;
        }
        if self.remaining == 0 {
            watch.spun_out(ticket);
            self.restart();
        }
        self.remaining -= 1;
    }

    /// Spins until `is_over`, as a waiter for `ticket`, if it has one.
    #[inline(always)]
    #[track_caller]
    pub fn until<P: Pv, W: Watch>(
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

    /// Like [`Pv::spin`], but not past an iteration that requires a notification.
    #[inline(always)]
    #[track_caller]
    pub fn spin<P: Pv>(&mut self, pv: &P, limit: u32) -> u32 {
        if self.limit == 0 {
            return pv.spin(limit);
        }
        let spins = pv.spin(limit.min(self.remaining.saturating_add(1)));
        self.remaining -= spins - 1;
        spins
    }
}
