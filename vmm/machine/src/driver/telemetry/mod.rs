//! Telemetry as the VMM reads it: what a vCPU is doing with locks at this moment.

use std::{
    array,
    mem::offset_of,
    sync::atomic::Ordering::{Acquire, Relaxed},
};

use hypercalls::telemetry::{Line, NAMED, Wait};
use vm_memory::{AtomicAccess, Bytes, GuestAddress};

use base::units::{Gpa, Nanos, VcpuId};
use kvm::{
    sys::{ram::Ram, tsc},
    vcpu::TscClock,
};
use sched::event::{LockActivity, LockId};

/// Low bit of a ticketlock's head: the slow-path flag.
const FLAG: u16 = 1;
/// Difference between two successive tickets.
const INC: u16 = 2;

/// Translates a guest-virtual address, for the addresses that locks have.
pub type Translate = fn(u64) -> Option<Gpa>;

/// The telemetry lines of one VM.
#[derive(Debug)]
pub struct TelemetryView {
    memory: Ram,
    base: Gpa,
    translate: Translate,
    /// By vCPU: on hosts whose time stamp counters are not synchronized each vCPU has its own
    /// offset.
    clocks: Box<[TscClock]>,
    kept: LineUpkeep,
}

/// Whether a guest maintains its lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineUpkeep {
    /// From its first instruction on.
    Always,
    /// If its kernel supports it: a line says nothing until its vCPU has taken a lock.
    Perhaps,
}

impl TelemetryView {
    /// The lines at `base`, of a guest whose vCPUs have these time stamp counters.
    pub fn new(
        memory: Ram,
        base: Gpa,
        translate: Translate,
        clocks: Box<[TscClock]>,
        kept: LineUpkeep,
    ) -> Self {
        Self { memory, base, translate, clocks, kept }
    }

    fn is_blank(&self, vcpu: VcpuId) -> bool {
        self.kept == LineUpkeep::Perhaps && self.load::<u64>(vcpu, offset_of!(Line, held_lock)) == 0
    }

    fn load<T: AtomicAccess + Default>(&self, vcpu: VcpuId, offset: usize) -> T {
        let at = self.base.0 + u64::from(vcpu.0) * size_of::<Line>() as u64 + offset as u64;
        // The lines were added to the guest's memory when it was built.
        self.memory.load(GuestAddress(at), Acquire).unwrap_or_default()
    }

    fn store<T: AtomicAccess>(&self, vcpu: VcpuId, offset: usize, value: T) {
        let at = self.base.0 + u64::from(vcpu.0) * size_of::<Line>() as u64 + offset as u64;
        let _ = self.memory.store(value, GuestAddress(at), Relaxed);
    }

    /// The ticket that a lock is serving, if its word can be found.
    fn head(&self, lock: LockId) -> Option<u16> {
        let at = (self.translate)(lock.0).filter(|at| at.0.is_multiple_of(2))?;
        let head: u16 = self.memory.load(GuestAddress(at.0), Acquire).ok()?;
        Some(head & !FLAG)
    }

    /// The vCPU's activity at `now`. Exact if the vCPU is outside the guest; otherwise it may be
    /// out of date.
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

    /// The activity of a vCPU outside the guest. If it was stopped while drawing a ticket, finds
    /// out which one it drew, where the lines of all `vcpus` of its machine tell.
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

    /// Which ticket a stopped vCPU has drawn: the one that is out and that no other vCPU claims.
    ///
    /// A processor takes an interrupt right after the locked instruction that draws the ticket,
    /// before the stores that publish it: stops cluster there. None: another vCPU is drawing or
    /// taking a ticket at this moment, too.
    fn drawn(
        &self,
        vcpu: VcpuId,
        vcpus: impl Iterator<Item = VcpuId>,
        now: Nanos,
    ) -> Option<LockActivity> {
        let lock = LockId(self.load(vcpu, offset_of!(Line, wait_lock)));
        let before = self.word(lock)?;
        let (head, count) = before;
        // Bits of tickets, starting at the one that is being served.
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
        drawn_ticket(lock, head, out & !owned, all_say, now)
    }

    /// The ticket that a lock is serving, and how many are out, including that one.
    fn word(&self, lock: LockId) -> Option<(u16, u16)> {
        let at = (self.translate)(lock.0).filter(|at| at.0.is_multiple_of(4))?;
        let word: u32 = self.memory.load(GuestAddress(at.0), Acquire).ok()?;
        let (head, tail) = (word as u16 & !FLAG, (word >> 16) as u16);
        Some((head, tail.wrapping_sub(head) / INC))
    }

