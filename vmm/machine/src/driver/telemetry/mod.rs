//! The VMM's view of telemetry: the current lock activity of a vCPU.

pub(super) mod line;
mod queued;

use std::{
    mem::offset_of,
    sync::atomic::{
        AtomicBool, AtomicU32,
        Ordering::{Acquire, Relaxed},
    },
};

use hypercalls::telemetry::{Line, MACHINE, MAX_NAMED, MachineWords, Wait};
use vm_memory::{AtomicAccess, Bytes, GuestAddress};

use crate::guest::queued_lock;
use base::units::{Gpa, Nanos, VcpuId};
use kvm::{
    sys::{ram::Ram, tsc},
    vcpu::TscClock,
};
use line::{INC, LineView, drawn_ticket};
use sched::event::{LockActivity, LockId};

/// Translates a guest-virtual address of a lock.
pub type Translate = fn(u64) -> Option<Gpa>;

/// The telemetry lines of one VM.
#[derive(Debug)]
pub struct TelemetryView {
    memory: Ram,
    base: Gpa,
    translate: Translate,
    /// By vCPU: on hosts with unsynchronized time stamp counters, the vCPUs' offsets differ.
    clocks: Box<[TscClock]>,
    upkeep: LineUpkeep,
    /// By vCPU, whether it is counted in `critical_off`.
    is_counted: Box<[AtomicBool]>,
    /// Our copy of [`MachineWords::critical_off`], which the guest could overwrite.
    critical_off: AtomicU32,
}

/// Whether a guest maintains its telemetry lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineUpkeep {
    /// It does, from its first instruction on.
    Always,
    /// It does if its kernel supports it. A line is invalid until its vCPU has acquired a lock.
    Maybe,
}

impl TelemetryView {
    /// Creates a view of the lines at `base`. The guest's vCPUs have these time stamp counters.
    pub fn new(
        memory: Ram,
        base: Gpa,
        translate: Translate,
        clocks: Box<[TscClock]>,
        upkeep: LineUpkeep,
    ) -> Self {
        let is_counted = clocks.iter().map(|_| AtomicBool::new(false)).collect();
        let critical_off = AtomicU32::new(0);
        Self { memory, base, translate, clocks, upkeep, is_counted, critical_off }
    }

    fn load<T: AtomicAccess + Default>(&self, vcpu: VcpuId, offset: usize) -> T {
        let at = self.base.0 + u64::from(vcpu.0) * size_of::<Line>() as u64 + offset as u64;
        // Cannot fail: the lines are in the guest's memory.
        self.memory.load(GuestAddress(at), Acquire).unwrap_or_default()
    }

    fn store<T: AtomicAccess>(&self, vcpu: VcpuId, offset: usize, value: T) {
        let at = self.base.0 + u64::from(vcpu.0) * size_of::<Line>() as u64 + offset as u64;
        let _ = self.memory.store(value, GuestAddress(at), Relaxed);
    }

    /// Reads the word of the lock `name`. None if the name has no valid address.
    fn word(&self, name: LockId) -> Option<u32> {
        let lock = queued_lock::address(name).unwrap_or(name);
        let at = (self.translate)(lock.0).filter(|at| at.0.is_multiple_of(4))?;
        self.memory.load(GuestAddress(at.0), Acquire).ok()
    }

    /// Returns the vCPU's activity at `now`. It is exact if the vCPU is outside the guest; otherwise it may
    /// be out of date.
    pub fn activity(&self, vcpu: VcpuId, now: Nanos) -> LockActivity {
        line::activity(&LineInMemory { lines: self, vcpu, now })
    }

    /// Returns the activity of a vCPU outside the guest. If it was stopped while drawing a ticket or
    /// acquiring a lock, infers the result where the lines of `vcpus`, all vCPUs of its VM, allow it.
    pub fn stopped(
        &self,
        vcpu: VcpuId,
        vcpus: impl Iterator<Item = VcpuId> + Clone,
        now: Nanos,
    ) -> LockActivity {
        let activity = self.activity(vcpu, now);
        let peers = vcpus.filter(|peer| *peer != vcpu);
        if activity.is_holder() {
            return self.stopped_with_queued(vcpu, peers, activity, now);
        }
        if !matches!(activity, LockActivity::Entering | LockActivity::Waiting { .. }) {
            return activity;
        }
        let name = LockId(self.load(vcpu, offset_of!(Line, wait_lock)));
        match (activity, queued_lock::address(name)) {
            (activity, Some(lock)) => self.stopped_at_queued(vcpu, name, lock, peers, activity),
            (LockActivity::Entering, None) => self.drawn(name, peers, now).unwrap_or(activity),
            (activity, None) => activity,
        }
    }

