//! Options that make handoffs cheaper, and their per-CPU state.

use crate::adaptive::MIN_LIMIT;
use crate::sync::{AtomicU32, AtomicUsize, Ordering};
use crate::ticket::INC;
use crate::{Bypass, RawLock};

/// Options of a [`PvTicketLock`](crate::PvTicketLock) beyond halting and kicking, and of
/// [`Restricted`](crate::Restricted) locks. By default all are off: the threshold is fixed, and every release
/// of a flagged lock looks for a waiter to kick.
///
/// All options keep the queue first in, first out. No wakeup depends on them, and CPUs with different
/// settings may take the same lock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Handoff {
    /// A waiter with at least this many CPUs ahead halts without spinning; zero: off.
    pub far: u16,
    /// A waiter halts without spinning while the CPU served before it is known not to be running
    /// ([`Pv::predecessor_is_off`](crate::Pv)).
    pub predecessor: bool,
    /// The threshold adapts: it shrinks after waits that ended in a halt anyway, and grows, up to
    /// [`Cpu::spin_threshold`](crate::Cpu), after waits that did not.
    pub adapt: bool,
    /// Instead of kicking a waiter that has not yet committed to its halt, a release cancels the halt, which
    /// saves both CPUs an exit.
    pub claim: bool,
    /// A release also kicks the waiter after the next, so that it is awake in time.
    pub ahead: bool,
    /// With more than two CPUs in the queue, the releaser included, the kick is deferred to the releaser's
    /// next halt and sent in the same exit; for that, the releaser halts at its next wait without spinning.
    /// It must take its next lock soon, or call [`settle`](crate::settle); an interrupt handler must call
    /// `settle` before it returns, because it may return to a halt. Has no effect together with
    /// [`Handoff::queue`], which makes halts rare: kicks are then sent at once.
    pub fuse: bool,
    /// Number of CPUs that may queue, the holder included; further CPUs halt outside the queue until there is
    /// room or they are let in. Zero: no limit. This is the option that matters under overcommit: every CPU
    /// in the queue must run in every round, so no more CPUs should queue than run at once.
    ///
    /// CPUs outside are let in first come, first served: at least one every 8193 acquisitions of the lock (65 with
    /// small tickets), one at every 31st release that has to kick the next in line, and one at a release that
    /// leaves the queue empty. The CPU that lets one in gives up its own place: at its next acquisition it
    /// waits outside if the queue has at most one place left. For the resulting bound see
    /// [`Handoff::bypasses`].
    pub queue: u16,
    /// For [`Restricted`](crate::Restricted) locks of any kind: number of CPUs that may hold the lock or wait
    /// for it at once; others halt outside. Zero: no limit. [`Handoff::ADAPTIVE`]: the lock determines the
    /// limit.
    pub restrict: u16,
}

impl Handoff {
    /// An adaptive [`Handoff::restrict`]: half the number of CPUs inside, at least two, after a handover of
    /// more than about 10 us; then one more every 8192 acquisitions.
    pub const ADAPTIVE: u16 = u16::MAX;

    /// Bound on the acquisitions by other CPUs after a CPU has joined the queue of a ticketlock, or waits
    /// outside it, until its own acquisition, if `cpus` CPUs take the lock, all with these settings.
    /// Acquisitions from the release whose kick lets a CPU in until that CPU is awake and has drawn its
    /// ticket are not counted: the kicker may be preempted before its kick, so the delay depends on the
    /// scheduler.
    ///
    /// `stopped` is the largest number of CPUs that are preempted between a release and its kick for a whole
    /// period between let-ins. They delay their own let-in and the next. It is at most `cpus - 2`.
    ///
    /// Without [`Handoff::queue`] the bound is `cpus - 1`. With it, the bound is
    /// `K * (cpus - q + stopped) + cpus - 1`, where K is 8193 (65 with small tickets) and q is `queue - 1`,
    /// at least 1. When this CPU goes outside, q CPUs queue, and at most `cpus - q - 1` came before it and
    /// are still outside; at least one is let in every K tickets, and in the queue at most `cpus - 1` are
    /// ahead of it. At least one period is counted, because a CPU can wait outside a queue with room for all:
    /// it reads the head and then the tail, and acquisitions in between look like a queue.
    pub fn bypasses<L: RawLock>(&self, cpus: u32, stopped: u32) -> u32 {
        let ahead = cpus.saturating_sub(1);
        if self.queue == 0 {
            return ahead;
        }
        let let_ins = cpus.saturating_sub(self.queue_limit(true).into()).max(1) + stopped;
        Self::let_in_interval::<L>() * let_ins + ahead
    }

