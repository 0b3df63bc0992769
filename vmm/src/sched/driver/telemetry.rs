//! Telemetry as the VMM reads it: what a vCPU does with locks at this moment.

#[cfg(test)]
mod tests;

use std::{
    array,
    mem::offset_of,
    sync::atomic::Ordering::{Acquire, Relaxed},
};

use hypercalls::telemetry::{Line, NAMED, Wait};
use vm_memory::{AtomicAccess, Bytes, GuestAddress, GuestMemoryMmap};

use crate::{
    kvm::{sys::tsc, vcpu::TscClock},
    sched::event::{LockActivity, LockId},
    units::{Gpa, Nanos, VcpuId},
};

/// Low bit of a ticketlock's head: the slowpath flag.
const FLAG: u16 = 1;
/// Distance between two tickets.
const INC: u16 = 2;

/// Where a guest-virtual address lies, for the addresses that locks have.
pub type Translate = fn(u64) -> Option<Gpa>;

/// The lines of one VM.
#[derive(Debug)]
pub struct TelemetryView {
    memory: GuestMemoryMmap,
    base: Gpa,
    translate: Translate,
    /// Indexed by vCPU: hosts whose time stamp counters are not in step give each an offset of its
    /// own.
    clocks: Box<[TscClock]>,
    kept: Kept,
}

/// Whether a guest keeps its lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// From its first instruction on.
    Always,
    /// If its kernel can: a line says nothing until its vCPU has taken a lock.
    Perhaps,
}

impl TelemetryView {
    /// The lines at `base` of a guest whose vCPUs have these time stamp counters.
    pub fn new(
        memory: GuestMemoryMmap,
        base: Gpa,
        translate: Translate,
        clocks: Box<[TscClock]>,
        kept: Kept,
    ) -> Self {
        Self { memory, base, translate, clocks, kept }
    }

    fn is_blank(&self, vcpu: VcpuId) -> bool {
        self.kept == Kept::Perhaps && self.load::<u64>(vcpu, offset_of!(Line, held_lock)) == 0
    }

    fn load<T: AtomicAccess + Default>(&self, vcpu: VcpuId, offset: usize) -> T {
        let at = self.base.0 + u64::from(vcpu.0) * size_of::<Line>() as u64 + offset as u64;
        // The lines were made a part of the guest's memory when it was built.
        self.memory.load(GuestAddress(at), Acquire).unwrap_or_default()
    }

    fn store<T: AtomicAccess>(&self, vcpu: VcpuId, offset: usize, value: T) {
        let at = self.base.0 + u64::from(vcpu.0) * size_of::<Line>() as u64 + offset as u64;
        let _ = self.memory.store(value, GuestAddress(at), Relaxed);
    }

    /// The ticket that a lock serves, if its word can be found.
    fn head(&self, lock: LockId) -> Option<u16> {
        let at = (self.translate)(lock.0).filter(|at| at.0.is_multiple_of(2))?;
        let head: u16 = self.memory.load(GuestAddress(at.0), Acquire).ok()?;
        Some(head & !FLAG)
    }

    /// What it does at `now`. Exact for a vCPU outside the guest; of one inside it may be over.
    pub fn activity(&self, vcpu: VcpuId, now: Nanos) -> LockActivity {
        let held: u32 = self.load(vcpu, offset_of!(Line, held));
        if let Some(holding) = self.holding(vcpu, held) {
            return holding;
        }
        let (wait, ticket) = Wait::parse(self.load(vcpu, offset_of!(Line, wait)));
        match wait {
            Wait::Nothing if self.is_blank(vcpu) => LockActivity::Unknown,
            Wait::Nothing => LockActivity::Free,
            Wait::Entering => LockActivity::Entering,
            Wait::Spinning | Wait::Halted => {
                let lock = self.wait_lock(vcpu);
                let distance = self.head(lock).map(|head| ticket.wrapping_sub(head) / INC);
                let (since, halted) = (self.wait_since(vcpu, now), wait == Wait::Halted);
                LockActivity::Waiting { lock, ticket, distance, since, halted }
            }
            Wait::Outside => {
                let lock = self.wait_lock(vcpu);
                let (queued, since) =
                    (self.word(lock).map(|(_, count)| count), self.wait_since(vcpu, now));
                LockActivity::Outside { lock, queued, since }
            }
            Wait::Kicking => LockActivity::Kicking { lock: self.wait_lock(vcpu), ticket },
        }
    }

