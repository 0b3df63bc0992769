//! Ways to make handoffs cheaper, and what a CPU keeps for them.

use crate::sync::{AtomicU32, Ordering};

/// What a [`PvTicketLock`](crate::PvTicketLock) may do beside halting and kicking. The default is
/// nothing: a fixed threshold, and every release that may be awaited looks for whom to kick.
///
/// All of them leave the queue first in, first out. None of them is needed for a wakeup to arrive,
/// and CPUs with different settings may take the same lock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Handoff {
    /// A waiter with so many others before it or more halts without spinning; zero: none does.
    pub far: u16,
    /// A waiter halts without spinning while [`Pv::predecessor_is_off`](crate::Pv) says that who
    /// is served before it does not run.
    pub predecessor: bool,
    /// The threshold follows experience: shorter after waits that ended in a halt all the same,
    /// longer, up to [`Cpu::spin_threshold`](crate::Cpu), after waits that did not.
    pub adapt: bool,
    /// A release tells a waiter that has not yet committed itself to its halt not to halt, instead
    /// of kicking it, which saves both sides their exit.
    pub claim: bool,
    /// A release kicks the next but one as well, so that it is awake in time.
    pub ahead: bool,
    /// If others queue behind it, a waiter gets its kick with the releaser's next halt, in one
    /// exit: then that CPU halts at its next wait without spinning. It must take its next lock
    /// soon, or call [`settle`](crate::settle); an interrupt handler must call it before it
    /// returns, for it may return to a halt. Not together with [`Handoff::queue`], which makes
    /// halts rare: then kicks are sent at once.
    pub fuse: bool,
    /// CPUs that may queue, the holder included; others halt outside of the queue until there is
    /// room or their turn has come. Zero: all may. For locks under overcommit this is what counts:
    /// who is in the queue must run at every round, so there should be no more of them than
    /// CPUs that run at once.
    pub queue: u16,
}

/// With [`Handoff::queue`]: how often a CPU releases with somebody outside before it lets one in.
/// At some millions of acquisitions a second that is about a time slice.
const ROTATE: u32 = 4096;

/// What a CPU remembers from one acquisition to the next. Written by that CPU alone.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// The threshold that [`Handoff::adapt`] has come to; zero: none yet.
    threshold: AtomicU32,
    /// Releases since it last let somebody in.
    rounds: AtomicU32,
    /// One more than the CPU that it owes a kick; zero: none.
    owed: AtomicU32,
}

impl Memory {
    /// Nothing yet.
    pub(crate) const fn new() -> Self {
        Self { threshold: AtomicU32::new(0), rounds: AtomicU32::new(0), owed: AtomicU32::new(0) }
    }

    /// Looks to make before a halt, `most` at most.
    pub(crate) fn threshold(&self, most: u32) -> u32 {
        match self.threshold.load(Ordering::Relaxed) {
            0 => most,
            learnt => learnt.min(most),
        }
    }

    /// A wait has ended, by spinning or after a halt.
    pub(crate) fn learn(&self, most: u32, halted: bool) {
        let now = self.threshold(most);
        let least = most / 64;
        let next = if halted { now / 2 } else { now.saturating_add(now / 4) };
        self.threshold.store(next.clamp(least, most).max(1), Ordering::Relaxed);
    }

    /// Counts a release with somebody outside; true: it is time to let one in.
    pub(crate) fn is_time_to_let_in(&self) -> bool {
        let rounds = self.rounds.load(Ordering::Relaxed) + 1;
        let is_time = rounds >= ROTATE;
        self.rounds.store(if is_time { 0 } else { rounds }, Ordering::Relaxed);
        is_time
    }

    /// Owes `cpu` a kick.
    pub(crate) fn owe(&self, cpu: usize) {
        self.owed.store(cpu as u32 + 1, Ordering::Relaxed);
    }

    /// Is a kick owed to anyone?
    #[inline]
    pub(crate) fn is_owing(&self) -> bool {
        self.owed.load(Ordering::Relaxed) != 0
    }

    /// Whom, then.
    #[inline]
    pub(crate) fn owed(&self) -> Option<usize> {
        (self.owed.load(Ordering::Relaxed) as usize).checked_sub(1)
    }

    /// The kick has been sent.
    pub(crate) fn forget_debt(&self) {
        self.owed.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threshold_follows_experience_within_bounds() {
        let memory = Memory::new();
        assert_eq!(memory.threshold(2048), 2048);
        for _ in 0..20 {
            memory.learn(2048, true);
        }
        assert_eq!(memory.threshold(2048), 32);
        memory.learn(2048, false);
        assert_eq!(memory.threshold(2048), 40);
        for _ in 0..40 {
            memory.learn(2048, false);
        }
        assert_eq!(memory.threshold(2048), 2048);
        memory.learn(0, true);
        assert_eq!(memory.threshold(0), 0, "a threshold of zero stays");
    }

    #[test]
    fn a_debt_is_remembered_until_it_is_forgotten() {
        let memory = Memory::new();
        assert_eq!(memory.owed(), None);
        memory.owe(0);
        assert!(memory.is_owing());
        assert_eq!((memory.owed(), memory.owed()), (Some(0), Some(0)));
        memory.forget_debt();
        assert_eq!((memory.owed(), memory.is_owing()), (None, false));
    }

    #[test]
    fn every_so_many_releases_somebody_is_let_in() {
        let memory = Memory::new();
        let times = (0..3 * ROTATE).filter(|_| memory.is_time_to_let_in()).count();
        assert_eq!(times, 3);
    }
}
