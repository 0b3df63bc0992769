//! vCPUs that wait for a lock in KVM's own HLT. To a policy, their halts and kicks look like those
//! of vCPUs that halt in the VMM.

use super::{
    core::State,
    log::SliceEnd,
    test_support::{by, core_of, free, holding, in_hlt, tell, waiting},
    *,
};
use base::units::{Nanos, SlotId};

fn state(core: &Core, vcpu: u32) -> State {
    core.state(VcpuIndex(vcpu))
}

fn last_end(core: &Core) -> SliceEnd {
    core.log().slices().iter().rev().find(|slice| slice.end != SliceEnd::Open).unwrap().end
}

/// Returns a schedule with vCPU 0 in HLT, with this observation and without a slot. vCPU 1 has the
/// only slot, and vCPU 2 waits for it.
fn asleep(policy: &str, obs: Observation) -> Core {
    let mut core = core_of(policy, &[0; 3], 1);
    tell(&mut core, 0, Event::Idle(obs), 100);
    assert_eq!((state(&core, 0), state(&core, 1)), (State::Idle, State::Running(SlotId(0))));
    core
}

fn kick_by_1(core: &mut Core, activity: LockActivity) -> Vec<Action> {
    tell(core, 0, Event::KickedInHlt(Some(Kicker { vcpu: VcpuIndex(1), activity })), 130)
}

/// vCPU 0 is found in HLT with `obs` at `at`, and loses its slot without a preemption.
fn loses_its_slot(core: &mut Core, obs: Observation, at: u64) {
    let next = tell(core, 0, Event::StoppedInHlt(obs), at);
    assert_eq!(next, [Action::Grant(VcpuIndex(1), SlotId(0))], "{obs:?}");
    assert_eq!((state(core, 0), last_end(core)), (State::Idle, SliceEnd::Idle));
    let totals = core.accounting().totals();
    let counts = (totals.preemptions, totals.lwp, totals.queued, totals.injected);
    assert_eq!(counts, (0, 0, 0, 0), "{obs:?}");
}

/// For instance, the thread waits for a reader of the guest's output. That is no preemption even with
/// a lock held.
#[test]
fn a_blocked_thread_frees_its_slot() {
    for policy in ["rr", "fair", "kick-boost", "random", "deferred", "gang", "directed-yield"] {
        for obs in [in_hlt(1), free(), holding(), Observation::default()] {
            let mut core = core_of(policy, &[0, 1], 1);
            let next = tell(&mut core, 0, Event::Blocks(obs), 100);
            assert!(next.contains(&Action::Grant(VcpuIndex(1), SlotId(0))), "{policy}: {obs:?}");
            assert_eq!((state(&core, 0), last_end(&core)), (State::Idle, SliceEnd::Idle));
            assert_eq!(core.accounting().totals().preemptions, 0);
            tell(&mut core, 0, Event::Woken(obs), 200);
            assert_ne!(state(&core, 0), State::Idle, "{policy}");
            tell(&mut core, 1, Event::Exited, 300);
            assert_eq!(state(&core, 0), State::Running(SlotId(0)), "{policy}");
        }
    }
}

#[test]
fn losing_a_slot_in_hlt_is_no_preemption() {
    for policy in ["rr", "fair", "kick-boost", "random", "lwp:100000,5us"] {
        for obs in [in_hlt(0), in_hlt(1), in_hlt(5), free(), Observation::default()] {
            loses_its_slot(&mut core_of(policy, &[0, 0], 1), obs, 20_001);
        }
    }
    for obs in [free(), Observation::default()] {
        loses_its_slot(&mut core_of("deferred", &[0, 0], 1), obs, 20_001);
    }
}

/// Like a spinning waiter: the kick comes as soon as the vCPUs ahead of it, which have slots, are
/// done. If it lost its slot, the kicker would have to make way for it a moment later.
#[test]
fn under_deferred_a_waiter_in_hlt_has_its_grace() {
    for (policy, expected) in
        [("deferred", vec![Action::Ask(VcpuIndex(0))]), ("deferred:look", vec![])]
    {
        for obs in [in_hlt(0), in_hlt(1), in_hlt(5)] {
            let mut core = core_of(policy, &[0, 0], 1);
            assert_eq!(tell(&mut core, 0, Event::StoppedInHlt(obs), 1_001), expected, "{policy}");
            assert_eq!(state(&core, 0), State::Running(SlotId(0)));
            assert!(core.keeps_slot_in_hlt(VcpuIndex(0), &obs, Nanos(2_000)), "{policy}");
            assert!(!core.keeps_slot_in_hlt(VcpuIndex(0), &obs, Nanos(2_001)), "{policy}");
            loses_its_slot(&mut core, obs, 2_001);
        }
    }
}