    /// What a vCPU outside the guest does, as [`TelemetryView::activity`] says it; where it was stopped while
    /// it drew a ticket, what came of that, if the lines of all `vcpus` of its machine tell.
    pub fn stopped(
        &self,
        vcpu: VcpuId,
        vcpus: impl Iterator<Item = VcpuId>,
        now: Nanos,
    ) -> LockActivity {
        match self.activity(vcpu, now) {
            LockActivity::Entering => {
                self.drawn(vcpu, vcpus, now).unwrap_or(LockActivity::Entering)
            }
            known => known,
        }
    }

    /// Which ticket a stopped vCPU has drawn: the one that is out and that nobody else says to have.
    ///
    /// A processor takes an interrupt right after the locked instruction that draws, before the
    /// stores that tell of it: stops gather there. None: another vCPU draws one, too, or takes one
    /// at this moment.
    fn drawn(
        &self,
        vcpu: VcpuId,
        vcpus: impl Iterator<Item = VcpuId>,
        now: Nanos,
    ) -> Option<LockActivity> {
        let lock = LockId(self.load(vcpu, offset_of!(Line, wait_lock)));
        let before = self.word(lock)?;
        let (head, count) = before;
        // Bits of tickets, from the one that is served on.
        let out = 1_u128.checked_shl(count.into()).map_or(u128::MAX, |bit| bit - 1);
        let mut owned = 0;
        let mut all_say = true;
        for other in vcpus.filter(|other| *other != vcpu) {
            let (tickets, says_all) = self.tickets(other, lock, head);
            owned |= tickets;
            all_say &= says_all;
        }
        if self.word(lock) != Some(before) {
            return None;
        }
        let left = out & !owned;
        if left == 0 {
            return Some(LockActivity::Free);
        }
        if !all_say || !left.is_power_of_two() {
            return None;
        }
        let distance = left.trailing_zeros() as u16;
        Some(match distance {
            0 => LockActivity::Holding { lock: Some(lock), depth: 1 },
            _ => LockActivity::Waiting {
                lock,
                ticket: head.wrapping_add(distance.wrapping_mul(INC)),
                distance: Some(distance),
                // It has drawn it just now.
                since: now,
                halted: false,
            },
        })
    }

    /// The ticket that a lock serves, and how many are out, that one included.
    fn word(&self, lock: LockId) -> Option<(u16, u16)> {
        let at = (self.translate)(lock.0).filter(|at| at.0.is_multiple_of(4))?;
        let word: u32 = self.memory.load(GuestAddress(at.0), Acquire).ok()?;
        let (head, tail) = (word as u16 & !FLAG, (word >> 16) as u16);
        Some((head, tail.wrapping_sub(head) / INC))
    }

    /// Tickets of `lock` that a vCPU says to have, as bits from `head` on; and whether it says all.
    fn tickets(&self, vcpu: VcpuId, lock: LockId, head: u16) -> (u128, bool) {
        let bit =
            |ticket: u16| 1_u128.checked_shl((ticket.wrapping_sub(head) / INC).into()).unwrap_or(0);
        // Before what is held: a waiter says that it holds the lock before it says that it waits
        // no more.
        let (wait, ticket) = Wait::parse(self.load(vcpu, offset_of!(Line, wait)));
        let wait_lock: u64 = self.load(vcpu, offset_of!(Line, wait_lock));
        let is_waiting = matches!(wait, Wait::Spinning | Wait::Halted) && wait_lock == lock.0;
        let mut tickets = if is_waiting { bit(ticket) } else { 0 };
        let held: u32 = self.load(vcpu, offset_of!(Line, held));
        let named = usize::try_from(held).unwrap_or(NAMED).min(NAMED);
        for ix in 0..named {
            if self.load::<u64>(vcpu, offset_of!(Line, held_lock) + ix * 8) == lock.0 {
                tickets |= bit(self.load(vcpu, offset_of!(Line, held_ticket) + ix * 2));
            }
        }
        // What a handler says of its own lock stands in the place of a ticket that it came to.
        let hides = matches!(wait, Wait::Entering | Wait::Outside | Wait::Kicking);
        (tickets, !hides && held as usize <= NAMED)
    }

