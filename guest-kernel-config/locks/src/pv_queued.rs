//! The PV queued lock.

use crate::acquire::Ticketless;
use crate::halt::Waits;
use crate::held::Held;
use crate::node::NodeId;
use crate::queue::Queue;
use crate::wait::LockKey;
use crate::watch::Spins;
use crate::{Bypass, Cpu, Place, Pv, Release, Watch, settle};

/// A queued lock of four bytes whose waiters halt after [`Cpu::spin_threshold`] spin iterations,
/// and whose queue newcomers may bypass. Later kernels run it in overcommitted guests instead of PV
/// ticketlocks. After W. Long's "hybrid PV queued/unfair locks" (2015).
///
/// - A newcomer tries once, even if others queue, unless the lock is reserved. Then it queues.
/// - The head of the queue reserves the lock as soon as it runs. It gives the reservation up when
///   it halts for the first time, so that others can use the lock until its CPU is awake; at later
///   halts it keeps the reservation.
/// - A head that has taken the lock makes the next waiter the head. If that waiter halts, it is
///   kicked at the release, like a head that halts: one kick per release, looked up in the
///   [`WaitTable`](crate::WaitTable) by the lock's address.
///
/// So the queue is first in, first out, but the lock is not. There is no bound on steals while the
/// head does not run. Once it runs after its first halt as head, or if it does not halt at all,
/// only the present holder precedes it.
///
/// Supports as many CPUs as [`QueuedLock`](crate::QueuedLock).
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

    /// For nested handlers that have used up all nodes of the CPU.
    fn wait_without_node<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) {
        cpu.watch.queued(self.key().address(), None);
        while !self.held.take_unreserved() {
            cpu.pv.spin_hint();
        }
    }

    /// Spins up to the threshold, at least once. Returns `true` if there is no need to halt.
    fn spin_until<P: Pv, W: Watch>(
        cpu: &Cpu<'_, P, W>,
        spins: &mut Spins,
        is_over: impl Fn() -> bool,
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
            if remaining == 0 {
                spins.restart();
                return false;
            }
            remaining -= spins.spin(cpu.pv, remaining);
        }
    }

    /// Waits until `me` is the head of the queue.
    fn wait_in_queue<P: Pv, W: Watch>(
        &self,
        cpu: &Cpu<'_, P, W>,
        me: NodeId,
        waits: &mut Waits,
        spins: &mut Spins,
    ) {
        let nodes = &cpu.waiters.nodes;
        while !Self::spin_until(cpu, spins, || nodes.is_head(me)) {
            // Either the CPU that makes it the head sees that it halts, and kicks it at the
            // release; or this CPU sees that it is the head.
            waits.halt_unless(cpu, self.key(), me.level(), || !nodes.begin_halt(me));
            nodes.end_halt(me);
        }
    }

    /// Waits until the head of the queue has the lock.
    fn wait_as_head<P: Pv, W: Watch>(
        &self,
        cpu: &Cpu<'_, P, W>,
        me: NodeId,
        waits: &mut Waits,
        spins: &mut Spins,
    ) {
        let mut has_halted = false;
        loop {
            self.held.reserve();
            if Self::spin_until(cpu, spins, || self.held.take()) {
                return;
            }
            waits.halt_unless(cpu, self.key(), me.level(), || {
                let is_held = if has_halted {
                    self.held.request_kick()
                } else {
                    self.held.unreserve_and_request_kick()
                };
                !is_held
            });
            has_halted = true;
        }
    }

    /// Leaves the queue with the lock taken. Only this CPU has set the lock's flags, as long as no
    /// other CPU is the head.
    fn leave<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, me: NodeId) {
        let nodes = &cpu.waiters.nodes;
        self.held.clear_flags();
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
    const BYPASS: Bypass = Bypass::Unbounded;

    #[inline]
    fn take<P: Pv, W: Watch>(&self, _: &Cpu<'_, P, W>) -> bool {
        self.held.take_unreserved()
    }

    #[cold]
    #[inline(never)]
    fn wait<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, waits: &mut Waits) {
        settle(cpu);
        let Some(me) = cpu.waiters.nodes.alloc(cpu.id) else {
            return self.wait_without_node(cpu);
        };
        let nodes = &cpu.waiters.nodes;
        self.queue.join(nodes, me);
        cpu.watch.queued(self.key().address(), Some(nodes.position(me)));
        let mut spins = Spins::new(&cpu.watch);
        self.wait_in_queue(cpu, me, waits, &mut spins);
        self.wait_as_head(cpu, me, waits, &mut spins);
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

    /// Acts for the other CPUs while CPU 1 halts.
    fn act(stage: &Stage<PvQueuedLock>, step: Step) {
        assert_eq!(step, Step::Halt, "with no threshold it halts at once");
        match stage.halts.get() {
            1 => {
                assert_eq!(stage.unlock(0).kicks, 1);
                assert!(stage.try_lock(2), "the head is not awake");
                assert_eq!(stage.unlock(2).kicks, 0, "it was kicked");
                assert!(stage.try_lock(3));
            }
            2 => {
                assert!(stage.is_contended());
                assert_eq!(stage.unlock(3).kicks, 1);
                assert!(!stage.try_lock(2), "now it is reserved");
            }
            _ => panic!("it is the head's"),
        }
    }

    #[test]
    fn newcomers_steal_during_the_first_halt_of_the_head() {
        let stage = Stage::new(PvQueuedLock::new(), act);
        assert!(!stage.lock(0).slow);
        let taken = stage.lock(1);
        assert_eq!((taken.slow, taken.halts), (true, 2));
        assert!(!stage.is_contended());
        assert_eq!(stage.unlock(1).kicks, 0);
        assert!(stage.try_lock(2), "the reservation is gone");
        assert_eq!(stage.kicks.get(), [0, 2, 0, 0]);
    }
}
