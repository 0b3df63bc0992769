//! The reciprocating lock.

use crate::acquire::{self, Ticketless};
use crate::halt::Waits;
use crate::handovers::Handovers;
use crate::node::{Gate, NodeId};
use crate::sync::{AtomicU16, Ordering};
use crate::wait::LockKey;
use crate::watch::Spins;
use crate::{Bypass, Cpu, Position, Pv, WaitTable, Watch, settle};

const FREE: u16 = 0;
/// The lock is held, and no CPU has come since: the end of a segment that no node marks. No node
/// has this name. More than 1, like an open gate ([`Position`]).
const EMPTY: u16 = 2;

/// Waiters push themselves onto a stack; a holder whose segment has been served takes the whole
/// stack as the next segment. After D. Dice and A. Kogan, "Reciprocating Locks" (PPoPP 2025).
///
/// - An arriving CPU swaps its node's name into `arrivals`: the name that it finds there is its
///   successor, unless it is the end of the segment.
/// - A holder hands the lock to its successor, together with the name that marks the segment's end.
///   Without a successor it frees the lock, or, if others have come, empties `arrivals` and hands
///   the lock to the last of them.
///
/// So each segment is served last in, first out, and segments are served in order. Any other CPU
/// gets the lock at most twice before a waiter: once in the segment served now, and once above the
/// waiter in its own segment. The paper's first step is the swap; here a compare-exchange for a
/// free lock precedes it, so that a CPU needs a node only while it waits.
///
/// A preempted waiter blocks the waiters below it and all later segments. Supports as many CPUs as
/// [`QueuedLock`](crate::QueuedLock).
#[derive(Debug, Default)]
#[repr(C, align(8))]
pub struct ReciprocatingLock {
    /// [`FREE`], [`EMPTY`], or the node of the last CPU to come.
    arrivals: AtomicU16,
    /// The node to hand the lock to; zero: the segment has been served. Only the holder writes
    /// this and `end`.
    successor: AtomicU16,
    /// The name at the end of a segment: of the segment served now if there is a successor,
    /// otherwise of the next segment, whose lowest node finds it in `arrivals`.
    end: AtomicU16,
    handovers: Handovers,
}

impl ReciprocatingLock {
    /// Creates a free lock.
    pub const fn new() -> Self {
        Self {
            arrivals: AtomicU16::new(FREE),
            successor: AtomicU16::new(0),
            end: AtomicU16::new(EMPTY),
            handovers: Handovers::new(),
        }
    }

    /// Sets the successor and the end to hand over. For the holder. Relaxed: the lock orders it.
    #[inline]
    fn set_handover(&self, successor: u16, end: u16) {
        self.successor.store(successor, Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
    }

    /// The node to hand the lock to, and the value to hand over with it. `None` if no CPU waited;
    /// the lock is then free.
    fn next_or_free(&self) -> Option<(NodeId, Gate)> {
        let end = self.end.load(Ordering::Relaxed);
        if let Some(next) = NodeId::parse(self.successor.load(Ordering::Relaxed)) {
            return Some((next, Gate(end)));
        }
        if self.arrivals.compare_exchange(end, FREE, Ordering::Release, Ordering::Relaxed).is_ok() {
            return None;
        }
        // Acquire, for the nodes of all arrivals.
        let last = self.arrivals.swap(EMPTY, Ordering::AcqRel);
        NodeId::parse(last).map(|last| (last, Gate(end)))
    }
}

impl Ticketless for ReciprocatingLock {
    const FIFO: bool = false;
    const BYPASS: Bypass = Bypass::TimesFromQueue(2);

    #[inline]
    fn take<P: Pv, W: Watch>(&self, _: &Cpu<'_, P, W>) -> bool {
        let is_taken = acquire::take_zero(&self.arrivals, EMPTY);
        if is_taken {
            self.set_handover(0, EMPTY);
        }
        is_taken
    }

    #[cold]
    #[inline(never)]
    fn wait<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, _: &mut Waits) {
        settle(cpu);
        let nodes = &cpu.waiters.nodes;
        let Some(me) = nodes.alloc(cpu.id) else {
            return acquire::wait_without_node(self, cpu, || self.take(cpu));
        };
        // Release, for the node that a holder writes to; acquire, for earlier holders' writes if
        // the lock is free now.
        let below = self.arrivals.swap(me.name(), Ordering::AcqRel);
        if below == FREE {
            // The name stays behind as the end of the next segment; no CPU follows it.
            self.set_handover(0, me.name());
        } else {
            cpu.watch.queued(LockKey::new(self).address(), Some(nodes.gate_position(me)));
            Spins::new(&cpu.watch).until(cpu, None, || nodes.gate(me) != Gate::CLOSED);
            let end = nodes.gate(me).0;
            let is_last = below == EMPTY || below == end;
            if is_last {
                self.set_handover(0, EMPTY)
            } else {
                self.set_handover(below, end)
            }
            self.handovers.record();
        }
        nodes.free(me);
    }

    #[inline]
    fn release<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) -> bool {
        if let Some((next, gate)) = self.next_or_free() {
            // From here on the lock may be freed memory.
            cpu.waiters.nodes.open(next, gate);
        }
        false
    }

    fn is_contended(&self) -> bool {
        let arrivals = self.arrivals.load(Ordering::Relaxed);
        let has_arrivals = arrivals != FREE && arrivals != self.end.load(Ordering::Relaxed);
        has_arrivals || self.successor.load(Ordering::Relaxed) != 0
    }

    fn wait_until_released<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) {
        let is_free = || self.arrivals.load(Ordering::Acquire) == FREE;
        self.handovers.wait_until_released(is_free, || cpu.pv.spin_hint());
    }

    fn releases_before(&self, waiters: &WaitTable, position: Position) -> Option<u16> {
        waiters.nodes.releases_before_gate(position, self.successor.load(Ordering::Relaxed))
    }
}
