//! A queued lock that records its holder; waiters yield to it along the queue.

use crate::acquire::Ticketless;
use crate::halt::Waits;
use crate::node::NodeId;
use crate::owned::{Owned, confer};
use crate::queue::Queue;
use crate::sync::{AtomicU16, Ordering};
use crate::wait::LockKey;
use crate::watch::Looks;
use crate::{Bypass, Cpu, Pv, Watch, settle};

/// Spin iterations of a newcomer at the word before it queues.
const STEAL_LOOKS: u32 = 32;
/// Spin iterations of the head of the queue before it keeps newcomers out.
const HEAD_LOOKS: u32 = 256;
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

    /// Polls for at most `most` spin iterations until `is_over`, and donates its slice to a
    /// preempted holder. Returns whether `is_over` was true.
    fn look<P: Pv, W: Watch>(
        &self,
        cpu: &Cpu<'_, P, W>,
        looks: &mut Looks,
        most: u32,
        is_over: impl Fn() -> bool,
    ) -> bool {
        let mut left = most;
        while left > 0 {
            looks.count(&cpu.watch, None);
            if is_over() {
                return true;
            }
            confer(cpu, self.word.owner());
            left -= looks.spin(cpu.pv, left.min(YIELD_EVERY));
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
        looks: &mut Looks,
        before: NodeId,
        me: NodeId,
    ) {
        let nodes = &cpu.waiters.nodes;
        loop {
            looks.count(&cpu.watch, None);
            if nodes.is_head(me) {
                return;
            }
            let named = nodes.named(me);
            nodes.name_behind(me, named);
            confer(cpu, named.or(Some(before.cpu())));
            looks.spin(cpu.pv, YIELD_EVERY);
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
        let mut looks = Looks::new(&cpu.watch);
        if self.look(cpu, &mut looks, STEAL_LOOKS, || self.steal(cpu.id)) {
            return;
        }
        let Some(me) = nodes.begin(cpu.id) else {
            // A nested handler with all nodes of its CPU in use waits outside the queue.
            cpu.watch.queued(LockKey::of(self).address(), None);
            while !self.look(cpu, &mut looks, u32::MAX, || self.steal(cpu.id)) {}
            return;
        };
        nodes.unname(me);
        let before = self.queue.join_behind(nodes, me);
        cpu.watch.queued(LockKey::of(self).address(), Some(nodes.awaited(me)));
        if let Some(before) = before {
            Self::wait_behind(cpu, &mut looks, before, me);
        }
        if !self.look(cpu, &mut looks, HEAD_LOOKS, || self.take_as_head(cpu, me)) {
            self.must_queue.store(1, Ordering::Relaxed);
            while !self.look(cpu, &mut looks, u32::MAX, || self.take_as_head(cpu, me)) {}
            self.must_queue.store(0, Ordering::Relaxed);
        }
        self.queue.hand_on(nodes, me, || cpu.pv.spin_hint());
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
    fn a_newcomer_gives_its_turn_to_a_preempted_holder() {
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
    fn a_waiter_gives_its_turn_to_the_one_before_it_or_to_the_holder_named() {
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
        let [head, me] = [4, 5].map(|cpu| nodes.begin(cpu).expect("none in use"));
        assert_eq!(stage.lock.queue.join_behind(nodes, head), None);
        assert_eq!(stage.lock.queue.join_behind(nodes, me), Some(head));
        let cpu = stage.cpu(5);
        OwnerYieldLock::wait_behind(&cpu, &mut Looks::new(&cpu.watch), head, me);
        assert_eq!(stage.yielded_to.get(), Some(2), "after 4, which was before it");
    }

    #[test]
    fn newcomers_queue_while_the_head_keeps_them_out() {
        let lock = OwnerYieldLock::new();
        assert!(lock.steal(1));
        lock.word.release(true);
        lock.must_queue.store(1, Ordering::Relaxed);
        assert!(!lock.steal(1));
        assert!(lock.word.take(2), "the head may");
    }
}
