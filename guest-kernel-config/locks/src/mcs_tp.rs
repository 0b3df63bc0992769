//! The MCS lock with time-published waiters.

use crate::acquire::{self, Ticketless};
use crate::halt::Waits;
use crate::handed::HandedQueue;
use crate::node::{Gate, NodeId};
use crate::sync::{AtomicU16, AtomicU64, Ordering};
use crate::watch::Spins;
use crate::{Bypass, Cpu, Pv, Watch, settle};

/// The gate of a node that a holder has passed over: its CPU has to queue again. Not more than 1, unlike
/// an open gate ([`crate::Position`]).
const SKIPPED: Gate = Gate(1);

/// Spin iterations of a waiter between two of its timestamps. The paper has one in each; more are cheaper to simulate,
/// and these take less than half of [`STALE_TICKS`] even if a PAUSE takes 140 cycles.
const STAMP_EVERY: u32 = 64;
/// A waiter whose last timestamp is older than this, in [`Pv::ticks`], is assumed to be preempted: about
/// 10 us (`UPDATE_DELAY` of the authors' and RCL's code).
const STALE_TICKS: u64 = 25_000;
/// Time that a waiter spins before it yields, and between two yields: about 50 us (`PATIENCE`).
const PATIENCE_TICKS: u64 = 125_000;
/// A holder that has had the lock for longer than this, about 10 us, is assumed to be preempted. (`MAX_CS_TIME`: an upper
/// bound on a critical section, 10 ms in RCL's code for its applications.)
const LONG_HOLD_TICKS: u64 = 25_000;

/// [`McsLock`](crate::McsLock) that infers from timestamps which CPUs are preempted: after B. He,
/// W. N. Scherer III and M. L. Scott, "Preemption Adaptivity in Time-Published Queue-Based Spin Locks"
/// (HiPC 2005), MCS-TP.
///
/// - A waiter writes the time into its node every 64 spin iterations. A releasing holder passes over nodes
///   with an old time: their CPUs queue again once they run. If all times are old, it frees the lock.
/// - A holder records its successor and the time. Every 50 us, a waiter donates its slice to a holder that has had the
///   lock for long ([`Pv::yield_to`]), and is passed over until it runs again; the paper's threads yield to any thread.
///
/// The host is not asked about preemptions: both are guesses. So there is no bound on bypasses of a CPU that is
/// preempted or yields in line: it may be passed over each time. Supports as many CPUs as
/// [`QueuedLock`](crate::QueuedLock).
#[derive(Debug, Default)]
#[repr(C, align(8))]
pub struct McsTpLock {
    queue: HandedQueue,
    /// The holder's CPU plus one; zero if there was none yet. A hint.
    owner: AtomicU16,
    /// Acquisition time of the holder. A hint.
    since: AtomicU64,
}

impl McsTpLock {
    /// Creates a free lock.
    pub const fn new() -> Self {
        Self { queue: HandedQueue::new(), owner: AtomicU16::new(0), since: AtomicU64::new(0) }
    }

    /// Records the calling CPU as the holder, from now on.
    #[inline]
    fn set_owner<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) {
        self.record(cpu.id, cpu.pv.ticks());
    }

    fn record(&self, owner: usize, now: u64) {
        self.since.store(now, Ordering::Relaxed);
        self.owner.store(owner as u16 + 1, Ordering::Relaxed);
    }

    /// Queues once. Returns whether the CPU of `me` got the lock; otherwise it was passed over.
    fn queue_once<P: Pv, W: Watch>(
        &self,
        cpu: &Cpu<'_, P, W>,
        spins: &mut Spins,
        me: NodeId,
    ) -> bool {
        let nodes = &cpu.waiters.nodes;
        nodes.stamp(me, cpu.pv.ticks());
        if !self.queue.join(cpu, me) {
            return true;
        }
        let gate = self.wait_at(cpu, spins, me);
        if gate != SKIPPED {
            self.queue.record_handover();
        }
        gate != SKIPPED
    }

    /// Spins until the gate of `me` is no longer closed.
    fn wait_at<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, spins: &mut Spins, me: NodeId) -> Gate {
        let nodes = &cpu.waiters.nodes;
        let (mut remaining, mut last_yield) = (0, cpu.pv.ticks());
        loop {
            spins.count(&cpu.watch, None);
            let gate = nodes.gate(me);
            if gate != Gate::CLOSED {
                return gate;
            }
            if remaining == 0 {
                let now = cpu.pv.ticks();
                nodes.stamp(me, now);
                if now.saturating_sub(last_yield) > PATIENCE_TICKS {
                    self.yield_to_long_holder(cpu, me, now);
                    last_yield = cpu.pv.ticks();
                }
                remaining = STAMP_EVERY;
            }
            remaining -= spins.spin(cpu.pv, remaining);
        }
    }

    /// Yields to a holder that has had the lock for long. Meanwhile, `me` is passed over.
    fn yield_to_long_holder<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, me: NodeId, now: u64) {
        let owner = usize::from(self.owner.load(Ordering::Relaxed)).checked_sub(1);
        // The time of a holder that has just got the lock may be later.
        let held = now.saturating_sub(self.since.load(Ordering::Relaxed));
        if let Some(owner) = owner.filter(|owner| *owner != cpu.id && held > LONG_HOLD_TICKS) {
            cpu.waiters.nodes.stamp(me, 0);
            cpu.pv.yield_to(owner);
            cpu.waiters.nodes.stamp(me, cpu.pv.ticks());
        }
    }

    /// The first waiter from `first` on that seems to run; waiters before it are passed over. `None` if no
    /// waiter does; the lock is then free.
    fn first_running<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, first: NodeId) -> Option<NodeId> {
        let (nodes, now) = (&cpu.waiters.nodes, cpu.pv.ticks());
        let mut node = first;
        while now.saturating_sub(nodes.stamped(node)) > STALE_TICKS {
            // Finds the next node first: once the CPU of `node` is notified, the node may be reused.
            let behind = self.queue.successor_or_free(cpu, node);
            nodes.open(node, SKIPPED);
            node = behind?;
        }
        Some(node)
    }
}

