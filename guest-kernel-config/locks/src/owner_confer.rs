//! Locks that record their holder, to which waiters yield: s390's, with and without a queue.

use crate::acquire::Ticketless;
use crate::halt::Waits;
use crate::node::NodeId;
use crate::owned::{Owned, yield_if_off};
use crate::queue::Queue;
use crate::sync::{AtomicU16, Ordering};
use crate::wait::LockKey;
use crate::watch::Spins;
use crate::{Bypass, Cpu, Pv, Watch, settle};

/// Spin iterations of a waiter between two checks whether the awaited CPU is preempted (Linux: `spin_retry`).
const CONFER_EVERY: u32 = 1000;

/// A queue in front of a word with the holder's CPU: s390's spinlocks on dedicated CPUs (M. Schwidefsky, "s390/spinlock:
/// introduce spinlock wait queueing", Linux 4.15; `arch_spin_lock_queued`). On shared CPUs, s390 uses
/// [`OwnerConferClassicLock`].
///
/// - An arriving CPU takes a free word ahead of the queue, if fewer than three CPUs have done so
///   since the head of the queue was last served. Otherwise it queues.
/// - A waiter checks at once and every 1000 spin iterations whether the holder is running, and
///   donates its slice to a preempted holder ([`Pv::yield_to`]). While the lock is free, it checks
///   the head of the queue instead. (In Linux, a waiter behind the head checks the CPU that held the lock when it
///   queued.)
///
/// First in, first out, apart from the steals: a preempted head delays all waiters behind it until
/// one of them donates its slice. Supports as many CPUs as [`QueuedLock`](crate::QueuedLock).
#[derive(Debug, Default)]
#[repr(C, align(8))]
pub struct OwnerConferLock {
    word: Owned,
    queue: Queue,
    /// The CPU of the head of the queue plus one; zero if there was none yet. A hint.
    head: AtomicU16,
}

impl OwnerConferLock {
    /// Creates a free lock.
    pub const fn new() -> Self {
        Self { word: Owned::new(), queue: Queue::new(), head: AtomicU16::new(0) }
    }

    /// The CPU that has to run before any other gets the lock.
    fn awaited_cpu(&self) -> Option<usize> {
        let head = || usize::from(self.head.load(Ordering::Relaxed)).checked_sub(1);
        self.word.owner().or_else(head)
    }

    fn name_head(&self, cpu: usize) {
        self.head.store(cpu as u16 + 1, Ordering::Relaxed);
    }

    /// Leaves the queue with the lock taken. Names the next head, which may not be running to do so.
    fn leave<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, me: NodeId) {
        let nodes = &cpu.waiters.nodes;
        if let Some(next) = self.queue.leave(nodes, me, || cpu.pv.spin_hint()) {
            self.name_head(next.cpu());
            nodes.make_head(next);
        }
        nodes.free(me);
    }
}

/// Spins until `is_over`. At first and after every [`CONFER_EVERY`] spin iterations, yields to `awaited` if that CPU is
/// preempted.
fn wait_until<P: Pv, W: Watch>(
    cpu: &Cpu<'_, P, W>,
    spins: &mut Spins,
    awaited: impl Fn() -> Option<usize>,
    is_over: impl Fn() -> bool,
) {
    let mut remaining = 0;
    loop {
        spins.count(&cpu.watch, None);
        if is_over() {
            return;
        }
        if remaining == 0 {
            yield_if_off(cpu, awaited());
            // A separate iteration: it took longer than the following ones.
            spins.spin(cpu.pv, 1);
            remaining = CONFER_EVERY;
        } else {
            remaining -= spins.spin(cpu.pv, remaining);
        }
    }
}

impl Ticketless for OwnerConferLock {
    const FIFO: bool = false;
    const BYPASS: Bypass = Bypass::TimesFromQueue(4);

    #[inline]
    fn take<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> bool {
        self.word.steal(cpu.id, self.queue.is_empty())
    }