    /// Infers the ticket drawn by a stopped vCPU: a drawn ticket that no other vCPU claims.
    ///
    /// A processor takes an interrupt right after the locked instruction that draws the ticket, before the
    /// stores that publish it, so stops cluster there. None if unknown, for example because another vCPU is
    /// drawing or acquiring.
    fn drawn(
        &self,
        lock: LockId,
        peers: impl Iterator<Item = VcpuId>,
        now: Nanos,
    ) -> Option<LockActivity> {
        let before = self.word(lock)?;
        let (head, count) = line::queue(before);
        // Bits of drawn tickets, starting at the ticket being served.
        let drawn = 1_u128.checked_shl(count.into()).map_or(u128::MAX, |bit| bit - 1);
        let mut owned = 0;
        let mut all_known = true;
        for peer in peers {
            let (tickets, is_complete) = self.tickets(peer, lock, head);
            owned |= tickets;
            all_known &= is_complete;
        }
        if self.word(lock) != Some(before) {
            return None;
        }
        drawn_ticket(lock, head, drawn & !owned, all_known, now)
    }

    /// Returns the tickets of `lock` that a vCPU claims, as bits starting at `head`, and whether these are
    /// all of its tickets.
    fn tickets(&self, vcpu: VcpuId, lock: LockId, head: u16) -> (u128, bool) {
        let bit =
            |ticket: u16| 1_u128.checked_shl((ticket.wrapping_sub(head) / INC).into()).unwrap_or(0);
        // Read before the held locks: a waiter publishes that it holds the lock before it withdraws its wait.
        let (wait, ticket) = Wait::parse(self.load(vcpu, offset_of!(Line, wait)));
        let wait_lock: u64 = self.load(vcpu, offset_of!(Line, wait_lock));
        let is_waiting = matches!(wait, Wait::Spinning | Wait::Halted) && wait_lock == lock.0;
        let mut tickets = if is_waiting { bit(ticket) } else { 0 };
        let held: u32 = self.load(vcpu, offset_of!(Line, held));
        let count = usize::try_from(held).unwrap_or(MAX_NAMED).min(MAX_NAMED);
        for ix in 0..count {
            if self.load::<u64>(vcpu, offset_of!(Line, held_lock) + ix * 8) == lock.0 {
                tickets |= bit(self.load(vcpu, offset_of!(Line, held_ticket) + ix * 2));
            }
        }
        // An interrupt handler's own lock hides a ticket drawn by the interrupted code.
        let hides = matches!(wait, Wait::Entering | Wait::Throttled | Wait::Kicking);
        (tickets, !hides && held as usize <= MAX_NAMED)
    }

    /// Converts a TSC value in the vCPU's line to the clock that shows `now`. None if it is in the future or
    /// an hour or more ago, because the guest may write any value.
    fn load_time(&self, vcpu: VcpuId, offset: usize, now: Nanos) -> Option<Nanos> {
        self.time_of(vcpu, self.load(vcpu, offset), now)
    }

    /// Converts a time stamp read from the line earlier, like [`Self::load_time`].
    pub(super) fn time_of(&self, vcpu: VcpuId, stamp: u64, now: Nanos) -> Option<Nanos> {
        let clock = self.clocks.get(vcpu.0 as usize)?;
        let elapsed = clock.elapsed_since(stamp, tsc::read())?;
        now.0.checked_sub(elapsed.0).map(Nanos)
    }

    /// Whether the guest maintains its lines.
    #[cfg(feature = "bpf")]
    pub(super) const fn upkeep(&self) -> LineUpkeep {
        self.upkeep
    }

    /// Returns the time of the release before the vCPU's last kick, or None if implausible.
    pub fn released_at(&self, vcpu: VcpuId, now: Nanos) -> Option<Nanos> {
        self.load_time(vcpu, offset_of!(Line, released_at), now)
    }

    /// Returns the time at which the vCPU resumed after its last halt, or None if implausible.
    pub fn resumed_at(&self, vcpu: VcpuId, now: Nanos) -> Option<Nanos> {
        self.load_time(vcpu, offset_of!(Line, resumed_at), now)
    }

    /// Returns the number of locks that the vCPU has acquired. None if its guest counts none.
    pub fn acquisitions(&self, vcpu: VcpuId) -> Option<u64> {
        Some(self.load(vcpu, offset_of!(Line, taken))).filter(|count| *count > 0)
    }

