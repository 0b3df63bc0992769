//! Store buffers: a plain store that misses does not hold its CPU up.
//!
//! The store is made when its transfer begins, which takes all copies away: until the transfer ends
//! nobody can see the line, so memory stays sequentially consistent, and all but the CPU itself see
//! the store when it ends. If the line is busy, the CPU waits for it as for any access, or those with
//! copies would see the store before they lose them. Loads overtake stores that are on their way; a
//! read-modify-write waits for them, as a locked instruction does (Intel SDM, volume 3, section 9.2.3).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use sim_cell::Access;

use super::*;

/// Stores of a CPU that may be on their way: lines that it can wait for (line fill buffers of its
/// first-level cache; 10 of Skylake, 16 of Golden Cove).
const ROOM: usize = 10;

/// The stores of all CPUs that are on their way.
#[derive(Debug)]
pub(super) struct PendingStores {
    /// By CPU: their lines.
    lines: Box<[Vec<u32>]>,
    /// When each has its line, in which order they were made, CPU and line.
    ends: BinaryHeap<Reverse<(Picos, u64, u16, u32)>>,
    made: u64,
    /// By CPU: its vCPU waits for the end of a store, and then makes its request again.
    has_waiter: Box<[bool]>,
}

impl PendingStores {
    pub(super) fn new(cpus: usize) -> Self {
        Self {
            lines: vec![Vec::new(); cpus].into(),
            ends: BinaryHeap::new(),
            made: 0,
            has_waiter: vec![false; cpus].into(),
        }
    }

    /// Has this CPU a store to `line` on its way? Then its own accesses find it.
    #[inline(always)]
    pub(super) fn has(&self, pcpu: usize, line: usize) -> bool {
        self.lines[pcpu].contains(&(line as u32))
    }

    /// Has it any?
    #[inline(always)]
    pub(super) fn is_storing(&self, pcpu: usize) -> bool {
        !self.lines[pcpu].is_empty()
    }

    fn next_end(&self) -> Picos {
        self.ends.peek().map_or(Picos::NEVER, |Reverse((at, ..))| *at)
    }
}

/// What a store buffer does with an access.
pub(super) enum Buffered {
    /// The access takes place now.
    Now,
    /// The access has to wait for the buffer.
    Waits,
    /// Nothing: it needs its line.
    Not,
}

impl Sim {
    /// The leaf of the stores among the timers.
    fn stores_leaf(&self) -> usize {
        self.late_leaf() + 1 + self.pcpus.len()
    }

    /// `v` makes an access that does not hit, or a read-modify-write while stores are on their way.
    pub(super) fn buffered(
        &mut self,
        v: usize,
        pcpu: usize,
        line: usize,
        access: Access,
    ) -> Buffered {
        if !self.buffers_stores {
            return Buffered::Not;
        }
        let is_full = self.stores.lines[pcpu].len() >= ROOM;
        match access {
            Access::ReadModifyWrite if self.stores.is_storing(pcpu) => self.await_store(v, pcpu),
            Access::ReadModifyWrite => Buffered::Not,
            _ if self.stores.has(pcpu, line) => Buffered::Now,
            Access::Load => Buffered::Not,
            Access::Store if is_full => self.await_store(v, pcpu),
            Access::Store if self.lines.is_busy(line) => Buffered::Not,
            Access::Store => self.store(pcpu, line),
        }
    }

    /// `v` makes its request again when a store of its CPU has ended.
    fn await_store(&mut self, v: usize, pcpu: usize) -> Buffered {
        self.stores.has_waiter[pcpu] = true;
        self.expect(v, pcpu, NextEvent::Due, Picos::NEVER);
        Buffered::Waits
    }

    /// Does the vCPU on this CPU wait for one of its stores?
    pub(super) fn awaits_store(&self, pcpu: usize) -> bool {
        self.stores.has_waiter[pcpu]
    }

    /// The vCPU on this CPU leaves it, and will make its request again when it has one.
    pub(super) fn stop_awaiting_store(&mut self, pcpu: usize) {
        self.stores.has_waiter[pcpu] = false;
    }

    /// A store to a line that is not busy.
    fn store(&mut self, pcpu: usize, line: usize) -> Buffered {
        let Some(cost) = self.lines.request(line, pcpu, Access::Store, &mut self.woken) else {
            debug_assert!(false, "its transfer begins at once");
            return Buffered::Now;
        };
        match cost {
            Picos::ZERO => self.complete(line),
            cost => {
                self.wake_all();
                let PendingStores { lines, ends, made, .. } = &mut self.stores;
                lines[pcpu].push(line as u32);
                ends.push(Reverse((self.now + cost, *made, pcpu as u16, line as u32)));
                *made += 1;
                self.set_timer(self.stores_leaf(), self.stores.next_end());
            }
        }
        Buffered::Now
    }

    /// The stores that have their line now.
    pub(super) fn end_stores(&mut self) {
        while self.stores.next_end() <= self.now {
            let Some(Reverse((_, _, pcpu, line))) = self.stores.ends.pop() else { break };
            let pcpu = usize::from(pcpu);
            self.stores.lines[pcpu].retain(|stored| *stored != line);
            self.complete(line as usize);
            if std::mem::take(&mut self.stores.has_waiter[pcpu]) {
                self.events.set(pcpu, self.now.max(self.pcpus[pcpu].entered));
            }
        }
        self.set_timer(self.stores_leaf(), self.stores.next_end());
    }
}

#[cfg(test)]
mod tests {
    use crate::machine::Stores;
    use crate::tests::{MILLI, run, spec};
    use crate::{Load, Picos, Span, System};

    /// A release is a plain store to a line that a waiter looks at.
    #[test]
    fn a_holder_does_not_wait_for_the_line_that_it_releases() {
        let rate = |system, stores| {
            let mut spec = spec(system, 2, "rr");
            spec.machine.stores = stores;
            spec.load =
                Load { has_data: true, ..Load::of(Span::Fixed(Picos(0)), Span::Fixed(Picos(0))) };
            let figures = run(&spec, Picos(20 * MILLI.0));
            assert_eq!((figures.violations, figures.disorder), (0, 0), "{system}");
            figures.rate()
        };
        for system in [System::Queued, System::PvQueued, System::NativeTicket] {
            let [buffered, waiting] =
                [Stores::Buffered, Stores::Waiting].map(|stores| rate(system, stores));
            assert!(
                buffered > 1.05 * waiting,
                "{system}: {buffered} with a buffer, {waiting} without"
            );
        }
    }
}
