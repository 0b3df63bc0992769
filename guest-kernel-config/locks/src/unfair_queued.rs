//! The unfair queued lock.

use crate::acquire::{self, Ticketless};
use crate::halt::Waits;
use crate::held::Held;
use crate::node::NodeId;
use crate::queue::Queue;
use crate::wait::LockKey;
use crate::watch::Spins;
use crate::{Bypass, Cpu, Pv, Watch, settle};

/// Spin iterations between two attempts of the waiter behind the head.
const TRY_EVERY: u32 = 8;

/// A queue in front of a word that any CPU may take: waiters in the queue only try less often the
/// further back they are. After W. Long, "qspinlock: unfair queue spinlock" (Linux mailing list,
/// 2014 and 2015).
///
/// - An arriving CPU takes a free word, whether or not others queue. If it cannot, it queues.
/// - The head of the queue tries at each spin iteration, the waiter behind it every 8, and each
///   further waiter half as often as its predecessor, down to one attempt in 1024.
/// - A waiter that gets the lock leaves the queue, from its middle if need be.
///
/// So a preempted waiter delays no other, not even if it is the head. There is no bound on
/// bypasses, by design. Supports as many CPUs as [`QueuedLock`](crate::QueuedLock).
#[derive(Debug, Default)]
#[repr(C, align(4))]
pub struct UnfairQueuedLock {
    held: Held,
    queue: Queue,
}

impl UnfairQueuedLock {
    /// Creates a free lock.
    pub const fn new() -> Self {
        Self { held: Held::new(), queue: Queue::new() }
    }

    /// Tries occasionally until `me` is the head. Returns whether it got the lock before that.
    fn try_behind<P: Pv, W: Watch>(
        &self,
        cpu: &Cpu<'_, P, W>,
        me: NodeId,
        spins: &mut Spins,
    ) -> bool {
        let nodes = &cpu.waiters.nodes;
        let mut remaining = 0;
        loop {
            spins.count(&cpu.watch, None);
            if nodes.is_head(me) {
                return false;
            }
            if remaining == 0 {
                if self.held.take() {
                    return true;
                }
                remaining = TRY_EVERY << (nodes.update_distance(me) - 1);
            }
            remaining -= spins.spin(cpu.pv, remaining);
        }
    }
}

impl Ticketless for UnfairQueuedLock {
    const FIFO: bool = false;
    const BYPASS: Bypass = Bypass::Unbounded;

    #[inline]
    fn take<P: Pv, W: Watch>(&self, _: &Cpu<'_, P, W>) -> bool {
        self.held.take()
    }

    #[cold]
    #[inline(never)]
    fn wait<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, _: &mut Waits) {
        settle(cpu);
        let nodes = &cpu.waiters.nodes;
        let Some(me) = nodes.alloc(cpu.id) else {
            return acquire::wait_without_node(self, cpu, || self.held.take());
        };
        let mut spins = Spins::new(&cpu.watch);
        let is_behind = self.queue.join_linked(nodes, me);
        cpu.watch.queued(LockKey::new(self).address(), Some(nodes.position(me)));
        let is_taken = is_behind && self.try_behind(cpu, me, &mut spins);
        if !is_taken {
            spins.until(cpu, None, || self.held.take());
        }
        self.queue.remove(nodes, me, || cpu.pv.spin_hint());
    }

    #[inline]
    fn release<P: Pv, W: Watch>(&self, _: &Cpu<'_, P, W>) -> bool {
        self.held.release_plain();
        false
    }

    crate::queue::waiters_of_queue!(held);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_stage::Stage;

    #[test]
    fn a_waiter_takes_a_free_lock_from_behind_a_preempted_head() {
        let stage = Stage::new(UnfairQueuedLock::new(), |stage, _| {
            if stage.pauses.get() == 1 {
                stage.unlock(0);
            }
        });
        assert!(!stage.lock(0).slow);
        let (queue, nodes) = (&stage.lock.queue, &stage.waiters.nodes);
        let heads = [1, 2].map(|cpu| nodes.alloc(cpu).expect("none in use"));
        for head in heads {
            queue.join_linked(nodes, head);
        }
        assert!(stage.lock(3).slow);
        assert_eq!(stage.pauses.get(), 2 * TRY_EVERY, "the second behind the head");
        assert!(stage.is_contended(), "the others still queue");
        let link = || panic!("all are linked");
        assert_eq!(queue.leave(nodes, heads[0], link), Some(heads[1]));
        nodes.make_head(heads[1]);
        assert_eq!(queue.leave(nodes, heads[1], link), None);
        stage.unlock(3);
        assert!(stage.try_lock(1));
    }
}