impl Ticketless for McsTpLock {
    const FIFO: bool = false;
    const BYPASS: Bypass = Bypass::WhileRunning;

    #[inline]
    fn take<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> bool {
        let is_taken = self.queue.take_free();
        if is_taken {
            self.set_owner(cpu);
        }
        is_taken
    }

    #[cold]
    #[inline(never)]
    fn wait<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, _: &mut Waits) {
        settle(cpu);
        let nodes = &cpu.waiters.nodes;
        let mut spins = Spins::new(&cpu.watch);
        let Some(me) = nodes.alloc(cpu.id) else {
            return acquire::wait_without_node(self, cpu, || self.take(cpu));
        };
        while !self.queue_once(cpu, &mut spins, me) {
            nodes.reset(me);
        }
        self.set_owner(cpu);
        self.queue.replace_node(cpu, me);
        nodes.free(me);
    }

    #[inline]
    fn release<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> bool {
        let first = self.queue.next_or_free(|| cpu.pv.spin_hint());
        if let Some(next) = first.and_then(|first| self.first_running(cpu, first)) {
            self.record(next.cpu(), cpu.pv.ticks());
            // From here on the lock may be freed memory.
            cpu.waiters.nodes.open(next, Gate::OPEN);
        }
        false
    }

    crate::handed::waiters_of_handed_queue!(queue);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_stage::{Stage, Step};

    /// Puts a CPU into the queue, where it does not spin yet.
    fn join(stage: &Stage<McsTpLock>, id: usize) -> NodeId {
        let nodes = &stage.waiters.nodes;
        let me = nodes.alloc(id).expect("none in use");
        nodes.stamp(me, stage.now.get());
        assert!(stage.lock.queue.join(&stage.cpu(id), me));
        me
    }

    #[test]
    fn a_release_skips_waiters_with_stale_timestamps() {
        let stage = Stage::without_waits(McsTpLock::new());
        assert!(stage.try_lock(0));
        let [stale, also_stale] = [1, 2].map(|id| join(&stage, id));
        stage.now.set(2 + STALE_TICKS);
        let fresh = join(&stage, 3);
        stage.unlock(0);
        let gates = [stale, also_stale, fresh].map(|node| stage.waiters.nodes.gate(node));
        assert_eq!(gates, [SKIPPED, SKIPPED, Gate::OPEN]);
        stage.lock.queue.replace_node(&stage.cpu(3), fresh);
        assert!(!stage.is_contended(), "they have to queue again");
    }

    #[test]
    fn a_waiter_yields_to_a_long_holder() {
        let stage = Stage::new(McsTpLock::new(), |stage, step| match step {
            Step::YieldTo(holder) => {
                stage.unlock(holder);
                assert!(!stage.is_contended(), "a CPU that yields is passed over");
            }
            _ => stage.now.set(stage.now.get() + 100),
        });
        assert!(stage.try_lock(4));
        assert!(stage.lock(1).slow);
        assert_eq!(stage.yielded_to.get(), Some(4));
        assert!(stage.now.get() > PATIENCE_TICKS);
    }
}
