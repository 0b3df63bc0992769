//! The lock of Mellor-Crummey and Scott, with waiters that show that they run.

use crate::acquire;
use crate::node::{Gate, NodeId};
use crate::sync::{AtomicU16, AtomicU64, MAX_CPUS, Ordering};
use crate::turns::Turns;
use crate::wait::LockKey;
use crate::watch::Looks;
use crate::{Awaited, Bypass, Cpu, Pv, RawLock, Released, Taken, WaitTable, Watch, settle};

/// The lock is free.
const FREE: u16 = 0;
/// The lock is held, and no CPU waits. No node has this name.
const ALONE: u16 = 1;
/// A node's gate: a holder has passed it over, and its CPU has to queue again. Not more than 1, as an
/// open gate is ([`Awaited`]).
const SKIPPED: Gate = Gate(1);

/// Looks of a waiter between two of its stamps.
const STAMP_EVERY: u32 = 64;
/// A waiter whose last stamp is older than so many ticks of [`Pv::ticks`] is taken for preempted:
/// some 50 us, ten times as long as 64 looks take.
const STALE: u64 = 125_000;
/// So is a holder that has had the lock for so long: some 10 us.
const LONG: u64 = 25_000;

/// [`McsLock`](crate::McsLock) for CPUs that are preempted, as far as times tell: after B. He, W. N.
/// Scherer III and M. L. Scott, "Preemption Adaptivity in Time-Published Queue-Based Spin Locks"
/// (HiPC 2005), MCS-TP.
///
/// - A waiter writes the time into its node every 64 looks. A holder that releases passes over nodes
///   whose time is old: their CPUs queue again once they run. If all are old, it frees the lock.
/// - A holder writes the time at which it got the lock. A waiter gives its turn to one that has had
///   it for long ([`Pv::yield_to`]), where the paper's threads yield to any other.
///
/// Nothing is asked of the host about preemptions: both are guesses. So there is no bound on
/// bypasses: a CPU is passed over as often as it is preempted in line. It counts CPUs as
/// [`QueuedLock`](crate::QueuedLock) does.
#[derive(Debug, Default)]
#[repr(C, align(8))]
pub struct McsTpLock {
    /// [`FREE`], [`ALONE`], or the name of the last node in the queue.
    tail: AtomicU16,
    /// The node of the first waiter, once it is linked; zero: none. Zero while the lock is free.
    next: AtomicU16,
    /// One more than the holder's CPU; zero: there was none yet. A hint.
    owner: AtomicU16,
    turns: Turns,
    /// When the holder got the lock. A hint.
    since: AtomicU64,
}

impl McsTpLock {
    /// A free lock.
    pub const fn new() -> Self {
        Self {
            tail: AtomicU16::new(FREE),
            next: AtomicU16::new(0),
            owner: AtomicU16::new(0),
            turns: Turns::new(),
            since: AtomicU64::new(0),
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    fn take_free<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> bool {
        let is_taken = acquire::take_zero(&self.tail, ALONE);
        if is_taken {
            self.own(cpu);
        }
        is_taken
    }

    /// The calling CPU has got the lock.
    #[inline]
    fn own<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) {
        self.since.store(cpu.pv.ticks(), Ordering::Relaxed);
        self.owner.store(cpu.id as u16 + 1, Ordering::Relaxed);
    }

    #[cold]
    #[inline(never)]
    fn wait<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) {
        settle(cpu);
        let nodes = &cpu.waiters.nodes;
        let mut looks = Looks::new(&cpu.watch);
        let Some(me) = nodes.begin(cpu.id) else {
            // A nested handler, and all nodes of its CPU are in use: it waits outside of the queue.
            cpu.watch.queued(LockKey::of(self).address(), None);
            return looks.until(cpu, None, || self.take_free(cpu));
        };
        while !self.queue_once(cpu, &mut looks, me) {
            nodes.renew(me);
        }
        self.own(cpu);
        self.put_lock_for(cpu, me);
        nodes.end(me);
    }

    /// Queues until the CPU of `me` has the lock, which is `true`, or was passed over.
    fn queue_once<P: Pv, W: Watch>(
        &self,
        cpu: &Cpu<'_, P, W>,
        looks: &mut Looks,
        me: NodeId,
    ) -> bool {
        let nodes = &cpu.waiters.nodes;
        nodes.stamp(me, cpu.pv.ticks());
        // Release, for the node that the next CPU links to; acquire, for the previous node and for
        // what was done under a lock that is free now.
        let before = self.tail.swap(me.name(), Ordering::AcqRel);
        if before == FREE {
            return true;
        }
        match NodeId::parse(before) {
            Some(before) => nodes.link(before, me),
            None => self.next.store(me.name(), Ordering::Release),
        }
        cpu.watch.queued(LockKey::of(self).address(), Some(nodes.awaited_gate(me)));
        let gate = self.wait_at(cpu, looks, me);
        if gate != SKIPPED {
            self.turns.begin();
        }
        gate != SKIPPED
    }

