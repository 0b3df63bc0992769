//! Waiters and holders of queued locks.

use hypercalls::telemetry::{
    QUEUED_BEHIND, QUEUED_HEAD, QUEUED_JOINING, QUEUED_PENDING, QUEUED_PV_HEAD,
};

use super::*;

fn set_word(lines: &TelemetryView, word: u32) {
    lines.memory.store(word, GuestAddress(LOCK), Relaxed).unwrap();
}

fn wait_for_queued(lines: &TelemetryView, vcpu: VcpuId, rank: u16) {
    set_wait(lines, vcpu, QUEUED, Wait::Spinning.word(rank));
}

fn hold_queued(lines: &TelemetryView, vcpu: VcpuId) {
    lines.store(vcpu, offset_of!(Line, held_lock), QUEUED);
    lines.store(vcpu, offset_of!(Line, held), 1_u32);
}

#[test]
fn infers_distance_from_rank_and_word() {
    let lines = lines();
    let activity = || stopped(&lines);
    for (rank, word, distance, is_next) in [
        (QUEUED_PENDING, 0x101, Some(1), true),
        (QUEUED_HEAD, 0x4_0101, Some(2), false),
        (QUEUED_HEAD, 0x4_0100, Some(1), true),
        (QUEUED_HEAD, 0x4_0000, Some(0), true),
        (QUEUED_BEHIND, 0x4_0001, Some(2), false),
        (QUEUED_BEHIND, 0x4_0000, None, false),
    ] {
        wait_for_queued(&lines, VCPU, rank);
        set_word(&lines, word);
        let waiter = activity();
        let LockActivity::Waiting { lock, distance: actual, .. } = waiter else {
            panic!("{waiter:?}")
        };
        assert_eq!((lock, actual), (LockId(LOCK), distance), "rank {rank}, {word:#x}");
        assert_eq!(waiter.is_next(), is_next, "rank {rank}, {word:#x}");
    }
}

/// A PV release is also a locked instruction: the vCPU has not published yet that it no longer holds the
/// lock.
#[test]
fn two_claimed_holders_mean_a_fresh_release() {
    let lines = lines();
    let peer = VcpuId(0);
    let activity = || stopped(&lines);
    hold_queued(&lines, VCPU);
    set_word(&lines, 1);
    assert!(activity().is_holder());
    hold_queued(&lines, peer);
    assert_eq!(activity(), LockActivity::Entering, "it may be either");
    set_wait(&lines, VCPU, QUEUED, Wait::Kicking.word(QUEUED_PENDING));
    let kicking = activity();
    assert!(matches!(kicking, LockActivity::Kicking { lock: LockId(LOCK), .. }), "{kicking:?}");
    wait_for_queued(&lines, VcpuId(1), QUEUED_PV_HEAD);
    let first = lines.activity(VcpuId(1), Nanos(5));
    assert!(kicking.is_ahead_of(&first), "{first:?} sleeps until the kick");
    lines.store(peer, offset_of!(Line, held), 0_u32);
    assert!(activity().is_holder(), "it has not released it yet");
    set_word(&lines, 0);
    assert!(
        activity().is_next() && activity().is_ahead_of(&first),
        "the first waiter sleeps until the kick"
    );
    // It also holds an outer lock.
    set_word(&lines, 1);
    hold_queued(&lines, peer);
    lines.memory.store(1_u32, GuestAddress(LOCK + 4), Relaxed).unwrap();
    lines.store(VCPU, offset_of!(Line, held_lock), QUEUED + 4);
    lines.store(VCPU, offset_of!(Line, held_lock) + 8, QUEUED);
    lines.store(VCPU, offset_of!(Line, held), 2_u32);
    let outer = LockActivity::Holding { lock: Some(LockId(LOCK + 4)), depth: 1 };
    assert_eq!(activity(), outer);
}

/// Lock stealing, and test-and-set locks: acquired before the vCPU joins the queue.
#[test]
fn lock_stealing_waiter_is_the_holder() {
    let lines = lines();
    let peer = VcpuId(0);
    let activity = || stopped(&lines);
    wait_for_queued(&lines, VCPU, QUEUED_JOINING);
    set_word(&lines, 0x4_0001);
    let owns = LockActivity::Holding { lock: Some(LockId(LOCK)), depth: 1 };
    assert_eq!(activity(), owns);
    wait_for_queued(&lines, peer, QUEUED_JOINING);
    assert!(!activity().is_holder(), "it may be the peer's");
    hold_queued(&lines, peer);
    set_word(&lines, 1);
    assert!(matches!(activity(), LockActivity::Waiting { distance: None, .. }), "ambiguous");
}

