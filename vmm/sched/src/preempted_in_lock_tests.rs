//! `deferred` after a grace has run out: a waiter that is off its slot holds up those behind it only
//! until it runs again, and a vCPU that halts for a lock keeps its slot.

use super::{
    core::State,
    test_support::{core_of, free, holding, in_hlt, tell, waiting},
    *,
};
use base::units::{Nanos, SlotId};

const SLOT: SlotId = SlotId(0);

/// Returns three vCPUs on one slot. vCPU 0 was forced off it while waiting with ticket 2. vCPU 1, the next in
/// the round, has had the slot since 2001 ns.
fn preempted_in_lock(policy: &str) -> Core {
    let mut core = core_of(policy, &[0; 3], 1);
    tell(&mut core, 0, Event::Stopped(waiting(2, 1, 0)), 1_001);
    for now in (1_001..2_001).step_by(100) {
        tell(&mut core, 0, Event::Stopped(waiting(2, 1, 0)), now);
    }
    let granted = tell(&mut core, 0, Event::Stopped(waiting(2, 1, 0)), 2_001);
    assert_eq!(granted, [Action::Grant(VcpuIndex(1), SLOT)], "a slice of the round comes first");
    assert_eq!(core.accounting().totals().forced, 1);
    core
}

/// Regression: the spinner used up a slice and a grace, and was then preempted in the lock, too.
#[test]
fn a_spinner_makes_way_for_a_preempted_waiter_ahead_of_it() {
    for (policy, actions) in [
        ("deferred", &[Action::Grant(VcpuIndex(0), SLOT), Action::Ask(VcpuIndex(0))][..]),
        ("deferred:look", &[Action::Grant(VcpuIndex(0), SLOT)]),
    ] {
        let mut core = preempted_in_lock(policy);
        let made_way = tell(&mut core, 1, Event::Stopped(waiting(4, 2, 2_010)), 2_100);
        assert_eq!(made_way, actions, "{policy}");
        assert_eq!(core.accounting().totals().forced, 1, "{policy}: no grace was waited for");
        // vCPU 0 leaves when it is out of the lock. The vCPU that made way is next in the queue.
        let next = tell(&mut core, 0, Event::Yielded, 2_150);
        assert_eq!(next.first(), Some(&Action::Grant(VcpuIndex(1), SLOT)), "{policy}");
    }
}

#[test]
fn a_vcpu_in_no_lock_makes_way_for_one_preempted_in_a_lock() {
    let mut core = preempted_in_lock("deferred");
    let made_way = tell(&mut core, 1, Event::Stopped(free()), 2_100);
    assert_eq!(made_way, [Action::Grant(VcpuIndex(0), SLOT), Action::Ask(VcpuIndex(0))]);
}

#[test]
fn unrelated_waiters_keep_their_slots() {
    for ticket in [0, 0xfffe] {
        let mut core = preempted_in_lock("deferred");
        let actions = tell(&mut core, 1, Event::Stopped(waiting(ticket, 1, 2_010)), 2_100);
        assert_eq!(actions, [Action::Ask(VcpuIndex(1))], "{ticket}: it leaves when it is served");
        assert_eq!(core.state(VcpuIndex(1)), State::Running(SLOT));
    }
    let mut core = preempted_in_lock("deferred");
    let mut obs = waiting(4, 2, 2_010);
    if let LockActivity::Waiting { lock, .. } = &mut obs.activity {
        *lock = LockId(77);
    }
    tell(&mut core, 1, Event::Stopped(obs), 2_100);
    assert_eq!(core.state(VcpuIndex(1)), State::Running(SLOT));
}

#[test]
fn preempted_vcpus_run_in_ticket_order() {
    let mut core = core_of("deferred", &[0; 6], 2);
    // The round is 2, 3, 4, 5. The running vCPUs are forced off, in the wrong order.
    for (vcpu, obs) in [(0, waiting(6, 3, 0)), (1, waiting(4, 2, 0))] {
        tell(&mut core, vcpu, Event::Stopped(obs), 1_001);
        tell(&mut core, vcpu, Event::Stopped(obs), 2_001);
    }
    assert_eq!(core.state(VcpuIndex(2)), State::Running(SlotId(0)), "one slice of the round");
    assert_eq!(
        core.state(VcpuIndex(1)),
        State::Running(SlotId(1)),
        "the one with the lower ticket"
    );
    tell(&mut core, 2, Event::Stopped(waiting(8, 4, 2_001)), 2_100);
    assert_eq!(core.state(VcpuIndex(0)), State::Running(SlotId(0)), "before the one behind it");
}

