//! Lines that a program in the guest's kernel writes at tracepoints (`contention.rs` of our init), and what they tell.

use std::{mem::offset_of, sync::atomic::Ordering::Acquire};

use hypercalls::{
    kernel_facts::LineFrames,
    telemetry::{Line, Wait},
};
use vm_memory::{AtomicAccess, Bytes, GuestAddress};

use super::TelemetryView;
use crate::{guest::queued_lock, vcpu::TracedLocks};
use base::units::VcpuId;
use sched::event::LockId;

const WAIT: usize = offset_of!(Line, wait);
const WAIT_LOCK: usize = offset_of!(Line, wait_lock);
const HELD: usize = offset_of!(Line, held);
/// The lock taken last after a wait, and when, by the guest's monotonic clock.
const TAKEN_LOCK: usize = offset_of!(Line, held_lock);
const TAKEN_AT: usize = offset_of!(Line, taken);
/// The lock released last to a waiter, and when.
const RELEASED_LOCK: usize = TAKEN_LOCK + size_of::<u64>();
const RELEASED_AT: usize = offset_of!(Line, released_at);

impl TelemetryView {
    /// A program in the guest writes its lines into these pages. Only the first ones count.
    pub fn set_traced(&self, lines: LineFrames) {
        let _ = self.traced.set(lines);
    }

    fn traced<T: AtomicAccess>(&self, vcpu: VcpuId, field: usize) -> Option<T> {
        const PAGE: u64 = 4096;
        let offset = u64::from(vcpu.0) * size_of::<Line>() as u64;
        let frame = *self.traced.get()?.get(usize::try_from(offset / PAGE).ok()?)?;
        let at = u64::from(frame) * PAGE + offset % PAGE + field as u64;
        self.memory.load(GuestAddress(at), Acquire).ok()
    }

    /// [`TracedLocks::awaited`].
    pub(super) fn traced_awaited(&self, vcpu: VcpuId) -> Option<LockId> {
        let is_waiting = Wait::parse(self.traced(vcpu, WAIT)?).0 == Wait::Spinning;
        let lock = LockId(self.traced(vcpu, WAIT_LOCK)?);
        is_waiting.then(|| queued_lock::address(lock)).flatten()
    }

    /// [`TracedLocks::held`].
    fn traced_held(&self, vcpu: VcpuId) -> Option<LockId> {
        if self.traced::<u32>(vcpu, HELD)? == 0 {
            return None;
        }
        let lock: u64 = self.traced(vcpu, TAKEN_LOCK)?;
        let since: u64 = self.traced(vcpu, TAKEN_AT)?;
        let is_later = |other, (named, at): (usize, usize)| {
            self.traced(other, named) == Some(lock)
                && self.traced::<u64>(other, at).is_some_and(|at| at > since)
        };
        let vcpus = (0..self.clocks.len() as u32).map(VcpuId);
        let is_over = vcpus.filter(|other| *other != vcpu).any(|other| {
            is_later(other, (TAKEN_LOCK, TAKEN_AT)) || is_later(other, (RELEASED_LOCK, RELEASED_AT))
        });
        if is_over { None } else { queued_lock::address(LockId(lock)) }
    }
}

impl TracedLocks for Option<&TelemetryView> {
    fn awaited(&self, vcpu: VcpuId) -> Option<LockId> {
        self.and_then(|lines| lines.traced_awaited(vcpu))
    }

    fn held(&self, vcpu: VcpuId) -> Option<LockId> {
        self.and_then(|lines| lines.traced_held(vcpu))
    }
}