    /// Requests that the vCPU yield once it neither holds nor awaits a lock.
    pub fn request_yield(&self, vcpu: VcpuId) {
        self.store(vcpu, offset_of!(Line, yield_wanted), 1u32);
    }

    /// Publishes to other vCPUs whether this vCPU is off its CPU, and the number of vCPUs without a CPU that are
    /// [critical](LockActivity::is_critical). Called by one thread at a time, while the vCPU is outside the guest.
    pub fn set_off_cpu(&self, vcpu: VcpuId, off: bool) {
        self.store(vcpu, offset_of!(Line, off_cpu), u32::from(off));
        // The start time of the wait does not matter.
        let is_critical = off && self.activity(vcpu, Nanos::ZERO).is_critical();
        let Some(is_counted) = self.is_counted.get(vcpu.0 as usize) else { return };
        let count = match (is_counted.swap(is_critical, Relaxed), is_critical) {
            (false, true) => self.critical_off.fetch_add(1, Relaxed) + 1,
            (true, false) => self.critical_off.fetch_sub(1, Relaxed) - 1,
            _ => return,
        };
        let at = self.base.0 + MACHINE + offset_of!(MachineWords, critical_off) as u64;
        let _ = self.memory.store(count, GuestAddress(at), Relaxed);
    }

    /// Publishes to the vCPU the end of its slice. `None` if unknown.
    pub fn set_slice_end(&self, vcpu: VcpuId, end: Option<Nanos>, now: Nanos) {
        let Some(clock) = self.clocks.get(vcpu.0 as usize) else { return };
        let at = |end: Nanos| clock.after(end.since(now), tsc::read()).max(1);
        let end = end.filter(|end| *end < Nanos::NEVER);
        self.store(vcpu, offset_of!(Line, slice_end), end.map_or(0, at));
    }

    /// Withdraws a request to yield.
    pub fn clear_yield_request(&self, vcpu: VcpuId) {
        self.store(vcpu, offset_of!(Line, yield_wanted), 0u32);
    }

    /// Sets the mask of the points that the vCPU must report.
    pub fn set_points(&self, vcpu: VcpuId, mask: u32) {
        self.store(vcpu, offset_of!(Line, points), mask);
    }

    /// Sets the number of spin iterations on a lock after which the vCPU has spun out.
    pub fn set_spin_limit(&self, vcpu: VcpuId, limit: u32) {
        self.store(vcpu, offset_of!(Line, spin_limit), limit);
    }
}

/// A vCPU's line in guest memory, read at `now`.
struct LineInMemory<'a> {
    lines: &'a TelemetryView,
    vcpu: VcpuId,
    now: Nanos,
}

impl LineInMemory<'_> {
    fn load<T: AtomicAccess + Default>(&self, offset: usize) -> T {
        self.lines.load(self.vcpu, offset)
    }
}

impl LineView for LineInMemory<'_> {
    fn held(&self) -> u32 {
        self.load(offset_of!(Line, held))
    }

    fn held_lock(&self, depth: usize) -> (LockId, u16) {
        let lock = self.load(offset_of!(Line, held_lock) + depth * 8);
        (LockId(lock), self.load(offset_of!(Line, held_ticket) + depth * 2))
    }

    fn held_word(&self, _: usize, lock: LockId) -> Option<u32> {
        self.lines.word(lock)
    }

    fn wait(&self) -> (Wait, u16) {
        Wait::parse(self.load(offset_of!(Line, wait)))
    }

    fn wait_lock(&self) -> LockId {
        LockId(self.load(offset_of!(Line, wait_lock)))
    }

    fn wait_word(&self, lock: LockId) -> Option<u32> {
        self.lines.word(lock)
    }

    fn gate(&self) -> Option<u16> {
        let gate: u64 = self.load(offset_of!(Line, queue_node));
        let at = (self.lines.translate)(gate).filter(|at| gate != 0 && at.0.is_multiple_of(2))?;
        self.lines.memory.load(GuestAddress(at.0), Acquire).ok()
    }

    fn is_queue_head(&self) -> bool {
        self.lines.is_queue_head(self.vcpu)
    }

    fn wait_since(&self) -> Nanos {
        self.lines.load_time(self.vcpu, offset_of!(Line, wait_since), self.now).unwrap_or_default()
    }

    fn is_blank(&self) -> bool {
        self.lines.upkeep == LineUpkeep::Maybe && self.load::<u64>(offset_of!(Line, held_lock)) == 0
    }
}

#[cfg(test)]
mod tests;