/// A guest that always claims to hold a lock gains one slice per round, each with its grace.
#[test]
fn a_vcpu_forced_off_again_waits_for_the_round() {
    let mut core = preempted_in_lock("deferred:ask,1us");
    tell(&mut core, 1, Event::Stopped(free()), 2_100);
    for now in [3_100, 4_100] {
        tell(&mut core, 0, Event::Stopped(holding()), now);
    }
    assert_eq!(core.accounting().totals().forced, 2);
    assert_eq!(core.state(VcpuIndex(2)), State::Running(SLOT));
    // In the round it is behind vCPU 1, which queued before it.
    tell(&mut core, 2, Event::Stopped(free()), 5_100);
    assert_eq!(core.state(VcpuIndex(1)), State::Running(SLOT));
}

/// vCPU 0 holds up the queue and is spent. vCPU 2, behind it, is preempted in the lock. vCPU 1 runs.
fn core_with_spent() -> Core {
    let mut core = preempted_in_lock("deferred");
    tell(&mut core, 1, Event::Stopped(free()), 2_100);
    for now in [3_100, 4_100] {
        tell(&mut core, 0, Event::Stopped(waiting(2, 1, 0)), now);
    }
    assert_eq!(core.state(VcpuIndex(2)), State::Running(SLOT));
    tell(&mut core, 2, Event::Stopped(waiting(4, 2, 4_200)), 4_300);
    core
}

/// Regression: a waiter behind a spent vCPU ran before it, spun for a slice and a grace, and was spent,
/// too. The queue never moved again.
#[test]
fn waiters_stay_behind_a_spent_vcpu() {
    let mut core = core_with_spent();
    assert_eq!(core.accounting().totals().forced, 2, "the vCPU behind made way at a poll");
    assert_eq!(core.state(VcpuIndex(1)), State::Running(SLOT), "not the preempted vCPU");
    let granted = tell(&mut core, 1, Event::Stopped(free()), 4_400);
    let expected = [Action::Grant(VcpuIndex(0), SLOT), Action::Ask(VcpuIndex(0))];
    assert_eq!(granted, expected, "the spent vCPU leaves when it is out of the lock");
    let granted = tell(&mut core, 0, Event::Yielded, 4_450);
    assert_eq!(granted.first(), Some(&Action::Grant(VcpuIndex(2), SLOT)), "then the next in line");
}

#[test]
fn unordered_waiters_make_way_at_a_poll() {
    let unordered = |since| {
        let mut obs = waiting(0, 0, since);
        if let LockActivity::Waiting { distance, .. } = &mut obs.activity {
            *distance = None;
        }
        obs
    };
    let mut core = core_of("deferred", &[0; 3], 1);
    for now in [1_001, 2_001] {
        tell(&mut core, 0, Event::Stopped(unordered(0)), now);
    }
    assert_eq!(core.accounting().totals().forced, 1);
    tell(&mut core, 1, Event::Stopped(unordered(2_010)), 2_100);
    assert_eq!(core.state(VcpuIndex(0)), State::Running(SLOT), "first in, first out");
    tell(&mut core, 0, Event::Stopped(unordered(0)), 2_200);
    assert_eq!(core.state(VcpuIndex(1)), State::Running(SLOT));
    assert_eq!(core.accounting().totals().forced, 1, "no grace was waited for");
}

#[test]
fn other_vms_keep_complete_slices() {
    // With a grace below a slice, the VM owes at most a slice, so its vCPU may go ahead of the round.
    let mut core = core_of("deferred:ask,300ns", &[0, 1], 1);
    for now in [1_001, 1_301] {
        tell(&mut core, 0, Event::Stopped(waiting(2, 1, 0)), now);
    }
    assert_eq!(core.state(VcpuIndex(1)), State::Running(SLOT));
    assert_eq!(core.deadline(VcpuIndex(1)), Some(Nanos(2_301)), "a complete slice");
    tell(&mut core, 1, Event::Stopped(free()), 1_400);
    assert_eq!(core.state(VcpuIndex(1)), State::Running(SLOT), "nor at a poll");
}

/// The vCPU it waits for has a slot, too, and another vCPU on this slot would queue behind it.
#[test]
fn a_waiter_in_hlt_keeps_its_slot() {
    let core = core_of("deferred", &[0; 2], 1);
    let vcpu = VcpuIndex(0);
    assert!(core.keeps_slot_in_hlt(vcpu, &in_hlt(1), Nanos(500)));
    assert!(!core.keeps_slot_in_hlt(vcpu, &free(), Nanos(500)), "it has nothing to do");
    assert!(!core.keeps_slot_in_hlt(vcpu, &in_hlt(1), Nanos(1_001)), "the slice has expired");
    assert!(!core.keeps_slot_in_hlt(VcpuIndex(1), &in_hlt(1), Nanos(500)), "it has no slot");
    assert!(!core_of("rr", &[0; 2], 1).keeps_slot_in_hlt(vcpu, &in_hlt(1), Nanos(500)));
}

#[test]
fn a_vcpu_preempted_in_a_lock_takes_a_halted_waiters_slot() {
    let core = preempted_in_lock("deferred");
    assert!(!core.keeps_slot_in_hlt(VcpuIndex(1), &in_hlt(1), Nanos(2_100)));
}
