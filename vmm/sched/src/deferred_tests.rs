//! Under `deferred` a lock holder keeps its slot beyond its slice, until its grace has run out. Under
//! `kick-boost` it keeps its slot when it kicks.

use super::{
    core::State,
    test_support::{core_of, free, holding, tell, waiting},
    *,
};
use base::units::{Nanos, SlotId};

const ONE: VcpuIndex = VcpuIndex(1);

/// Returns a schedule whose slot is used by vCPU 1 alone: vCPU 0 halts.
fn alone(policy: &str) -> Core {
    let mut core = core_of(policy, &[0, 0], 1);
    tell(&mut core, 0, Event::Halted(waiting(2, 1, 0)), 100);
    assert_eq!(core.state(ONE), State::Running(SlotId(0)));
    core
}

/// vCPU 1, with this lock activity, kicks vCPU 0.
fn kick_from(core: &mut Core, activity: LockActivity, now: u64) -> Vec<Action> {
    tell(core, 0, Event::Kicked(Some(Kicker { vcpu: ONE, activity })), now)
}

/// Stops vCPU 1, a lock holder, at the ends of several slices, with no vCPU waiting for its slot.
fn prolong(core: &mut Core) {
    for now in [1_100, 2_100, 3_100] {
        let until = Some(Nanos(now + 1_000));
        assert_eq!(tell(core, 1, Event::Stopped(holding()), now), [], "nothing to be asked for");
        assert_eq!(core.deadline(ONE), until, "another slice");
    }
}

/// Returns the number of forced preemptions and of LHPs.
fn hits(core: &Core) -> (u64, u64) {
    (core.accounting().totals().forced, core.accounting().totals().lhp)
}

#[test]
fn grace_starts_when_the_slot_is_contended() {
    // With a grace shorter than the time vCPU 1 has had its slot, and with a longer grace.
    for (policy, grace) in [("deferred:ask,300ns", 300), ("deferred", 4_000)] {
        let mut core = alone(policy);
        prolong(&mut core);
        tell(&mut core, 0, Event::Kicked(None), 3_500);
        let actions = tell(&mut core, 1, Event::Stopped(holding()), 4_100);
        assert_eq!(actions, [Action::Ask(ONE)], "{policy}");
        assert_eq!(core.deadline(ONE), Some(Nanos(4_100 + grace)), "{policy}");
        assert_eq!(hits(&core), (0, 0), "{policy}");
        tell(&mut core, 1, Event::Stopped(holding()), 4_100 + grace);
        assert_eq!(hits(&core), (1, 1), "{policy}: the grace has expired");
    }
}

/// By default a waiter's grace is one slice, and a holder's is four.
#[test]
fn a_waiter_has_a_grace_of_a_slice() {
    for (policy, grace) in
        [("deferred", 1_000), ("deferred:ask,300ns", 300), ("deferred:ask,9us", 9_000)]
    {
        let mut core = core_of(policy, &[0, 0], 1);
        let waits = waiting(4, 1, 0);
        assert_eq!(tell(&mut core, 0, Event::Stopped(waits), 1_001), [Action::Ask(VcpuIndex(0))]);
        assert_eq!(core.deadline(VcpuIndex(0)), Some(Nanos(1_001 + grace)), "{policy}");
        tell(&mut core, 0, Event::Stopped(waits), 1_001 + grace);
        assert_eq!(hits(&core), (1, 0), "{policy}");
    }
}

#[test]
fn a_long_grace_starts_after_a_long_run() {
    let mut core = alone("deferred:ask,1s");
    (1..2_000_000).step_by(1_000).for_each(|slices| {
        tell(&mut core, 1, Event::Stopped(holding()), 100 + slices * 1_000);
    });
    tell(&mut core, 0, Event::Kicked(None), 2_000_000_000);
    let now = 2_000_000_100;
    assert_eq!(tell(&mut core, 1, Event::Stopped(holding()), now), [Action::Ask(ONE)]);
    assert_eq!(core.deadline(ONE), Some(Nanos(now + 1_000_000_000)));
}