    /// Looks at the gate of `me` until it is not closed any more.
    fn wait_at<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, looks: &mut Looks, me: NodeId) -> Gate {
        let nodes = &cpu.waiters.nodes;
        let mut left = 0;
        loop {
            looks.count(&cpu.watch, None);
            let gate = nodes.gate(me);
            if gate != Gate::CLOSED {
                return gate;
            }
            if left == 0 {
                let now = cpu.pv.ticks();
                nodes.stamp(me, now);
                self.yield_to_long_holder(cpu, now);
                left = STAMP_EVERY;
            }
            left -= looks.spin(cpu.pv, left);
        }
    }

    fn yield_to_long_holder<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, now: u64) {
        let owner = usize::from(self.owner.load(Ordering::Relaxed)).checked_sub(1);
        // A holder that has just got it may show a time that is later.
        let held = now.saturating_sub(self.since.load(Ordering::Relaxed));
        if let Some(owner) = owner.filter(|owner| *owner != cpu.id && held > LONG) {
            cpu.pv.yield_to(owner);
        }
    }

    /// The lock's own `next` takes the place of the holder's node `me`.
    fn put_lock_for<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, me: NodeId) {
        // Before the tail: from then on the next CPU links to it.
        self.next.store(0, Ordering::Relaxed);
        let last = me.name();
        // Release, for the store above. The lock itself orders what is done under it.
        if self.tail.compare_exchange(last, ALONE, Ordering::Release, Ordering::Relaxed).is_ok() {
            return;
        }
        let next = cpu.waiters.nodes.next(me, || cpu.pv.spin_hint());
        self.next.store(next.name(), Ordering::Relaxed);
    }

    /// The node of the first waiter. None: no CPU waited, and the lock is free.
    fn first_or_free(&self, mut look_again: impl FnMut()) -> Option<NodeId> {
        if let Some(next) = self.next() {
            return Some(next);
        }
        if self.tail.compare_exchange(ALONE, FREE, Ordering::Release, Ordering::Relaxed).is_ok() {
            return None;
        }
        // A CPU has swapped the tail, and links itself in its next step.
        loop {
            look_again();
            if let Some(next) = self.next() {
                return Some(next);
            }
        }
    }

    /// Acquire, for the waiter's node.
    fn next(&self) -> Option<NodeId> {
        NodeId::parse(self.next.load(Ordering::Acquire))
    }

    /// The first waiter from `first` on that seems to run; those before it are passed over. None: there is
    /// none, and the lock is free.
    fn first_running<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, first: NodeId) -> Option<NodeId> {
        let (nodes, now) = (&cpu.waiters.nodes, cpu.pv.ticks());
        let mut node = first;
        while now.saturating_sub(nodes.stamped(node)) > STALE {
            // First who is behind it: once its CPU is told, the node may be used again.
            let behind = self.behind_or_free(cpu, node);
            nodes.open(node, SKIPPED);
            node = behind?;
        }
        Some(node)
    }

    /// The node behind `node`. None: it was the last, and the lock is free.
    fn behind_or_free<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, node: NodeId) -> Option<NodeId> {
        let nodes = &cpu.waiters.nodes;
        if let Some(behind) = nodes.linked_behind(node) {
            return Some(behind);
        }
        // Before the tail, as in `put_lock_for`.
        self.next.store(0, Ordering::Relaxed);
        let last = node.name();
        if self.tail.compare_exchange(last, FREE, Ordering::Release, Ordering::Relaxed).is_ok() {
            return None;
        }
        Some(nodes.next(node, || cpu.pv.spin_hint()))
    }
}

impl RawLock for McsTpLock {
    const FIFO: bool = false;
    const BYPASS: Bypass = Bypass::Unbounded;
    const CPUS: u32 = MAX_CPUS as u32;

    #[inline]
    fn lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Taken {
        acquire::lock(self, cpu, || self.take_free(cpu), || self.wait(cpu))
    }

    #[inline]
    fn try_lock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Option<Taken> {
        acquire::try_lock(self, cpu, || self.take_free(cpu))
    }