    /// The tickets of `lock` that a vCPU claims, as bits starting at `head`; and whether these are
    /// all it has.
    fn tickets(&self, vcpu: VcpuId, lock: LockId, head: u16) -> (u128, bool) {
        let bit =
            |ticket: u16| 1_u128.checked_shl((ticket.wrapping_sub(head) / INC).into()).unwrap_or(0);
        // Read before the held locks: a waiter publishes that it holds the lock before it withdraws
        // that it waits.
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
        // An interrupt handler's own lock hides a ticket that the interrupted code has drawn.
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

    /// Those of its `held` locks that are still held: a preemption may fall between the release of
    /// the innermost lock and the store that publishes it.
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
        // A kernel that releases a lock in the middle leaves a zero there for a moment.
        let outer = |at| self.held(vcpu, at).filter(|candidate| at < ix && candidate.0 != 0);
        let outer: [Option<LockId>; NAMED] = array::from_fn(outer);
        Some(if outer.iter().all(Option::is_none) {
            LockActivity::Holding { lock, depth: held }
        } else {
            LockActivity::HoldingSeveral { lock, depth: held, outer }
        })
    }

    /// The lock that it claims to hold at this depth, unless that lock is serving another ticket.
    fn held(&self, vcpu: VcpuId, ix: usize) -> Option<LockId> {
        let lock = LockId(self.load(vcpu, offset_of!(Line, held_lock) + ix * 8));
        let ticket: u16 = self.load(vcpu, offset_of!(Line, held_ticket) + ix * 2);
        self.head(lock).is_none_or(|head| head == ticket).then_some(lock)
    }

    /// Converts a TSC value of its line to the clock that shows `now`. None if it is in the future
    /// or more than an hour ago: the guest may write anything.
    fn when(&self, vcpu: VcpuId, offset: usize, now: Nanos) -> Option<Nanos> {
        self.time_of(vcpu, self.load(vcpu, offset), now)
    }

    /// Converts a stamp that was read from the line earlier, as [`Self::when`] does.
    pub(super) fn time_of(&self, vcpu: VcpuId, stamp: u64, now: Nanos) -> Option<Nanos> {
        let clock = self.clocks.get(vcpu.0 as usize)?;
        let ago = clock.since(stamp, tsc::read())?;
        now.0.checked_sub(ago.0).map(Nanos)
    }

    /// Whether the guest maintains its lines.
    #[cfg(feature = "bpf")]
    pub(super) const fn kept(&self) -> LineUpkeep {
        self.kept
    }

    /// When it released the lock of its last kick.
    pub fn released_at(&self, vcpu: VcpuId, now: Nanos) -> Option<Nanos> {
        self.when(vcpu, offset_of!(Line, released_at), now)
    }

    /// When it resumed after its last halt.
    pub fn resumed_at(&self, vcpu: VcpuId, now: Nanos) -> Option<Nanos> {
        self.when(vcpu, offset_of!(Line, resumed_at), now)
    }

    /// How many locks it has taken; None if it does not count them or has taken none.
    pub fn taken(&self, vcpu: VcpuId) -> Option<u64> {
        Some(self.load(vcpu, offset_of!(Line, taken))).filter(|count| *count > 0)
    }

    /// Asks it to yield.
    pub fn ask_to_yield(&self, vcpu: VcpuId) {
        self.store(vcpu, offset_of!(Line, yield_wanted), 1u32);
    }

    /// Publishes whether it has a CPU, for the other vCPUs.
    pub fn set_off_cpu(&self, vcpu: VcpuId, off: bool) {
        self.store(vcpu, offset_of!(Line, off_cpu), u32::from(off));
    }

    /// Withdraws a request to yield.
    pub fn ask_no_more(&self, vcpu: VcpuId) {
        self.store(vcpu, offset_of!(Line, yield_wanted), 0u32);
    }

    /// Tells it which points to report.
    pub fn set_points(&self, vcpu: VcpuId, mask: u32) {
        self.store(vcpu, offset_of!(Line, points), mask);
    }

    /// Tells it after how many looks at a lock it has spun out.
    pub fn set_spin_looks(&self, vcpu: VcpuId, looks: u32) {
        self.store(vcpu, offset_of!(Line, spin_looks), looks);
    }
}

/// What a vCPU did with `lock` that was drawing a ticket at `now`. `left` are the tickets that are out and that
/// nobody claims, as bits from `head` on. `None`: more than one is left, or not all claims are known.
pub(super) fn drawn_ticket(
    lock: LockId,
    head: u16,
    left: u128,
    all_say: bool,
    now: Nanos,
) -> Option<LockActivity> {
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
            // The vCPU drew the ticket just now.
            since: now,
            halted: false,
        },
    })
}

#[cfg(test)]
mod tests;