#[test]
fn polled_vcpus_have_a_grace() {
    let mut core = alone("deferred:look,250us");
    prolong(&mut core);
    tell(&mut core, 0, Event::Kicked(None), 3_500);
    // A twentieth of a slice is shorter than the minimum time between two polls.
    for (now, until) in [(4_100, 104_100), (104_100, 204_100), (204_100, 254_100)] {
        assert_eq!(tell(&mut core, 1, Event::Stopped(holding()), now), []);
        assert_eq!(core.deadline(ONE), Some(Nanos(until)));
    }
    assert_eq!(hits(&core), (0, 0));
    tell(&mut core, 1, Event::Stopped(holding()), 254_100);
    assert_eq!(hits(&core), (1, 1));
}

#[test]
fn grace_restarts_after_contention_ends() {
    let mut core = core_of("deferred:ask,300ns", &[0; 3], 2);
    // vCPU 2 waits for a slot, and vCPU 0 is asked to yield. Then vCPU 1 halts, and vCPU 2 gets its slot.
    tell(&mut core, 0, Event::Stopped(holding()), 1_001);
    tell(&mut core, 1, Event::Halted(waiting(4, 1, 0)), 1_100);
    assert_eq!(tell(&mut core, 0, Event::Stopped(holding()), 1_301), [], "not wanted any more");
    tell(&mut core, 1, Event::Kicked(None), 1_400);
    let actions = tell(&mut core, 0, Event::Stopped(holding()), 2_301);
    assert_eq!(actions, [Action::Ask(VcpuIndex(0))]);
    assert_eq!(core.deadline(VcpuIndex(0)), Some(Nanos(2_601)));
}

#[test]
fn a_kicking_holder_is_asked_to_yield() {
    for inner in [holding().activity, waiting(6, 2, 0).activity, LockActivity::Entering] {
        let mut core = alone("deferred");
        assert_eq!(kick_from(&mut core, inner, 130), [Action::Ask(ONE)], "{inner:?}");
        assert_eq!(core.state(ONE), State::Running(SlotId(0)));
        assert_eq!(core.deadline(ONE), Some(Nanos(1_100)), "its slice is as long as before");
        let yielded = tell(&mut core, 1, Event::Yielded, 200);
        assert_eq!(yielded, [Action::Grant(VcpuIndex(0), SlotId(0))], "the kicked vCPU is next");
        assert_eq!(core.accounting().totals().preemptions, 0);
    }
}

#[test]
fn a_kicking_holder_is_polled_until_release() {
    let mut core = alone("deferred:look");
    assert_eq!(kick_from(&mut core, holding().activity, 130), []);
    assert_eq!(tell(&mut core, 1, Event::Stopped(holding()), 150), []);
    let granted = tell(&mut core, 1, Event::Stopped(free()), 180);
    assert_eq!(granted, [Action::Grant(VcpuIndex(0), SlotId(0))]);
    assert_eq!((core.accounting().totals().preemptions, hits(&core)), (1, (0, 0)));
}

#[test]
fn kick_boost_lets_a_kicking_holder_run() {
    let mut core = alone("kick-boost");
    assert_eq!(kick_from(&mut core, holding().activity, 130), []);
    assert_eq!(core.state(ONE), State::Running(SlotId(0)));
    assert_eq!(hits(&core), (0, 0));
}

/// Even while its telemetry line announces the kick, which the waiter has received.
#[test]
fn a_kicker_without_locks_makes_way() {
    for activity in [LockActivity::Free, LockActivity::Kicking { lock: LockId(9), ticket: 2 }] {
        for policy in ["deferred", "deferred:look", "kick-boost"] {
            let mut core = alone(policy);
            let granted = kick_from(&mut core, activity, 130);
            assert_eq!(granted, [Action::Grant(VcpuIndex(0), SlotId(0))], "{policy}");
            let totals = core.accounting().totals();
            assert_eq!((totals.preemptions, totals.lwp), (1, 0), "{policy} {activity:?}");
        }
    }
}
