//! A queued lock that records its holder; waiters yield to it along the queue.

use crate::acquire::{self, Ticketless};
use crate::halt::Waits;
use crate::node::NodeId;
use crate::owned::{Owned, Seen};
use crate::queue::Queue;
use crate::sync::{AtomicU16, Ordering};
use crate::wait::LockKey;
use crate::watch::Spins;
use crate::{Bypass, Cpu, Pv, Watch, settle};

/// Spin iterations of a newcomer at the word before it queues (Linux: `steal_spins`).
const STEAL_SPINS: u32 = 32;
/// The same while the holder is on another socket (`remote_steal_spins`).
const REMOTE_STEAL_SPINS: u32 = 4;
/// Spin iterations of the head of the queue before it keeps newcomers out (`head_spins`).
const HEAD_SPINS: u32 = 256;
/// Factor for these numbers once a CPU knows of a preempted holder (`pv_sleepy_lock_factor`).
const SLEEPY_FACTOR: u32 = 256;

/// A queue in front of a word with the holder's CPU: the queued spinlocks of powerpc for shared
/// processors (N. Piggin, "powerpc/qspinlock", Linux 6.2; rules and constants of 6.12).
///
/// - An arriving CPU polls the word for 32 spin iterations, or 4 if the holder is on another socket, and takes it if it
///   is free, ahead of the queue. Then it queues.
/// - The head of the queue polls the word. After 256 spin iterations newcomers have to queue at
///   once, until the head has the lock.
/// - A CPU that polls the word donates its slice to a preempted holder ([`Pv::yield_to`]) and marks the lock as sleepy
///   until its release. For CPUs that have found a sleepy lock or a preempted holder, the numbers above are 256 times
///   as large.
/// - The head hints to the waiter behind it that the holder is preempted; the hint travels along the queue. A waiter
///   with the hint also donates its slice to a preempted holder, otherwise to the waiter ahead if that is preempted.
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

/// A CPU's polling of the word.
#[derive(Default)]
struct Poll {
    iterations: u32,
    /// Whether the lock was sleepy or its holder preempted.
    is_sleepy: bool,
}

impl Poll {
    const fn limit(&self, iterations: u32) -> u32 {
        if self.is_sleepy { iterations * SLEEPY_FACTOR } else { iterations }
    }

    const fn has_reached(&self, iterations: u32) -> bool {
        self.iterations >= self.limit(iterations)
    }

    /// Completes an iteration that found the lock held: yields to a preempted holder, or else spins, for at most as many
    /// iterations as remain until `limit`, if it has not been reached.
    fn spin<P: Pv, W: Watch>(
        &mut self,
        lock: &OwnerYieldLock,
        cpu: &Cpu<'_, P, W>,
        seen: Seen,
        spins: &mut Spins,
        limit: u32,
    ) {
        self.is_sleepy |= seen.is_sleepy();
        if lock.yield_to_holder(cpu, seen) {
            self.is_sleepy = true;
            self.iterations = self.iterations.saturating_add(1);
            return;
        }
        let remaining = self.limit(limit).saturating_sub(self.iterations);
        let max = if remaining == 0 { u32::MAX } else { remaining };
        self.iterations = self.iterations.saturating_add(spins.spin(cpu.pv, max));
    }
}

impl OwnerYieldLock {
    /// Creates a free lock.
    pub const fn new() -> Self {
        Self { word: Owned::new(), queue: Queue::new(), must_queue: AtomicU16::new(0) }
    }

    fn must_queue(&self) -> bool {
        self.must_queue.load(Ordering::Relaxed) != 0
    }

    /// Polls ahead of the queue. Returns whether the caller holds the lock.
    fn take_ahead<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, spins: &mut Spins) -> bool {
        let nodes = &cpu.waiters.nodes;
        let socket = cpu.pv.socket();
        // For CPUs that poll while the caller holds the lock.
        nodes.set_socket(NodeId::new(cpu.id, 0), socket);
        let is_remote = |owner: usize| nodes.socket(NodeId::new(owner, 0)) != socket;
        let mut poll = Poll::default();
        loop {
            spins.count(&cpu.watch, None);
            // A CPU that has checked before may still take the lock once.
            if self.must_queue() {
                return false;
            }
            let Err(seen) = self.word.take_or_see(cpu.id) else { return true };
            let limit = if is_remote(seen.owner()) { REMOTE_STEAL_SPINS } else { STEAL_SPINS };
            if poll.has_reached(limit) {
                return false;
            }
            poll.spin(self, cpu, seen, spins, limit);
        }
    }

    /// Marks the lock as sleepy and yields to the holder `seen`, if that is preempted. Returns whether it is.
    fn yield_to_holder<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, seen: Seen) -> bool {
        let is_off = cpu.pv.is_off(seen.owner());
        if is_off {
            self.word.mark_sleepy(seen);
            cpu.pv.yield_to(seen.owner());
        }
        is_off
    }

    /// Hints to the waiter behind `me` that the holder `seen` is preempted, if so.
    fn hint_behind<P: Pv, W: Watch>(cpu: &Cpu<'_, P, W>, me: NodeId, seen: Seen) {
        let nodes = &cpu.waiters.nodes;
        if let Some(next) = nodes.linked_behind(me)
            && cpu.pv.is_off(seen.owner())
        {
            nodes.give_hint(next);
        }
    }

    /// Waits behind the node `before` until `me` is the head.
    fn wait_behind<P: Pv, W: Watch>(
        &self,
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
            if !self.yield_behind(cpu, before, me) {
                spins.spin(cpu.pv, u32::MAX);
            }
        }
    }

    /// Yields to a preempted holder, with a hint or if the waiter ahead is preempted, or to that waiter. Returns whether
    /// it has yielded.
    fn yield_behind<P: Pv, W: Watch>(
        &self,
        cpu: &Cpu<'_, P, W>,
        before: NodeId,
        me: NodeId,
    ) -> bool {
        let nodes = &cpu.waiters.nodes;
        let is_before_off = cpu.pv.is_off(before.cpu());
        if nodes.has_hint(me) || is_before_off {
            if let Some(seen) = self.word.seen() {
                Self::hint_behind(cpu, me, seen);
                if self.yield_to_holder(cpu, seen) {
                    return true;
                }
            }
            nodes.clear_hint(me);
        }
        if is_before_off {
            cpu.pv.yield_to(before.cpu());
        }
        is_before_off
    }

    /// Waits until `me`, the head, has the lock.
    fn wait_as_head<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, spins: &mut Spins, me: NodeId) {
        let mut poll = Poll::default();
        let mut keeps_out = false;
        loop {
            spins.count(&cpu.watch, None);
            let Err(seen) = self.word.take_or_see(cpu.id) else { break };
            Self::hint_behind(cpu, me, seen);
            poll.spin(self, cpu, seen, spins, HEAD_SPINS);
            if !keeps_out && poll.has_reached(HEAD_SPINS) {
                keeps_out = true;
                self.must_queue.store(1, Ordering::Relaxed);
            }
        }
        if keeps_out {
            self.must_queue.store(0, Ordering::Relaxed);
        }
    }
}