    fn wait_lock(&self, vcpu: VcpuId) -> LockId {
        LockId(self.load(vcpu, offset_of!(Line, wait_lock)))
    }

    /// When its wait began; zero if that is not known.
    fn wait_since(&self, vcpu: VcpuId, now: Nanos) -> Nanos {
        self.when(vcpu, offset_of!(Line, wait_since), now).unwrap_or_default()
    }

    /// Of `held` locks those that are still held: between the release of the innermost and the store
    /// that says so there is an instruction, and a preemption may fall there.
    fn holding(&self, vcpu: VcpuId, held: u32) -> Option<LockActivity> {
        let depth = held.checked_sub(1)?;
        let ix = usize::try_from(depth).unwrap_or(usize::MAX);
        let lock = match ix {
            0..NAMED => Some(self.held(vcpu, ix)),
            _ => None,
        };
        if lock == Some(None) {
            return self.holding(vcpu, depth);
        }
        let lock = lock.flatten();
        // A kernel that takes a lock out of their middle has a zero there for a moment.
        let outer = |at| self.held(vcpu, at).filter(|its| at < ix && its.0 != 0);
        let outer: [Option<LockId>; NAMED] = array::from_fn(outer);
        Some(match outer.iter().all(Option::is_none) {
            true => LockActivity::Holding { lock, depth: held },
            false => LockActivity::HoldingSeveral { lock, depth: held, outer },
        })
    }

    /// The lock that it says to hold at this depth, unless that serves another ticket.
    fn held(&self, vcpu: VcpuId, ix: usize) -> Option<LockId> {
        let lock = LockId(self.load(vcpu, offset_of!(Line, held_lock) + ix * 8));
        let ticket: u16 = self.load(vcpu, offset_of!(Line, held_ticket) + ix * 2);
        self.head(lock).is_none_or(|head| head == ticket).then_some(lock)
    }

    /// When the vCPU's TSC stood where its line says, by the clock that shows `now`. None for what
    /// lies in the future or more than an hour back: the guest may write what it likes.
    fn when(&self, vcpu: VcpuId, offset: usize, now: Nanos) -> Option<Nanos> {
        let clock = self.clocks.get(vcpu.0 as usize)?;
        let ago = clock.since(self.load(vcpu, offset), tsc::read())?;
        now.0.checked_sub(ago.0).map(Nanos)
    }

    /// When it released the lock of its last kick.
    pub fn released_at(&self, vcpu: VcpuId, now: Nanos) -> Option<Nanos> {
        self.when(vcpu, offset_of!(Line, released_at), now)
    }

    /// When it was back from its last halt.
    pub fn resumed_at(&self, vcpu: VcpuId, now: Nanos) -> Option<Nanos> {
        self.when(vcpu, offset_of!(Line, resumed_at), now)
    }

    /// How many locks it has taken; None: it does not count them, or has taken none.
    pub fn taken(&self, vcpu: VcpuId) -> Option<u64> {
        Some(self.load(vcpu, offset_of!(Line, taken))).filter(|count| *count > 0)
    }

    /// Asks it to yield.
    pub fn ask_to_yield(&self, vcpu: VcpuId) {
        self.store(vcpu, offset_of!(Line, yield_wanted), 1u32);
    }

    /// Tells the others whether it has a CPU.
    pub fn set_off_cpu(&self, vcpu: VcpuId, off: bool) {
        self.store(vcpu, offset_of!(Line, off_cpu), u32::from(off));
    }

    /// Takes that back.
    pub fn ask_no_more(&self, vcpu: VcpuId) {
        self.store(vcpu, offset_of!(Line, yield_wanted), 0u32);
    }

    /// Tells it which points to report.
    pub fn set_points(&self, vcpu: VcpuId, mask: u32) {
        self.store(vcpu, offset_of!(Line, points), mask);
    }

    /// Tells it after how many looks it has spun out.
    pub fn set_spin_looks(&self, vcpu: VcpuId, looks: u32) {
        self.store(vcpu, offset_of!(Line, spin_looks), looks);
    }
}
