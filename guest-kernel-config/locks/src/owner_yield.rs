//! A queued lock that records its holder; waiters yield to it along the queue.

use crate::acquire::Ticketless;
use crate::halt::Waits;
use crate::node::NodeId;
use crate::owned::{Owned, yield_if_off};
use crate::queue::Queue;
use crate::sync::{AtomicU16, Ordering};
use crate::wait::LockKey;
use crate::watch::Spins;
use crate::{Bypass, Cpu, Pv, Watch, settle};

/// Spin iterations of a newcomer at the word before it queues.
const STEAL_SPINS: u32 = 32;
/// Spin iterations of the head of the queue before it keeps newcomers out.
const HEAD_SPINS: u32 = 256;
/// Spin iterations of a waiter between two checks whether the CPU that it waits for is running.
const YIELD_EVERY: u32 = 32;

/// A queue in front of a word with the holder's CPU, after the queued spinlocks of powerpc for
/// shared processors (N. Piggin, "powerpc/qspinlock", Linux 6.2).
///
/// - An arriving CPU polls the word for 32 spin iterations, and takes it if it is free, ahead of
///   the queue. Then it queues.
/// - The head of the queue polls the word. After 256 spin iterations newcomers have to queue at
///   once, until the head has the lock.
/// - A CPU that polls the word donates its slice to a preempted holder ([`Pv::yield_to`]). The head
///   names that holder to the waiter behind it, which also donates its slice, and names it to the
///   next. Without a name, a waiter donates its slice to the waiter ahead if that is preempted.
///
/// There is no bound on steals while the head does not run, and the queue is first in, first out.
/// Supports as many CPUs as [`QueuedLock`](crate::QueuedLock).
#[derive(Debug, Default)]
#[repr(C, align(8))]
pub struct OwnerYieldLock {
    word: Owned,
    queue: Queue,
    /// Nonzero: newcomers must queue. Written by the head.
    must_queue: AtomicU16,
}

impl OwnerYieldLock {
    /// Creates a free lock.
    pub const fn new() -> Self {
        Self { word: Owned::new(), queue: Queue::new(), must_queue: AtomicU16::new(0) }
    }

    /// Takes a free word, unless the head of the queue has asked newcomers to queue. A CPU that has
    /// checked before may still take it once.
    #[inline]
    fn steal(&self, cpu: usize) -> bool {
        self.must_queue.load(Ordering::Relaxed) == 0 && self.word.take(cpu)
    }

    /// Polls for at most `limit` spin iterations until `is_over`, and donates its slice to a
    /// preempted holder. Returns whether `is_over` was true.
    fn spin_until<P: Pv, W: Watch>(
        &self,
        cpu: &Cpu<'_, P, W>,
        spins: &mut Spins,
        limit: u32,
        is_over: impl Fn() -> bool,
    ) -> bool {
        let mut remaining = limit;
        while remaining > 0 {
            spins.count(&cpu.watch, None);
            if is_over() {
                return true;
            }
            yield_if_off(cpu, self.word.owner());
            remaining -= spins.spin(cpu.pv, remaining.min(YIELD_EVERY));
        }
        false
    }

    /// Tries to take the word as the head; otherwise names a preempted holder to the waiter behind.
    fn take_as_head<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, me: NodeId) -> bool {
        if self.word.take(cpu.id) {
            return true;
        }
        let preempted = self.word.owner().filter(|owner| cpu.pv.is_off(*owner));
        cpu.waiters.nodes.name_behind(me, preempted);
        false
    }

    /// Waits behind the node `before` until `me` is the head.
    fn wait_behind<P: Pv, W: Watch>(
        cpu: &Cpu<'_, P, W>,
        spins: &mut Spins,
        before: NodeId,
        me: NodeId,
    ) {
        let nodes = &cpu.waiters.nodes;
        loop {
            spins.count(&cpu.watch, None);
            if nodes.is_head(me) {
                return;
            }
            let named_cpu = nodes.named_cpu(me);
            nodes.name_behind(me, named_cpu);
            yield_if_off(cpu, named_cpu.or(Some(before.cpu())));
            spins.spin(cpu.pv, YIELD_EVERY);
        }
    }
}

