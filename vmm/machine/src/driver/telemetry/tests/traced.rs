//! Lines of a kernel whose locks are traced.

use hypercalls::telemetry::QUEUED_BEHIND;

use super::*;
use crate::vcpu::TracedLocks;

#[test]
fn traced_lines_are_found_by_their_pages() {
    let lines = lines();
    assert_eq!(lines.traced_awaited(VCPU), None);
    lines.set_traced([2, 3, 0xffff_ffff, 0]);
    for (vcpu, line) in [(VcpuId(2), 0x2100), (VcpuId(33), 0x3080)] {
        let at = |field: usize| GuestAddress(line + field as u64);
        assert_eq!(lines.traced_awaited(vcpu), None, "{vcpu:?} waits for nothing");
        lines.memory.store(QUEUED, at(offset_of!(Line, wait_lock)), Relaxed).unwrap();
        let wait = Wait::Spinning.word(QUEUED_BEHIND);
        lines.memory.store(wait, at(offset_of!(Line, wait)), Relaxed).unwrap();
        assert_eq!(lines.traced_awaited(vcpu), Some(LockId(LOCK)), "{vcpu:?}");
    }
    for vcpu in [VcpuId(64), VcpuId(127), VcpuId(128), VcpuId(u32::MAX)] {
        assert_eq!(lines.traced_awaited(vcpu), None, "{vcpu:?} has no line");
    }
}

/// The one that took the lock last after a wait holds it, until it or another one releases it to a waiter.
#[test]
fn a_traced_holder_is_the_last_one_that_took_the_lock() {
    let lines = lines();
    let other = VcpuId(0);
    lines.set_traced([2, 3, 4, 5]);
    let at = |vcpu: VcpuId, field: usize| {
        GuestAddress(0x2000 + u64::from(vcpu.0) * size_of::<Line>() as u64 + field as u64)
    };
    let set = |vcpu, field, value: u64| {
        lines.memory.store(value, at(vcpu, field), Relaxed).unwrap();
    };
    let set_held = |vcpu, held: u32| {
        lines.memory.store(held, at(vcpu, offset_of!(Line, held)), Relaxed).unwrap();
    };
    let (lock, released_lock) = (offset_of!(Line, held_lock), offset_of!(Line, held_lock) + 8);
    let (taken, released) = (offset_of!(Line, taken), offset_of!(Line, released_at));
    let held = |vcpu| Some(&lines).held(vcpu);
    assert_eq!(held(VCPU), None);
    set(VCPU, lock, QUEUED);
    set(VCPU, taken, 100);
    assert_eq!(held(VCPU), None);
    set_held(VCPU, 1);
    assert_eq!(held(VCPU), Some(LockId(LOCK)));
    // Another one released it to this one.
    set(other, released_lock, QUEUED);
    set(other, released, 99);
    assert_eq!(held(VCPU), Some(LockId(LOCK)));
    set(other, released, 101);
    assert_eq!(held(VCPU), None, "it was not this one's any more");
    set(other, released_lock, QUEUED + 4);
    assert_eq!(held(VCPU), Some(LockId(LOCK)), "another lock");
    set(other, lock, QUEUED);
    set(other, taken, 102);
    assert_eq!(held(VCPU), None, "the other one took it, and may have released it");
    set_held(other, 1);
    assert_eq!((held(VCPU), held(other)), (None, Some(LockId(LOCK))));
    assert_eq!(held(VcpuId(200)), None);
    assert_eq!(None::<&TelemetryView>.held(VCPU), None);
}