/// A vCPU is most often stopped right after a locked instruction, here the lock acquisition.
#[test]
fn unclaimed_lock_belongs_to_the_stopped_vcpu() {
    let lines = lines();
    let (peer, third) = (VcpuId(0), VcpuId(1));
    let activity = || stopped(&lines);
    let owns = LockActivity::Holding { lock: Some(LockId(LOCK)), depth: 1 };
    set_wait(&lines, VCPU, QUEUED, Wait::Entering.word(0));
    set_word(&lines, 0);
    assert_eq!(activity(), LockActivity::Free, "the lock is free");
    set_word(&lines, 1);
    assert_eq!(activity(), owns);
    set_wait(&lines, third, QUEUED, Wait::Entering.word(0));
    assert_eq!(activity(), LockActivity::Entering, "another vCPU acquires it, too");
    hold_queued(&lines, peer);
    assert_eq!(activity(), LockActivity::Free, "another vCPU holds it");
    let owner = lines.stopped(peer, (0..3).map(VcpuId), Nanos(5));
    assert_eq!(owner, owns);
    set_word(&lines, 0);
    assert_eq!(lines.stopped(peer, (0..3).map(VcpuId), Nanos(5)), LockActivity::Free);

    // Waiters: a pending waiter whose bit is cleared, and the head of a (PV) queue.
    lines.store(peer, offset_of!(Line, held), 0_u32);
    lines.store(third, offset_of!(Line, wait), 0_u32);
    for (rank, word) in [(QUEUED_PENDING, 1), (QUEUED_PV_HEAD, 0x4_0001), (QUEUED_HEAD, 1)] {
        wait_for_queued(&lines, VCPU, rank);
        set_word(&lines, word);
        assert_eq!(activity(), owns, "rank {rank}");
        lines.store(peer, offset_of!(Line, held), 1_u32);
        assert!(matches!(activity(), LockActivity::Waiting { distance: Some(1), .. }), "{rank}");
        lines.store(peer, offset_of!(Line, held), 0_u32);
    }
    wait_for_queued(&lines, VCPU, QUEUED_PENDING);
    set_word(&lines, 0x101);
    assert!(matches!(activity(), LockActivity::Waiting { .. }), "its bit is set: it waits");
}

/// Right after the locked instructions that set the pending bit or join the queue.
#[test]
fn detects_a_new_next_waiter() {
    let lines = lines();
    let peer = VcpuId(0);
    let activity = || stopped(&lines);
    // The third vCPU owns the lock.
    hold_queued(&lines, VcpuId(1));
    wait_for_queued(&lines, VCPU, QUEUED_JOINING);
    set_word(&lines, 0x001);
    assert!(!activity().is_next(), "it has not set the bit");
    set_word(&lines, 0x101);
    assert!(activity().is_next());
    wait_for_queued(&lines, peer, QUEUED_JOINING);
    assert_eq!(activity(), LockActivity::Entering, "it may be the peer's");
    wait_for_queued(&lines, peer, QUEUED_PENDING);
    assert!(!activity().is_next(), "it is the peer's");

    lines.store(peer, offset_of!(Line, wait), 0_u32);
    wait_for_queued(&lines, VCPU, QUEUED_BEHIND);
    // The tail is CPU 2, or CPU 1.
    set_word(&lines, 0xc_0001);
    assert!(activity().is_next(), "no other vCPU is queued");
    wait_for_queued(&lines, peer, QUEUED_BEHIND);
    assert!(!activity().is_next(), "the peer is ahead");
    lines.store(peer, offset_of!(Line, wait), 0_u32);
    set_word(&lines, 0x8_0001);
    assert!(!activity().is_next(), "it has not joined");
}

/// A preempted waiter does not notice that it has become the head.
#[test]
fn new_queue_head_is_next_before_it_notices() {
    const NODE: u64 = 0x3040;
    let lines = lines();
    let is_next = || stopped(&lines).is_next();
    wait_for_queued(&lines, VCPU, QUEUED_BEHIND);
    lines.store(VCPU, offset_of!(Line, queue_node), NODE);
    hold_queued(&lines, VcpuId(0));
    // The tail is CPU 0.
    set_word(&lines, 0x4_0001);
    assert!(!is_next());
    lines.memory.store(1_u32, GuestAddress(NODE + 8), Relaxed).unwrap();
    assert!(is_next());
    assert!(lines.activity(VCPU, Nanos(5)).is_next());
    for odd in [NODE + 1, u64::MAX - 7] {
        lines.store(VCPU, offset_of!(Line, queue_node), odd);
        assert!(!is_next(), "{odd:#x}");
    }
}
