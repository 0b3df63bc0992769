//! The PV queued lock.

use core::cell::Cell;

use crate::acquire::{self, Ticketless};
use crate::halt::Waits;
use crate::held::Held;
use crate::node::NodeId;
use crate::queue::Queue;
use crate::wait::LockKey;
use crate::watch::Spins;
use crate::{Bypass, Cpu, Place, Pv, Release, Watch, settle};

/// Spin iterations between two checks whether the waiter ahead is running (Linux: `PV_PREV_CHECK_MASK`).
const CHECK_EVERY: u32 = 256;

/// A queued lock of four bytes whose waiters halt after [`Cpu::spin_threshold`] spin iterations, and whose queue
/// newcomers may bypass: the PV queued spinlocks of Linux since 4.16, which overcommitted guests run instead of PV
/// ticketlocks (kernel/locking/qspinlock_paravirt.h).
///
/// - A newcomer takes a free lock unless it is reserved. It polls, without a halt, while CPUs queue and the lock is not
///   reserved. Otherwise it queues.
/// - A waiter in the queue checks at once and every 256 spin iterations whether the waiter ahead halts. If so, it halts
///   as well.
/// - The head of the queue reserves the lock while it spins. When it halts for the first time, it requests a kick at
///   the next release. It halts again only if that release is still to come.
/// - A head that has taken the lock makes the next waiter the head. If that waiter halts, it is
///   kicked at the release, like a head that halts: one kick per release, looked up in the
///   [`WaitTable`](crate::WaitTable) by the lock's address.
///
/// The queue is first in, first out, but the lock is not. There is no bound on steals while the head does not run.
/// While it runs, only the present holder precedes it.
///
/// `try_lock` fails while CPUs queue. Supports as many CPUs as [`QueuedLock`](crate::QueuedLock).
#[derive(Debug, Default)]
#[repr(C, align(4))]
pub struct PvQueuedLock {
    held: Held,
    queue: Queue,
}

impl PvQueuedLock {
    /// Creates a free lock.
    pub const fn new() -> Self {
        Self { held: Held::new(), queue: Queue::new() }
    }

    fn key(&self) -> LockKey {
        LockKey::new(self)
    }

    /// Polls while CPUs queue and the lock is not reserved. Returns whether the caller holds the lock.
    fn take_unfairly<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, spins: &mut Spins) -> bool {
        loop {
            spins.count(&cpu.watch, None);
            if self.held.take_unreserved() {
                return true;
            }
            if self.queue.is_empty() || self.held.is_reserved() {
                return false;
            }
            spins.spin(cpu.pv, u32::MAX);
        }
    }

    /// Spins up to the threshold, at least once, or until a check finds that the caller `halts_early`. Returns `true`
    /// if there is no need to halt.
    fn spin_until<P: Pv, W: Watch>(
        cpu: &Cpu<'_, P, W>,
        spins: &mut Spins,
        is_over: impl Fn() -> bool,
        halts_early: impl Fn() -> bool,
    ) -> bool {
        let mut remaining = cpu.spin_threshold;
        loop {
            spins.count(&cpu.watch, None);
            if is_over() {
                return true;
            }
            if !P::ENABLED {
                spins.spin(cpu.pv, u32::MAX);
                continue;
            }
            let is_check = remaining.is_multiple_of(CHECK_EVERY);
            if remaining == 0 || is_check && halts_early() {
                spins.restart();
                return false;
            }
            let until_check = (remaining - 1) % CHECK_EVERY + 1;
            remaining -= spins.spin(cpu.pv, until_check);
        }
    }

    /// Waits behind `before` until `me` is the head of the queue. Returns whether the holder has requested the kick of
    /// `me`, because it halted when it became the head.
    fn wait_in_queue<P: Pv, W: Watch>(
        &self,
        cpu: &Cpu<'_, P, W>,
        (before, me): (NodeId, NodeId),
        waits: &mut Waits,
        spins: &mut Spins,
    ) -> bool {
        let nodes = &cpu.waiters.nodes;
        let mut is_kicked = false;
        let (is_head, halts_early) = (|| nodes.is_head(me), || nodes.is_halted(before));
        while !Self::spin_until(cpu, spins, is_head, halts_early) {
            // Either the CPU that makes it the head sees that it halts, and kicks it at the
            // release; or this CPU sees that it is the head.
            let key = self.key();
            let halted = waits.halt_unless(cpu, key, me.level(), || !nodes.begin_halt(me));
            is_kicked = nodes.end_halt(me) && halted;
        }
        is_kicked
    }

    /// Waits until the head of the queue has the lock. `is_kicked`: the kick at the next release has been requested.
    fn wait_as_head<P: Pv, W: Watch>(
        &self,
        cpu: &Cpu<'_, P, W>,
        me: NodeId,
        mut is_kicked: bool,
        waits: &mut Waits,
        spins: &mut Spins,
    ) {
        let nodes = &cpu.waiters.nodes;
        let is_taken = Cell::new(false);
        while !is_taken.get() {
            self.held.reserve();
            if Self::spin_until(cpu, spins, || self.held.take_reserved(), || false) {
                return;
            }
            self.held.unreserve();
            // For the waiter behind.
            nodes.begin_halt(me);
            let waited = waits.halt_unless(cpu, self.key(), me.level(), || {
                if is_kicked {
                    return !self.held.is_awaited();
                }
                is_taken.set(self.held.take_or_request_kick());
                is_taken.get()
            });
            nodes.end_halt(me);
            if !waited {
                cpu.pv.spin_hint();
            }
            is_kicked = true;
        }
        self.held.clear_flags();
    }

    /// Leaves the queue with the lock taken.
    fn leave<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, me: NodeId) {
        let nodes = &cpu.waiters.nodes;
        if let Some(next) = self.queue.leave(nodes, me, || cpu.pv.spin_hint())
            && nodes.make_head(next)
        {
            self.held.request_own_kick();
        }
        nodes.free(me);
    }
}