impl Ticketless for OwnerYieldLock {
    const FIFO: bool = false;
    const BYPASS: Bypass = Bypass::Unbounded;

    #[inline]
    fn take<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> bool {
        !self.must_queue() && self.word.take(cpu.id)
    }

    #[cold]
    #[inline(never)]
    fn wait<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, _: &mut Waits) {
        cpu.watch.queued(LockKey::new(self).address(), None);
        settle(cpu);
        let nodes = &cpu.waiters.nodes;
        let mut spins = Spins::new(&cpu.watch);
        if self.take_ahead(cpu, &mut spins) {
            return;
        }
        let Some(me) = nodes.alloc(cpu.id) else {
            return acquire::wait_without_node(self, cpu, || self.take(cpu));
        };
        nodes.clear_hint(me);
        let before = self.queue.join_behind(nodes, me);
        cpu.watch.queued(LockKey::new(self).address(), Some(nodes.position(me)));
        if let Some(before) = before {
            self.wait_behind(cpu, &mut spins, before, me);
        }
        self.wait_as_head(cpu, &mut spins, me);
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

    /// A newcomer to a sleepy lock queues after 256 times as many spin iterations.
    #[test]
    fn newcomers_poll_a_sleepy_lock_for_longer() {
        let stage = Stage::new(OwnerYieldLock::new(), |stage, _| {
            if stage.is_contended() {
                stage.unlock(2);
            }
        });
        assert!(!stage.lock(2).slow);
        stage.lock(5);
        assert_eq!(stage.pauses.take(), STEAL_SPINS + 1);
        stage.unlock(5);
        assert!(!stage.lock(2).slow);
        let held = stage.lock.word.seen().expect("2 holds it");
        stage.lock.word.mark_sleepy(held);
        stage.lock(5);
        assert_eq!(stage.pauses.get(), STEAL_SPINS * SLEEPY_FACTOR + 1);
        stage.unlock(5);
        assert!(stage.try_lock(2));
        assert!(!stage.lock.word.seen().is_some_and(Seen::is_sleepy), "cleared by a release");
    }

    #[test]
    fn waiters_yield_to_a_preempted_holder_by_hint() {
        let stage = Stage::new(OwnerYieldLock::new(), |stage, step| {
            let nodes = &stage.waiters.nodes;
            match step {
                Step::YieldTo(2) => assert!(!nodes.make_head(NodeId::new(5, 0)), "it spins"),
                // The head, once it runs, finds the holder preempted.
                Step::YieldTo(4) => {
                    stage.off.set(1 << 2);
                    let held = stage.lock.word.seen().expect("2 holds it");
                    OwnerYieldLock::hint_behind(&stage.cpu(4), NodeId::new(4, 0), held);
                }
                _ => {}
            }
        });
        let nodes = &stage.waiters.nodes;
        let [head, me] = [4, 5].map(|cpu| nodes.alloc(cpu).expect("none in use"));
        assert_eq!(stage.lock.queue.join_behind(nodes, head), None);
        assert_eq!(stage.lock.queue.join_behind(nodes, me), Some(head));
        assert!(stage.lock.word.take(2));
        stage.off.set(1 << 4);
        let cpu = stage.cpu(5);
        stage.lock.wait_behind(&cpu, &mut Spins::new(&cpu.watch), head, me);
        assert_eq!(stage.yielded_to.get(), Some(2), "after 4, which was before it");
    }

    #[test]
    fn newcomers_queue_once_the_head_forbids_steals() {
        let stage = Stage::without_waits(OwnerYieldLock::new());
        assert!(stage.try_lock(1));
        stage.unlock(1);
        stage.lock.must_queue.store(1, Ordering::Relaxed);
        assert!(!stage.try_lock(1));
        assert!(stage.lock.word.take(2), "the head may");
    }
}
