//! Store buffers: a plain store that misses does not stall its CPU.
//!
//! The store takes effect when its transfer begins, which removes all copies. Until the transfer ends,
//! only the storing CPU can see the line, so memory stays sequentially consistent; others see the store
//! when it ends. If the line is busy, the CPU waits for it as for any access: otherwise CPUs with
//! copies would see the store before they lose them. Loads overtake pending stores. A read-modify-write
//! waits for them, as a locked instruction does (Intel SDM, volume 3, section 9.2.3).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use sim_cell::Access;

use super::*;

/// Maximum number of pending stores of a CPU: the line fill buffers of its first-level cache (10 in
/// Skylake, 16 in Golden Cove).
const CAPACITY: usize = 10;

#[derive(Debug)]
pub(super) struct PendingStores {
    /// Lines of the pending stores, by CPU.
    lines: Box<[Vec<u32>]>,
    /// All pending stores: end of the transfer, sequence number, CPU and line.
    ends: BinaryHeap<Reverse<(Picos, u64, u16, u32)>>,
    sequence: u64,
    /// Per CPU: whether its vCPU waits for the end of a store to repeat its request.
    has_waiter: Box<[bool]>,
}

impl PendingStores {
    pub(super) fn new(cpus: usize) -> Self {
        Self {
            lines: vec![Vec::new(); cpus].into(),
            ends: BinaryHeap::new(),
            sequence: 0,
            has_waiter: vec![false; cpus].into(),
        }
    }

    /// Whether this CPU has a pending store to `line`, which its loads and stores hit.
    #[inline(always)]
    pub(super) fn has(&self, pcpu: usize, line: usize) -> bool {
        self.lines[pcpu].contains(&(line as u32))
    }

    /// Whether this CPU has any pending store.
    #[inline(always)]
    pub(super) fn is_storing(&self, pcpu: usize) -> bool {
        !self.lines[pcpu].is_empty()
    }

    fn next_end(&self) -> Picos {
        self.ends.peek().map_or(Picos::NEVER, |Reverse((at, ..))| *at)
    }
}

/// The effect of a store buffer on an access.
pub(super) enum Buffered {
    /// The access takes effect now.
    Now,
    /// The access has to wait for the buffer.
    Wait,
    /// The buffer does not apply: the access needs its line.
    Bypass,
}

impl Sim {
    fn stores_leaf(&self) -> usize {
        self.late_leaf() + 1 + self.pcpus.len()
    }

    /// Handles an access of `v` that misses, or a read-modify-write while stores are pending.
    pub(super) fn buffered(
        &mut self,
        v: usize,
        pcpu: usize,
        line: usize,
        access: Access,
    ) -> Buffered {
        if !self.buffers_stores {
            return Buffered::Bypass;
        }
        let is_full = self.stores.lines[pcpu].len() >= CAPACITY;
        match access {
            Access::ReadModifyWrite if self.stores.is_storing(pcpu) => self.await_store(v, pcpu),
            Access::ReadModifyWrite => Buffered::Bypass,
            _ if self.stores.has(pcpu, line) => Buffered::Now,
            Access::Load => Buffered::Bypass,
            Access::Store if is_full => self.await_store(v, pcpu),
            Access::Store if self.lines.is_busy(line) => Buffered::Bypass,
            Access::Store => self.store(pcpu, line),
        }
    }

    /// Makes `v` repeat its request when a store of its CPU has completed.
    fn await_store(&mut self, v: usize, pcpu: usize) -> Buffered {
        self.stores.has_waiter[pcpu] = true;
        self.expect(v, pcpu, NextEvent::Due, Picos::NEVER);
        Buffered::Wait
    }

    /// Whether the vCPU on this CPU waits for one of its stores.
    pub(super) fn awaits_store(&self, pcpu: usize) -> bool {
        self.stores.has_waiter[pcpu]
    }

    /// Cancels the wait of the vCPU that leaves this CPU. It repeats its request when it has a CPU.
    pub(super) fn stop_awaiting_store(&mut self, pcpu: usize) {
        self.stores.has_waiter[pcpu] = false;
    }

    /// Starts a store to a line that is not busy.
    fn store(&mut self, pcpu: usize, line: usize) -> Buffered {
        let Some(cost) = self.lines.request(line, pcpu, Access::Store, &mut self.woken) else {
            debug_assert!(false, "its transfer begins at once");
            return Buffered::Now;
        };
        match cost {
            Picos::ZERO => self.complete(line),
            cost => {
                self.resume_spinners();
                let PendingStores { lines, ends, sequence, .. } = &mut self.stores;
                lines[pcpu].push(line as u32);
                ends.push(Reverse((self.now + cost, *sequence, pcpu as u16, line as u32)));
                *sequence += 1;
                self.set_timer(self.stores_leaf(), self.stores.next_end());
            }
        }
        Buffered::Now
    }

    /// Completes the stores whose transfers end now.
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

    /// A release is a plain store to a line that a waiter spins on.
    #[test]
    fn store_buffers_speed_up_releases() {
        let rate = |system, stores| {
            let mut spec = spec(system, 2, "rr");
            spec.machine.stores = stores;
            spec.load =
                Load { has_data: true, ..Load::new(Span::Fixed(Picos(0)), Span::Fixed(Picos(0))) };
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
