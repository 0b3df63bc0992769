//! Delayed kicks. Each vCPU posts its kicks to a queue, and the VM's delivery thread
//! ([`PendingKicks`]) delivers them when they are due. No kicker waits.

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::{cmp::Reverse, collections::BinaryHeap};

use base::units::{Nanos, VcpuCount, VcpuId};

/// Capacity of each vCPU's queue of delayed kicks.
const CAPACITY: u32 = 256;

/// Maximum number of kicks in a [`PendingKicks`], which take 1 MiB. Beyond that the queues fill up. A
/// kick that finds its queue full is delivered at once and counted as such.
const MAX_PENDING: usize = 64 << 10;

/// Path of a kick to its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KickPath {
    /// Through the target's latch, for halts in the VMM or in KVM.
    Latch,
    /// By an MSI alone, for a target that halts in KVM.
    Doorbell,
}

/// A kick to deliver at `due`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DelayedKick {
    /// Time of delivery, monotonic clock.
    pub due: Nanos,
    /// The vCPU to kick.
    pub target: VcpuId,
    /// Path of the kick.
    pub path: KickPath,
}

#[derive(Debug)]
struct QueuedKick {
    due: AtomicU64,
    /// The target, shifted left by one; bit 0: [`KickPath::Doorbell`].
    target: AtomicU32,
}

impl QueuedKick {
    const fn new() -> Self {
        Self { due: AtomicU64::new(0), target: AtomicU32::new(0) }
    }
}

/// Kicks posted by one vCPU. Written by that vCPU, read by the delivery thread.
#[derive(Debug)]
#[repr(align(128))]
struct DelayQueue {
    entries: [QueuedKick; CAPACITY as usize],
    written: AtomicU32,
    taken: TakenCount,
}

/// Written by the delivery thread and therefore in separate cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct TakenCount(AtomicU32);

impl DelayQueue {
    fn new() -> Self {
        Self {
            entries: [const { QueuedKick::new() }; CAPACITY as usize],
            written: AtomicU32::new(0),
            taken: TakenCount::default(),
        }
    }

    /// Appends a kick. Called by the owner. Returns false if the queue is full.
    fn push(&self, kick: DelayedKick) -> bool {
        let written = self.written.load(Relaxed);
        if written.wrapping_sub(self.taken.0.load(Acquire)) >= CAPACITY {
            return false;
        }
        let entry = &self.entries[(written % CAPACITY) as usize];
        entry.due.store(kick.due.0, Relaxed);
        entry
            .target
            .store(kick.target.0 << 1 | u32::from(kick.path == KickPath::Doorbell), Relaxed);
        self.written.store(written.wrapping_add(1), Release);
        true
    }

    /// Removes the oldest kick. Called by the delivery thread.
    fn pop(&self) -> Option<DelayedKick> {
        let taken = self.taken.0.load(Relaxed);
        if taken == self.written.load(Acquire) {
            return None;
        }
        let entry = &self.entries[(taken % CAPACITY) as usize];
        let target = entry.target.load(Relaxed);
        let kick = DelayedKick {
            due: Nanos(entry.due.load(Relaxed)),
            target: VcpuId(target >> 1),
            path: if target & 1 == 0 { KickPath::Latch } else { KickPath::Doorbell },
        };
        self.taken.0.store(taken.wrapping_add(1), Release);
        Some(kick)
    }
}

/// The queues of one VM.
#[derive(Debug)]
pub struct DelayedKicks(Box<[DelayQueue]>);

impl DelayedKicks {
    /// Creates empty queues for `vcpus` vCPUs.
    pub fn new(vcpus: VcpuCount) -> Self {
        Self(vcpus.ids().map(|_| DelayQueue::new()).collect())
    }

    /// Posts a kick. Called by the thread of vCPU `id`, which then unparks the delivery thread.
    /// Returns false if the queue is full.
    #[must_use = "a kick that was not posted has to be delivered at once"]
    pub fn post(&self, id: VcpuId, kick: DelayedKick) -> bool {
        self.0[id.0 as usize].push(kick)
    }
}