    /// The K of [`Handoff::bypasses`]: the largest number of acquisitions between two let-ins.
    pub const fn let_in_interval<L: RawLock>() -> u32 {
        period(L::TICKETS) as u32 + 1
    }

    /// Like [`Handoff::bypasses`], for a CPU that waits outside a [`Restricted`](crate::Restricted) lock
    /// whose inner lock has the bound `inside`. `None` if `inside` is unbounded.
    ///
    /// At least `restrict` CPUs are inside when this CPU halts outside, and at least one is let in every 8192
    /// releases: `8192 * (cpus - restrict + stopped)`, and then the bound of the inner lock. An adaptive
    /// limit may be as low as 2.
    pub fn restricted_bypasses(&self, inside: Bypass, cpus: u32, stopped: u32) -> Option<u32> {
        let inside = inside.bound(cpus)?;
        let is_adaptive = self.restrict == Self::ADAPTIVE;
        let restrict = u32::from(if is_adaptive { MIN_LIMIT } else { self.restrict });
        let let_ins = cpus.saturating_sub(restrict).max(1) + stopped;
        Some(u32::from(LET_IN_EVERY) * let_ins + inside)
    }

    /// The queue length that makes a CPU wait outside instead of joining. Shorter if the CPU has given up its
    /// place.
    #[inline]
    pub(crate) fn queue_limit(&self, has_given: bool) -> u16 {
        if has_given { self.queue.saturating_sub(1).max(1) } else { self.queue }
    }
}

/// With [`Handoff::queue`]: about the number of tickets between two let-ins, see [`lets_in`]. At several
/// million acquisitions per second this is about a time slice.
const LET_IN: u16 = 8192;

/// With [`Handoff::restrict`]: number of releases after which a CPU is let in even if others are inside; also
/// about a time slice.
pub(crate) const LET_IN_EVERY: u16 = LET_IN;

/// Number of kicking releases, by CPUs with [`Handoff::queue`], between two let-ins. A let-in costs as much
/// as such a release, so it may happen more often than with [`LET_IN`]. Odd, so that two CPUs that pass the
/// lock back and forth alternate in letting others in.
pub(crate) const KICKS: u32 = 31;

/// [`LET_IN`] for tickets with the bits `mask`: shortened so that two let-ins come before the tickets wrap.
const fn period(mask: u16) -> u16 {
    let half = mask / INC / 2 + 1;
    if half < LET_IN { half } else { LET_IN }
}

/// Whether the release of `ticket`, with the bits `mask`, lets in a CPU that waits outside.
///
/// The tickets are the lock's own clock: no ticket is missed, regardless of the releasing CPU and the other
/// locks that it takes. Two let-ins are [`period`] plus one tickets apart, but fewer across the wrap. The
/// distance is odd for the same reason as [`KICKS`].
#[inline]
pub(crate) fn lets_in(ticket: u16, mask: u16) -> bool {
    let number = (ticket & mask) / INC;
    number % period(mask) == number / period(mask)
}

/// A CPU's state between acquisitions. Written by that CPU only.
#[derive(Debug, Default)]
pub(crate) struct CpuState {
    /// The current threshold of [`Handoff::adapt`]; zero: none yet.
    threshold: AtomicU32,
    /// The CPU that is owed a kick, plus one; zero: none.
    owed: AtomicU32,
    /// The address of the lock where this CPU has given up its place; zero: none.
    gave_at: AtomicUsize,
}

impl CpuState {
    pub(crate) const fn new() -> Self {
        Self { threshold: AtomicU32::new(0), owed: AtomicU32::new(0), gave_at: AtomicUsize::new(0) }
    }

    /// Spin iterations before a halt, at most `max`.
    pub(crate) fn threshold(&self, max: u32) -> u32 {
        match self.threshold.load(Ordering::Relaxed) {
            0 => max,
            adapted => adapted.min(max),
        }
    }

    /// Adapts the threshold after a wait that `halted`, or ended while spinning.
    pub(crate) fn adapt(&self, max: u32, halted: bool) {
        let now = self.threshold(max);
        let min = max / 64;
        let next = if halted { now / 2 } else { now.saturating_add(now / 4) };
        self.threshold.store(next.clamp(min, max).max(1), Ordering::Relaxed);
    }

