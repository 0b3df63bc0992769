//! Kicks that are to be delivered later: by a thread of their own, so that no kicker waits.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    io,
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicU32, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    thread::{self, Builder, JoinHandle, Thread},
    time::Duration,
};

use super::Board;
use crate::{
    clock::Moment,
    units::{Nanos, VcpuCount, VcpuId},
};

/// Kicks of one vCPU that may be on their way to the courier.
const ROOM: u32 = 256;

/// Kicks that the courier holds at most, 1.5 MiB of them. When so many are on their way, outboxes
/// fill, and a kick that finds no room comes at once, and is counted as such.
const MOST: usize = 64 << 10;

/// Stack of its thread.
const STACK_BYTES: usize = 128 << 10;

/// How a kick reaches its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum KickPath {
    /// By its latch, wherever it halts.
    Latch,
    /// By an MSI alone: it halts in KVM.
    Doorbell,
}

/// A kick to deliver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DelayedKick {
    pub(super) due: Nanos,
    pub(super) target: VcpuId,
    pub(super) via: KickPath,
}

#[derive(Debug, Default)]
struct Place {
    due: AtomicU64,
    /// The target, shifted by one, and a bit for [`KickPath::Doorbell`].
    target: AtomicU32,
}

/// What one vCPU has posted: it writes, the courier reads.
#[derive(Debug)]
#[repr(align(128))]
struct DelayQueue {
    places: [Place; ROOM as usize],
    written: AtomicU32,
    taken: Taken,
}

/// Written by the courier, and so in lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Taken(AtomicU32);

impl DelayQueue {
    fn new() -> Self {
        Self {
            places: [const { Place { due: AtomicU64::new(0), target: AtomicU32::new(0) } };
                ROOM as usize],
            written: AtomicU32::new(0),
            taken: Taken::default(),
        }
    }

    /// Owner. False: there is no room.
    fn put(&self, letter: DelayedKick) -> bool {
        let written = self.written.load(Relaxed);
        if written.wrapping_sub(self.taken.0.load(Acquire)) >= ROOM {
            return false;
        }
        let place = &self.places[(written % ROOM) as usize];
        place.due.store(letter.due.0, Relaxed);
        place
            .target
            .store(letter.target.0 << 1 | u32::from(letter.via == KickPath::Doorbell), Relaxed);
        self.written.store(written.wrapping_add(1), Release);
        true
    }

    /// Courier.
    fn take(&self) -> Option<DelayedKick> {
        let taken = self.taken.0.load(Relaxed);
        if taken == self.written.load(Acquire) {
            return None;
        }
        let place = &self.places[(taken % ROOM) as usize];
        let target = place.target.load(Relaxed);
        let letter = DelayedKick {
            due: Nanos(place.due.load(Relaxed)),
            target: VcpuId(target >> 1),
            via: if target & 1 == 0 { KickPath::Latch } else { KickPath::Doorbell },
        };
        self.taken.0.store(taken.wrapping_add(1), Release);
        Some(letter)
    }
}

/// The courier of one machine, as its vCPUs see it.
#[derive(Debug)]
pub(super) struct DelayedKicks {
    outboxes: Box<[DelayQueue]>,
    thread: OnceLock<Thread>,
}

impl DelayedKicks {
    pub(super) fn new(vcpus: VcpuCount) -> Self {
        Self { outboxes: vcpus.ids().map(|_| DelayQueue::new()).collect(), thread: OnceLock::new() }
    }

    /// By the thread of vCPU `id`. False: it cannot be delivered later.
    pub(super) fn post(&self, id: VcpuId, letter: DelayedKick) -> bool {
        let Some(thread) = self.thread.get() else { return false };
        let posted = self.outboxes[id.0 as usize].put(letter);
        if posted {
            thread.unpark();
        }
        posted
    }

    /// Takes what was posted, as far as there is room for it.
    fn collect(&self, into: &mut BinaryHeap<Reverse<DelayedKick>>) {
        for outbox in &self.outboxes {
            while into.len() < MOST
                && let Some(letter) = outbox.take()
            {
                into.push(Reverse(letter));
            }
        }
    }
}

/// Starts the thread; it ends when the machine stops and it is unparked.
pub fn start(board: Arc<Board>) -> io::Result<JoinHandle<()>> {
    Builder::new().name("courier".into()).stack_size(STACK_BYTES).spawn(move || {
        if let Some(courier) = board.courier() {
            let _ = courier.thread.set(thread::current());
            run(courier, &board);
        }
    })
}

fn run(courier: &DelayedKicks, board: &Board) {
    let mut letters = BinaryHeap::new();
    while !board.stopping() {
        courier.collect(&mut letters);
        let now = Moment::now().reading();
        while let Some(Reverse(letter)) = letters.peek().copied()
            && letter.due <= now
        {
            letters.pop();
            board.deliver_late(letter.target, letter.via);
        }
        match letters.peek() {
            Some(Reverse(letter)) => {
                thread::park_timeout(Duration::from_nanos(letter.due.since(now).0));
            }
            None => thread::park(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outbox_keeps_order_and_has_an_end() {
        let outbox = DelayQueue::new();
        let letter = |n: u32| DelayedKick {
            due: Nanos(n.into()),
            target: VcpuId(n % 128),
            via: if n.is_multiple_of(2) { KickPath::Latch } else { KickPath::Doorbell },
        };
        for round in 0..3 {
            for n in 0..ROOM {
                assert!(outbox.put(letter(round * ROOM + n)));
            }
            assert!(!outbox.put(letter(0)));
            for n in 0..ROOM {
                assert_eq!(outbox.take(), Some(letter(round * ROOM + n)));
            }
            assert_eq!(outbox.take(), None);
        }
    }

    #[test]
    fn no_guest_makes_the_courier_hold_more_than_its_room() {
        let courier = DelayedKicks::new(VcpuCount::try_from(2).unwrap());
        let letter = DelayedKick { due: Nanos::NEVER, target: VcpuId(0), via: KickPath::Latch };
        let mut held = BinaryHeap::new();
        let mut posted = 0;
        while courier.outboxes[0].put(letter) {
            posted += 1;
            courier.collect(&mut held);
        }
        assert_eq!((held.len(), posted), (MOST, MOST + ROOM as usize));
        // Those that were delivered make room.
        held.pop();
        courier.collect(&mut held);
        assert_eq!(held.len(), MOST);
        assert!(courier.outboxes[0].put(letter) && !courier.outboxes[0].put(letter));
    }

    #[test]
    fn nobody_is_there_to_deliver_before_the_thread_is() {
        let courier = DelayedKicks::new(VcpuCount::ONE);
        let letter = DelayedKick { due: Nanos(1), target: VcpuId(0), via: KickPath::Latch };
        assert!(!courier.post(VcpuId(0), letter));
    }
}