    #[cold]
    #[inline(never)]
    fn wait<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, _: &mut Waits) {
        settle(cpu);
        let nodes = &cpu.waiters.nodes;
        let mut spins = Spins::new(&cpu.watch);
        let awaited = || self.awaited_cpu();
        let Some(me) = nodes.alloc(cpu.id) else {
            // A nested handler with all nodes of its CPU in use waits outside the queue.
            cpu.watch.queued(LockKey::new(self).address(), None);
            return wait_until(cpu, &mut spins, awaited, || {
                self.word.steal(cpu.id, self.queue.is_empty())
            });
        };
        if self.queue.join_behind(nodes, me).is_none() {
            self.name_head(cpu.id);
        }
        cpu.watch.queued(LockKey::new(self).address(), Some(nodes.position(me)));
        wait_until(cpu, &mut spins, awaited, || nodes.is_head(me));
        wait_until(cpu, &mut spins, awaited, || self.word.take(cpu.id));
        self.leave(cpu, me);
    }

    #[inline]
    fn release<P: Pv, W: Watch>(&self, _: &Cpu<'_, P, W>) -> bool {
        self.word.release(self.queue.is_empty());
        false
    }

    crate::queue::waiters_of_queue!(word);
}

/// A word with the holder's CPU that all waiters poll: s390's spinlocks on shared CPUs (`arch_spin_lock_classic`).
///
/// A waiter checks at once and every 1000 spin iterations whether the holder is preempted, and donates its slice to a
/// preempted holder ([`Pv::yield_to`]). (On LPARs, Linux does the same. In guests of z/VM or KVM it yields in any case,
/// which the hypervisor ignores if the holder is running.)
///
/// There is no order and no bound on bypasses, and the lock does not know its waiters:
/// [`RawLock::is_contended`](crate::RawLock::is_contended) is always false.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct OwnerConferClassicLock(Owned);

impl OwnerConferClassicLock {
    /// Creates a free lock.
    pub const fn new() -> Self {
        Self(Owned::new())
    }
}

impl Ticketless for OwnerConferClassicLock {
    const FIFO: bool = false;
    const BYPASS: Bypass = Bypass::Unbounded;

    #[inline]
    fn take<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> bool {
        self.0.take(cpu.id)
    }

    #[cold]
    #[inline(never)]
    fn wait<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, _: &mut Waits) {
        cpu.watch.queued(LockKey::new(self).address(), None);
        settle(cpu);
        let mut spins = Spins::new(&cpu.watch);
        wait_until(cpu, &mut spins, || self.0.owner(), || self.0.take(cpu.id));
    }

    #[inline]
    fn release<P: Pv, W: Watch>(&self, _: &Cpu<'_, P, W>) -> bool {
        self.0.release(true);
        false
    }

    fn is_contended(&self) -> bool {
        false
    }

    fn wait_until_released<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) {
        self.0.wait_until_released(|| cpu.pv.spin_hint());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_stage::{Stage, Step};

    #[test]
    fn a_waiter_yields_to_a_preempted_holder_at_once() {
        let stage = Stage::new(OwnerConferLock::new(), |stage, step| {
            if let Step::YieldTo(holder) = step {
                stage.off.set(0);
                stage.unlock(holder);
            }
        });
        assert!(!stage.lock(2).slow);
        stage.off.set(1 << 2);
        assert!(stage.lock(5).slow);
        assert_eq!((stage.yielded_to.get(), stage.pauses.get()), (Some(2), 1));
        assert_eq!(stage.lock.word.owner(), Some(5));
    }

    #[test]
    fn a_classic_waiter_yields_to_a_preempted_holder_every_1000_iterations() {
        let stage = Stage::new(OwnerConferClassicLock::new(), |stage, step| match step {
            Step::Pause if stage.pauses.get() == 500 => stage.off.set(1 << 2),
            Step::YieldTo(holder) => {
                stage.unlock(holder);
            }
            _ => {}
        });
        assert!(!stage.lock(2).slow);
        assert!(stage.lock(5).slow);
        assert_eq!((stage.yielded_to.get(), stage.pauses.get()), (Some(2), 1002));
    }

    #[test]
    fn waiters_watch_the_head_of_a_free_lock() {
        let stage = Stage::without_waits(OwnerConferLock::new());
        let (lock, nodes) = (&stage.lock, &stage.waiters.nodes);
        let heads = [4, 9].map(|cpu| nodes.alloc(cpu).expect("none in use"));
        for node in heads {
            lock.queue.join(nodes, node);
        }
        assert_eq!(lock.awaited_cpu(), None, "the head is not recorded yet");
        lock.leave(&stage.cpu(4), heads[0]);
        assert_eq!(lock.awaited_cpu(), Some(9));
        assert!(lock.word.take(1));
        assert_eq!(lock.awaited_cpu(), Some(1));
    }
}