#[test]
fn a_kicked_vcpu_ends_the_grace_of_a_halted_waiter() {
    let mut core = asleep("deferred", in_hlt(1));
    assert_eq!(kick_by_1(&mut core, holding().activity), [Action::Ask(VcpuIndex(1))]);
    assert!(!core.keeps_slot_in_hlt(VcpuIndex(1), &in_hlt(2), Nanos(140)));
    let granted = tell(&mut core, 1, Event::StoppedInHlt(in_hlt(2)), 1_101);
    assert_eq!(granted, [Action::Grant(VcpuIndex(0), SlotId(0))]);
}

#[test]
fn a_vcpu_in_hlt_keeps_an_uncontended_slot() {
    let mut core = core_of("rr", &[0, 0], 2);
    assert_eq!(tell(&mut core, 0, Event::StoppedInHlt(in_hlt(1)), 1_001), []);
    assert_eq!(state(&core, 0), State::Running(SlotId(0)));
    assert_eq!(core.deadline(VcpuIndex(0)), Some(Nanos(2_001)), "or, awake, it would have no end");
}

#[test]
fn a_kick_into_hlt_makes_the_kicker_make_way() {
    for policy in ["kick-boost", "deferred", "deferred:look"] {
        let mut core = asleep(policy, in_hlt(1));
        let granted = kick_by_1(&mut core, LockActivity::Free);
        assert_eq!(granted, [Action::Grant(VcpuIndex(0), SlotId(0))], "{policy}");
        assert_eq!(last_end(&core), SliceEnd::MadeWay, "{policy}");
    }
}

#[test]
fn a_holder_that_kicks_into_hlt_keeps_its_slot() {
    let mut core = asleep("deferred", in_hlt(1));
    assert_eq!(kick_by_1(&mut core, holding().activity), [Action::Ask(VcpuIndex(1))]);
    let yielded = tell(&mut core, 1, Event::Yielded, 200);
    assert_eq!(yielded, [Action::Grant(VcpuIndex(0), SlotId(0))], "before 2, which waits longer");
}

#[test]
fn kvm_kicks_are_recognised_by_ticket() {
    for (policy, obs, next) in [
        ("kick-boost:later", in_hlt(0), 0),
        ("kick-boost:later", in_hlt(1), 2),
        ("deferred", in_hlt(0), 0),
        ("deferred", in_hlt(1), 2),
        ("deferred", free(), 2),
        // The vCPU took the lock before it was interrupted.
        ("deferred", holding(), 0),
    ] {
        let mut core = asleep(policy, in_hlt(1));
        tell(&mut core, 0, Event::Woken(obs), 120);
        let granted = tell(&mut core, 1, Event::Stopped(free()), 1_101);
        assert_eq!(granted, [Action::Grant(VcpuIndex(next), SlotId(0))], "{policy}: {obs:?}");
    }
}

#[test]
fn halts_in_hlt_reach_the_policy() {
    // vCPU 1 holds the lock and waits for the slot before vCPU 2.
    let mut core = core_of("directed-yield", &[0; 3], 1);
    tell(&mut core, 0, Event::Stopped(free()), 1_001);
    tell(&mut core, 1, Event::Stopped(holding()), 2_001);
    tell(&mut core, 2, Event::Stopped(free()), 3_001);
    let granted = tell(&mut core, 0, Event::Idle(in_hlt(1)), 3_100);
    assert_eq!(granted, [Action::Grant(VcpuIndex(1), SlotId(0))], "the vCPU it waits for");
    let mut core = core_of("directed-yield", &[0; 3], 1);
    tell(&mut core, 0, Event::Stopped(free()), 1_001);
    tell(&mut core, 1, Event::Stopped(holding()), 2_001);
    tell(&mut core, 2, Event::Stopped(free()), 3_001);
    tell(&mut core, 0, Event::Stopped(free()), 4_001);
    let granted = tell(&mut core, 1, Event::StoppedInHlt(free()), 5_001);
    assert_eq!(granted, [Action::Grant(VcpuIndex(2), SlotId(0))], "it waits for nothing");
}

#[test]
fn kicks_delivered_by_kvm_do_not_stay_pending() {
    let mut core = core_of("rr", &[0, 0], 1);
    tell(&mut core, 0, Event::KickedInHlt(by(VcpuIndex(0))), 50);
    tell(&mut core, 0, Event::Halted(waiting(2, 1, 0)), 100);
    assert_eq!(state(&core, 0), State::Halted);
}