impl Ticketless for PvQueuedLock {
    const FIFO: bool = false;
    const BYPASS: Bypass = Bypass::WhileHead;

    #[inline]
    fn take<P: Pv, W: Watch>(&self, _: &Cpu<'_, P, W>) -> bool {
        self.queue.is_empty() && self.held.take_unreserved()
    }

    #[cold]
    #[inline(never)]
    fn wait<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, waits: &mut Waits) {
        settle(cpu);
        let nodes = &cpu.waiters.nodes;
        let Some(me) = nodes.alloc(cpu.id) else {
            return acquire::wait_without_node(self, cpu, || self.held.take_unreserved());
        };
        cpu.watch.queued(self.key().address(), None);
        let mut spins = Spins::new(&cpu.watch);
        if self.take_unfairly(cpu, &mut spins) {
            return nodes.free(me);
        }
        let before = self.queue.join_behind(nodes, me);
        cpu.watch.queued(self.key().address(), Some(nodes.position(me)));
        let is_kicked =
            before.is_some_and(|before| self.wait_in_queue(cpu, (before, me), waits, &mut spins));
        self.wait_as_head(cpu, me, is_kicked, waits, &mut spins);
        self.leave(cpu, me);
    }

    #[inline]
    fn release<P: Pv, W: Watch>(&self, _: &Cpu<'_, P, W>) -> bool {
        let is_awaited = self.held.release_reserved();
        P::ENABLED && is_awaited
    }

    /// Kicks the head of the queue.
    #[cold]
    #[inline(never)]
    fn kick<P: Pv, W: Watch>(cpu: &Cpu<'_, P, W>, lock: LockKey) -> Release {
        let mut kicks = 0;
        for (waiter, level) in cpu.waiters.awaiting(lock) {
            if cpu.waiters.nodes.is_head(NodeId::new(waiter, level)) {
                cpu.watch.reached(Place::ReleaseToKick);
                cpu.pv.unlock_kick(waiter);
                kicks += 1;
            }
        }
        Release { kicks }
    }

    crate::queue::waiters_of_queue!(held);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_stage::{Stage, Step};

    /// Acts for the other CPUs while CPU 1, whose threshold is 1, waits as the head.
    fn act(stage: &Stage<PvQueuedLock>, step: Step) {
        match (step, stage.halts.get()) {
            (Step::Pause, 0) => assert!(stage.lock.held.is_reserved()),
            (Step::Halt, 1) => {
                assert_eq!(stage.unlock(0).kicks, 1);
                assert!(!stage.try_lock(2), "a CPU queues");
                assert!(stage.lock(2).slow, "stolen: the head is not awake");
                assert_eq!(stage.unlock(2).kicks, 0, "it was kicked");
                stage.lock(3);
            }
            // Kicked once: it does not halt again, and reserves the lock.
            (Step::Pause, _) => {
                assert!(stage.is_contended() && !stage.lock.held.take_unreserved());
                assert_eq!(stage.unlock(3).kicks, 0);
            }
            _ => panic!("{step:?}"),
        }
    }

    #[test]
    fn newcomers_steal_during_the_only_halt_of_the_head() {
        let mut stage = Stage::new(PvQueuedLock::new(), act);
        assert!(!stage.lock(0).slow);
        stage.spin_threshold = 1;
        let taken = stage.lock(1);
        assert_eq!((taken.slow, taken.halts), (true, 1));
        assert!(!stage.is_contended());
        assert_eq!(stage.unlock(1).kicks, 0);
        assert!(stage.try_lock(2), "the reservation is gone");
        assert_eq!(stage.kicks.get(), [0, 1, 0, 0]);
    }
}