/// Kicks that the delivery thread has collected and not yet delivered.
#[derive(Debug, Default)]
pub struct PendingKicks {
    kicks: BinaryHeap<Reverse<DelayedKick>>,
}

impl PendingKicks {
    /// Collects the posted kicks and delivers those due at `now`. Returns the due time of the next
    /// pending kick, if any.
    pub fn deliver_due(
        &mut self,
        posted: &DelayedKicks,
        now: Nanos,
        deliver: impl Fn(DelayedKick),
    ) -> Option<Nanos> {
        loop {
            // Again once the due kicks are delivered: there may not have been room for all.
            self.collect(posted);
            if self.kicks.is_empty() {
                return None;
            }
            while let Some(Reverse(kick)) = self.kicks.peek().copied() {
                if kick.due > now {
                    return Some(kick.due);
                }
                self.kicks.pop();
                deliver(kick);
            }
        }
    }

    /// Collects the posted kicks as far as there is room.
    fn collect(&mut self, posted: &DelayedKicks) {
        for queue in &posted.0 {
            while self.kicks.len() < MAX_PENDING
                && let Some(kick) = queue.pop()
            {
                self.kicks.push(Reverse(kick));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_fifo_and_bounded() {
        let queue = DelayQueue::new();
        let kick = |n: u32| DelayedKick {
            due: Nanos(n.into()),
            target: VcpuId(n % 128),
            path: if n.is_multiple_of(2) { KickPath::Latch } else { KickPath::Doorbell },
        };
        for round in 0..3 {
            for n in 0..CAPACITY {
                assert!(queue.push(kick(round * CAPACITY + n)));
            }
            assert!(!queue.push(kick(0)));
            for n in 0..CAPACITY {
                assert_eq!(queue.pop(), Some(kick(round * CAPACITY + n)));
            }
            assert_eq!(queue.pop(), None);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "65 536 kicks take minutes")]
    fn pending_kicks_are_bounded() {
        let posted = DelayedKicks::new(VcpuCount::ONE);
        let mut pending = PendingKicks::default();
        let kick = |due| DelayedKick { due, target: VcpuId(0), path: KickPath::Latch };
        let post = |due| posted.post(VcpuId(0), kick(due));
        let mut count = 0;
        while post(Nanos(7)) {
            count += 1;
            pending.collect(&posted);
        }
        assert_eq!((pending.kicks.len(), count), (MAX_PENDING, MAX_PENDING + CAPACITY as usize));
        // Delivered kicks make room.
        pending.kicks.pop();
        pending.collect(&posted);
        assert_eq!(pending.kicks.len(), MAX_PENDING);
        assert!(post(Nanos(7)) && !post(Nanos(7)));
        // Regression: kicks without room were not delivered until another was posted.
        let delivered = std::cell::Cell::new(0);
        let deliver = |_| delivered.set(delivered.get() + 1);
        assert_eq!(pending.deliver_due(&posted, Nanos(7), deliver), None);
        assert_eq!(delivered.get(), count);
    }

    #[test]
    fn kicks_are_delivered_in_order_when_due() {
        let posted = DelayedKicks::new(VcpuCount::try_from(2).unwrap());
        let mut pending = PendingKicks::default();
        for (id, due) in [(0, 30), (1, 10), (0, 20)] {
            let kick = DelayedKick { due: Nanos(due), target: VcpuId(1), path: KickPath::Latch };
            assert!(posted.post(VcpuId(id), kick));
        }
        let delivered = std::cell::RefCell::new(Vec::new());
        let mut deliver = |now| {
            let next = pending.deliver_due(&posted, Nanos(now), |kick| {
                delivered.borrow_mut().push(kick.due.0);
            });
            (delivered.take(), next)
        };
        assert_eq!(deliver(9), (vec![], Some(Nanos(10))));
        assert_eq!(deliver(20), (vec![10, 20], Some(Nanos(30))));
        assert_eq!(deliver(30), (vec![30], None));
    }
}