impl Ticketless for OwnerYieldLock {
    const FIFO: bool = false;
    const BYPASS: Bypass = Bypass::Unbounded;

    #[inline]
    fn take<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> bool {
        self.steal(cpu.id)
    }

    #[cold]
    #[inline(never)]
    fn wait<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, _: &mut Waits) {
        settle(cpu);
        let nodes = &cpu.waiters.nodes;
        let mut spins = Spins::new(&cpu.watch);
        if self.spin_until(cpu, &mut spins, STEAL_SPINS, || self.steal(cpu.id)) {
            return;
        }
        let Some(me) = nodes.alloc(cpu.id) else {
            // A nested handler with all nodes of its CPU in use waits outside the queue.
            cpu.watch.queued(LockKey::new(self).address(), None);
            while !self.spin_until(cpu, &mut spins, u32::MAX, || self.steal(cpu.id)) {}
            return;
        };
        nodes.clear_name(me);
        let before = self.queue.join_behind(nodes, me);
        cpu.watch.queued(LockKey::new(self).address(), Some(nodes.position(me)));
        if let Some(before) = before {
            Self::wait_behind(cpu, &mut spins, before, me);
        }
        if !self.spin_until(cpu, &mut spins, HEAD_SPINS, || self.take_as_head(cpu, me)) {
            self.must_queue.store(1, Ordering::Relaxed);
            while !self.spin_until(cpu, &mut spins, u32::MAX, || self.take_as_head(cpu, me)) {}
            self.must_queue.store(0, Ordering::Relaxed);
        }
        self.queue.pass_head(nodes, me, || cpu.pv.spin_hint());
    }

    #[inline]
    fn release<P: Pv, W: Watch>(&self, _: &Cpu<'_, P, W>) -> bool {
        self.word.release(true);
        false
    }

    crate::queue::waiters_of_queue!(word);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_stage::{Stage, Step};

    #[test]
    fn a_newcomer_yields_to_a_preempted_holder() {
        let stage = Stage::new(OwnerYieldLock::new(), |stage, step| {
            if let Step::YieldTo(holder) = step {
                stage.unlock(holder);
            }
        });
        stage.off.set(1 << 2);
        assert!(!stage.lock(2).slow);
        assert!(stage.lock(5).slow);
        assert_eq!(stage.yielded_to.get(), Some(2));
        assert_eq!(stage.lock.word.owner(), Some(5));
        assert!(!stage.is_contended(), "it had not queued");
    }

    #[test]
    fn waiters_yield_to_predecessor_or_named_holder() {
        let stage = Stage::new(OwnerYieldLock::new(), |stage, step| {
            let nodes = &stage.waiters.nodes;
            match step {
                // The head, once it runs, names the preempted holder.
                Step::YieldTo(4) => nodes.name_behind(NodeId::new(4, 0), Some(2)),
                Step::YieldTo(_) => assert!(!nodes.make_head(NodeId::new(5, 0)), "it spins"),
                _ => {}
            }
        });
        stage.off.set(1 << 2 | 1 << 4);
        let nodes = &stage.waiters.nodes;
        let [head, me] = [4, 5].map(|cpu| nodes.alloc(cpu).expect("none in use"));
        assert_eq!(stage.lock.queue.join_behind(nodes, head), None);
        assert_eq!(stage.lock.queue.join_behind(nodes, me), Some(head));
        let cpu = stage.cpu(5);
        OwnerYieldLock::wait_behind(&cpu, &mut Spins::new(&cpu.watch), head, me);
        assert_eq!(stage.yielded_to.get(), Some(2), "after 4, which was before it");
    }

    #[test]
    fn newcomers_queue_once_the_head_forbids_steals() {
        let lock = OwnerYieldLock::new();
        assert!(lock.steal(1));
        lock.word.release(true);
        lock.must_queue.store(1, Ordering::Relaxed);
        assert!(!lock.steal(1));
        assert!(lock.word.take(2), "the head may");
    }
}