    /// Gives the CPU's place in the queue of the lock at `address` to another CPU.
    pub(crate) fn give_place(&self, address: usize) {
        self.gave_at.store(address, Ordering::Relaxed);
    }

    /// Whether the CPU has given up its place in the queue of the lock at `address`. Resets the answer.
    #[inline]
    pub(crate) fn take_given_place(&self, address: usize) -> bool {
        let has_given = self.gave_at.load(Ordering::Relaxed) == address;
        if has_given {
            self.gave_at.store(0, Ordering::Relaxed);
        }
        has_given
    }

    /// Records that the CPU owes `cpu` a kick.
    pub(crate) fn owe(&self, cpu: usize) {
        self.owed.store(cpu as u32 + 1, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_owing(&self) -> bool {
        self.owed.load(Ordering::Relaxed) != 0
    }

    /// The CPU that is owed a kick.
    #[inline]
    pub(crate) fn owed(&self) -> Option<usize> {
        (self.owed.load(Ordering::Relaxed) as usize).checked_sub(1)
    }

    /// Clears the debt: the kick has been sent.
    pub(crate) fn clear_debt(&self) {
        self.owed.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    use super::*;
    use crate::{PvTicketLock, SmallPvTicketLock};

    #[test]
    fn the_threshold_adapts_within_bounds() {
        let state = CpuState::new();
        assert_eq!(state.threshold(2048), 2048);
        for _ in 0..20 {
            state.adapt(2048, true);
        }
        assert_eq!(state.threshold(2048), 32);
        state.adapt(2048, false);
        assert_eq!(state.threshold(2048), 40);
        for _ in 0..40 {
            state.adapt(2048, false);
        }
        assert_eq!(state.threshold(2048), 2048);
        state.adapt(0, true);
        assert_eq!(state.threshold(0), 0, "a threshold of zero stays");
    }

    #[test]
    fn an_owed_kick_is_kept_until_cleared() {
        let state = CpuState::new();
        assert_eq!(state.owed(), None);
        state.owe(0);
        assert!(state.is_owing());
        assert_eq!((state.owed(), state.owed()), (Some(0), Some(0)));
        state.clear_debt();
        assert_eq!((state.owed(), state.is_owing()), (None, false));
    }

    #[test]
    fn a_place_is_given_up_once_per_lock() {
        let state = CpuState::new();
        state.give_place(0x1000);
        assert!(!state.take_given_place(0x2000));
        assert!(state.take_given_place(0x1000));
        assert!(!state.take_given_place(0x1000));
    }

    #[test]
    fn let_ins_are_a_period_apart() {
        let gaps = |mask: u16| {
            let at: Vec<u32> =
                (0..2 * 32768).filter(|number| lets_in((number * 2) as u16, mask)).collect();
            at.windows(2).map(|pair| pair[1] - pair[0]).collect::<BTreeSet<_>>()
        };
        assert!(gaps(u16::MAX).into_iter().eq([8189, 8193]));
        assert!(gaps(u8::MAX.into()).into_iter().eq([63, 65]));
    }

    #[test]
    fn bounds_with_and_without_a_queue_limit() {
        let plain = Handoff::default();
        assert_eq!(plain.bypasses::<PvTicketLock>(4, 0), 3);
        assert_eq!(plain.bypasses::<PvTicketLock>(0, 0), 0);
        let limited = Handoff { queue: 2, ..plain };
        assert_eq!(limited.bypasses::<PvTicketLock>(2, 0), 8193 + 1, "it may not see the room");
        assert_eq!(limited.bypasses::<PvTicketLock>(4, 0), 3 * 8193 + 3);
        assert_eq!(limited.bypasses::<PvTicketLock>(4, 1), 4 * 8193 + 3);
        assert_eq!(limited.bypasses::<SmallPvTicketLock>(4, 0), 3 * 65 + 3);
        let queue_of_one = Handoff { queue: 1, ..plain };
        assert_eq!(queue_of_one.bypasses::<PvTicketLock>(4, 0), 3 * 8193 + 3);
        let restricted = Handoff { restrict: 2, ..plain };
        assert_eq!(restricted.restricted_bypasses(Bypass::FromQueue, 4, 1), Some(3 * 8192 + 3));
        assert_eq!(restricted.restricted_bypasses(Bypass::Unbounded, 4, 1), None);
        let queue_of_four = Handoff { queue: 4, ..plain };
        assert_eq!(queue_of_four.bypasses::<PvTicketLock>(6, 0), 3 * 8193 + 5);
    }
}