    #[inline]
    fn unlock<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> Released {
        let first = self.first_or_free(|| cpu.pv.spin_hint());
        if let Some(next) = first.and_then(|first| self.first_running(cpu, first)) {
            // From here on the lock may be freed memory.
            cpu.waiters.nodes.open(next, Gate::OPEN);
        }
        cpu.watch.released();
        Released::default()
    }

    fn is_contended(&self) -> bool {
        self.tail.load(Ordering::Relaxed) > ALONE
    }

    fn wait_until_released<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) {
        let is_free = || self.tail.load(Ordering::Acquire) == FREE;
        self.turns.wait_until_released(is_free, || cpu.pv.spin_hint());
    }

    fn releases_before(&self, waiters: &WaitTable, awaited: Awaited) -> Option<u16> {
        waiters.nodes.releases_before_gate(awaited, self.next.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Handoff, Unwatched};
    use core::cell::Cell;

    #[test]
    fn the_lock_is_sixteen_bytes() {
        assert_eq!((size_of::<McsTpLock>(), align_of::<McsTpLock>()), (16, 8));
    }

    /// All CPUs on one thread, with a clock that is set.
    struct Stage {
        lock: McsTpLock,
        waiters: WaitTable,
        now: Cell<u64>,
        given: Cell<Option<usize>>,
    }

    impl Stage {
        fn new() -> Self {
            let (lock, waiters) = (McsTpLock::new(), WaitTable::new());
            Self { lock, waiters, now: Cell::new(1), given: Cell::new(None) }
        }

        fn cpu(&self, id: usize) -> Cpu<'_, Self> {
            let (waiters, handoff) = (&self.waiters, Handoff::default());
            Cpu { id, spin_threshold: 0, pv: self, waiters, watch: Unwatched, handoff }
        }

        /// The CPU joins the queue, and does not look yet.
        fn join(&self, id: usize) -> NodeId {
            let nodes = &self.waiters.nodes;
            let me = nodes.begin(id).expect("none in use");
            nodes.stamp(me, self.now.get());
            match NodeId::parse(self.lock.tail.swap(me.name(), Ordering::Relaxed)) {
                Some(before) => nodes.link(before, me),
                None => self.lock.next.store(me.name(), Ordering::Relaxed),
            }
            me
        }
    }

    impl Pv for Stage {
        fn spin_hint(&self) {}

        fn lock_spinning(&self, _: u16) {
            panic!("no CPU halts");
        }

        fn unlock_kick(&self, _: usize) {
            panic!("no CPU halts");
        }

        fn ticks(&self) -> u64 {
            self.now.get()
        }

        fn yield_to(&self, cpu: usize) {
            self.given.set(Some(cpu));
            self.lock.unlock(&self.cpu(cpu));
        }
    }

    #[test]
    fn a_release_passes_over_those_that_have_not_looked_for_long() {
        let stage = Stage::new();
        assert!(stage.lock.try_lock(&stage.cpu(0)).is_some());
        let [old, other] = [1, 2].map(|id| stage.join(id));
        stage.now.set(2 + STALE);
        let new = stage.join(3);
        stage.lock.unlock(&stage.cpu(0));
        let gates = [old, other, new].map(|node| stage.waiters.nodes.gate(node));
        assert_eq!(gates, [SKIPPED, SKIPPED, Gate::OPEN]);
        stage.lock.put_lock_for(&stage.cpu(3), new);
        assert!(!stage.lock.is_contended(), "they have to queue again");
    }

    #[test]
    fn a_lock_whose_waiters_all_seem_preempted_is_free() {
        let stage = Stage::new();
        assert!(stage.lock.try_lock(&stage.cpu(0)).is_some());
        let old = stage.join(1);
        stage.now.set(2 + STALE);
        stage.lock.unlock(&stage.cpu(0));
        assert_eq!(stage.waiters.nodes.gate(old), SKIPPED);
        assert!(stage.lock.try_lock(&stage.cpu(2)).is_some());
        assert!(!stage.lock.is_contended());
        stage.lock.unlock(&stage.cpu(2));
        assert!(stage.lock.try_lock(&stage.cpu(1)).is_some());
    }

    #[test]
    fn a_waiter_gives_its_turn_to_a_holder_that_has_had_the_lock_for_long() {
        let stage = Stage::new();
        assert!(stage.lock.try_lock(&stage.cpu(4)).is_some());
        stage.now.set(2 + LONG);
        assert!(stage.lock.lock(&stage.cpu(1)).slow);
        assert_eq!(stage.given.get(), Some(4));
    }
}
