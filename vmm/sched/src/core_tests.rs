//! The rules that no policy may break, on random histories.

use proptest::{collection::vec, prelude::*};

use super::{
    core::State,
    log::{Slice, SliceEnd},
    policy::POLICIES,
    test_support::{by, core_of, free, holding, members, new_core, recording_of, tell, waiting},
    test_world::{World, WorldStep, make_core, step},
    *,
};
use base::units::{Nanos, SlotId};

fn tested_policies() -> impl Iterator<Item = &'static str> {
    POLICIES.iter().flat_map(|policy| policy.tested).copied()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A slot never has two vCPUs and a vCPU never has two slots; policies are work-conserving where they
    /// guarantee it; halted vCPUs are never granted a slot; no kick is lost. All this is checked at every
    /// step. A core's only input is its events: it acts the same for the same events at the same times.
    #[test]
    fn random_histories_keep_invariants_and_repeat(
        steps in vec(step(), 1..400), vcpus in 1..12_usize, slots in 1..5_usize,
    ) {
        for policy in tested_policies() {
            let mut world = World::new(policy, vcpus, slots, None);
            steps.iter().for_each(|s| world.step(*s));
            let (mut repeat, _) = make_core(policy, vcpus, slots, None);
            for (vcpu, event, now, actions) in &world.history {
                prop_assert_eq!(repeat.handle(*vcpu, *event, *now), &actions[..], "{}", policy);
            }
            prop_assert_eq!(repeat.log().slices(), world.core.log().slices(), "{}", policy);
            prop_assert_eq!(repeat.accounting().totals(), world.core.accounting().totals());
            prop_assert_eq!(repeat.accounting().records(), world.core.accounting().records());
        }
    }

    /// Each waiting vCPU runs within a bounded number of slices under policies that guarantee it.
    #[test]
    fn no_vcpu_starves(steps in vec(step(), 1..200), vcpus in 1..12_usize, slots in 1..5_usize) {
        for policy in ["rr", "fair"] {
            let mut world = World::new(policy, vcpus, slots, None);
            steps.iter().for_each(|s| world.step(*s));
            let waiting: Vec<usize> =
                (0..vcpus).filter(|v| world.states()[*v] == State::Ready).collect();
            let mut ran = vec![false; vcpus];
            // `fair` prefers vCPUs with less CPU time: the credit is at most one slice each, at weights of 1
            // to 3.
            for _ in 0..vcpus * 40 + 400 {
                world.due(1);
                (0..vcpus).filter(|v| world.runs(*v)).for_each(|v| ran[v] = true);
            }
            for v in waiting {
                prop_assert!(ran[v], "{policy}: vCPU {v} starves");
            }
        }
    }

    /// A replay runs the recorded vCPUs in order on their slots, independent of the guests' behaviour.
    #[test]
    fn replays_follow_recordings_under_any_history(
        steps in vec(step(), 1..300), others in vec(step(), 1..300), vcpus in 1..8_usize, slots in 1..4_usize,
    ) {
        let stays = |steps: &[WorldStep]| -> Vec<WorldStep> {
            steps.iter().copied().filter(|step| !matches!(step, WorldStep::Exit(_))).collect()
        };
        let mut first = World::new("random", vcpus, slots, None);
        stays(&steps).into_iter().for_each(|step| first.step(step));
        let slices = first.core.log().slices().to_vec();
        let recording = recording_of(vcpus, slots, &slices);
        let mut repeat = World::new("replay:it", vcpus, slots, Some(&recording));
        stays(&others).into_iter().for_each(|step| repeat.step(step));
        // In any case it continues to the end of the recording.
        for _ in 0..slices.len() * 3 {
            repeat.due(1);
        }
        let replayed = repeat.core.log().slices();
        let ended: Vec<&Slice> = slices.iter().take_while(|t| t.end != SliceEnd::Open).collect();
        prop_assert!(replayed.len() >= ended.len(), "{} of {}", replayed.len(), ended.len());
        for (recorded, replayed) in ended.into_iter().zip(replayed) {
            prop_assert_eq!((recorded.vcpu, recorded.slot), (replayed.vcpu, replayed.slot));
        }
    }

    /// In a replay of a history without halts no slice is skipped or ends early or late.
    #[test]
    fn replays_repeat_the_slices(dues in vec(0..64_usize, 1..300), vcpus in 1..8_usize, slots in 1..4_usize) {
        let mut first = World::new("random", vcpus, slots, None);
        dues.iter().for_each(|ix| first.due(*ix));
        let slices = first.core.log().slices().to_vec();
        let recording = recording_of(vcpus, slots, &slices);
        let mut repeat = World::new("replay:it", vcpus, slots, Some(&recording));
        dues.iter().for_each(|ix| repeat.due(*ix));
        let owners = |slices: &[Slice]| -> Vec<_> { slices.iter().map(|t| (t.vcpu, t.slot)).collect() };
        let replayed = repeat.core.log().slices();
        let common = slices.iter().take_while(|t| t.end != SliceEnd::Open).count();
        prop_assert!(replayed.len() >= common);
        prop_assert_eq!(owners(&slices[..common]), owners(&replayed[..common]));
        let divergence = repeat.core.policy().divergence().unwrap();
        prop_assert_eq!((divergence.skipped, divergence.early, divergence.late), (0, 0, 0));
    }
}

#[test]
fn lhp_waits_for_a_holder_and_keeps_it_off() {
    let mut core = core_of("lhp:100000,500ns", &[0, 0], 2);
    // The first preemption is due 10 us after the start.
    tell(&mut core, 0, Event::Stopped(waiting(2, 1, 0)), 20_000);
    tell(&mut core, 1, Event::Stopped(free()), 20_100);
    assert_eq!(core.policy().hits().unwrap().misses, 2);
    tell(&mut core, 1, Event::Stopped(holding()), 20_200);
    assert_eq!(core.state(VcpuIndex(1)), State::Held(Nanos(20_700)));
    // A waiter spins from 20_000 until the holder is back at 20_700. All but the first 200 ns are wasted.
    tell(&mut core, 0, Event::Stopped(waiting(2, 1, 20_000)), 20_600);
    tell(&mut core, 1, Event::HoldEnded, 20_699);
    assert_eq!(core.state(VcpuIndex(1)), State::Held(Nanos(20_700)), "too early");
    tell(&mut core, 1, Event::HoldEnded, 20_700);
    // This also holds later: a holder that is back is no longer counted as off.
    let totals = core.accounting().totals_at(Nanos(25_000));
    assert_eq!((totals.lhp, totals.lwp, totals.injected), (1, 0, 1));
    assert_eq!(totals.wasted_spin_ns, 400, "counted at its stop; the rest was not witnessed");
    assert_eq!((totals.holders_off_ns, totals.ready_ns), (500, 500));
    assert_eq!(core.accounting().records()[0].off, Some(Nanos(500)));
}

#[test]
fn spinning_behind_a_preempted_served_vcpu_is_wasted() {
    let mut core = core_of("rr", &[0; 3], 2);
    // vCPU 0 is far back in the queue when its slice ends, and served 300 ns later.
    tell(&mut core, 0, Event::Stopped(waiting(8, 3, 0)), 1_100);
    assert_eq!(core.accounting().totals().lwp, 0);
    tell(&mut core, 1, Event::Stopped(waiting(10, 1, 1_400)), 2_000);
    // Counted from the start of the wait to the observation.
    assert_eq!(core.accounting().totals().wasted_spin_ns, 600);
    let mut core = core_of("rr", &[0; 3], 2);
    tell(&mut core, 0, Event::Stopped(waiting(8, 3, 0)), 1_100);
    tell(&mut core, 1, Event::Stopped(waiting(10, 2, 1_400)), 2_000);
    assert_eq!(core.accounting().totals().wasted_spin_ns, 0, "another vCPU is served, and it runs");
}

/// The wait begins before a measurement and ends after it. The measurement includes only the part of the wait
/// within its bounds.
#[test]
fn waits_are_split_at_measurement_bounds() {
    let mut core = core_of("lhp:100000,50us", &[0, 0], 2);
    tell(&mut core, 1, Event::Stopped(holding()), 20_000);
    assert_eq!(core.state(VcpuIndex(1)), State::Held(Nanos(70_000)));
    let spins = waiting(2, 1, 20_000);
    let at = |core: &mut Core, now| {
        core.handle(VcpuIndex(0), Event::Sampled(spins.activity), now);
        core.accounting().totals_at(now)
    };
    let (before, after) = (at(&mut core, Nanos(30_000)), at(&mut core, Nanos(40_000)));
    assert_eq!((after - before).wasted_spin_ns, 10_000);
    assert_eq!((after - before).holders_off_ns, 10_000, "it is not back, and off all the same");
    // The rest of the wait belongs to the following period, and no part of it counts twice.
    tell(&mut core, 0, Event::Stopped(spins), 45_000);
    let later = core.accounting().totals_at(Nanos(45_000)) - after;
    assert_eq!((later.wasted_spin_ns, later.holders_off_ns), (5_000, 5_000));
    assert_eq!(((after - before).ready_ns, later.ready_ns), (10_000, 5_000));
}

#[test]
fn ready_time_has_waits_for_a_slot_but_no_halts() {
    let mut core = core_of("rr", &[0; 3], 1); // from 1: vCPU 0 runs, the others wait
    tell(&mut core, 0, Event::Halted(waiting(2, 1, 0)), 101);
    tell(&mut core, 0, Event::Kicked(None), 131);
    tell(&mut core, 1, Event::Stopped(free()), 1_101);
    tell(&mut core, 2, Event::Exited, 1_201);
    let at = |core: &Core, now| {
        [0, 1, 2].map(|ix| core.accounting().ready_time(VcpuIndex(ix), Nanos(now)).0)
    };
    // vCPU 2 had the slot from 1101, vCPU 0 from 1201.
    assert_eq!(at(&core, 1_301), [1_201 - 131, 100 + 200, 1_100]);
    assert_eq!(core.accounting().totals_at(Nanos(1_301)).ready_ns, 1_070 + 300 + 1_100);
    tell(&mut core, 1, Event::Exited, 1_401);
    assert_eq!(at(&core, 9_999), [1_070, 400, 1_100], "it has exited");
}

#[test]
fn deferred_asks_once_and_forces_after_the_grace() {
    let mut core = core_of("deferred:ask,300ns", &[0, 0], 1);
    assert_eq!(tell(&mut core, 0, Event::Stopped(holding()), 1_001), [Action::Ask(VcpuIndex(0))]);
    assert_eq!(core.deadline(VcpuIndex(0)), Some(Nanos(1_301)));
    let granted = tell(&mut core, 0, Event::Yielded, 1_100);
    assert_eq!(granted, [Action::Grant(VcpuIndex(1), SlotId(0))]);
    assert_eq!((core.accounting().totals().yields, core.accounting().totals().preemptions), (1, 0));
    tell(&mut core, 1, Event::Stopped(holding()), 2_100);
    tell(&mut core, 1, Event::Stopped(holding()), 2_400);
    assert_eq!((core.accounting().totals().forced, core.accounting().totals().lhp), (1, 1));
    // vCPU 0, without locks, loses the slot at once.
    tell(&mut core, 0, Event::Stopped(free()), 3_400);
    assert_eq!(core.accounting().totals().preemptions, 2);
}

#[test]
fn kick_boost_runs_the_kicked_on_the_kickers_slot() {
    let mut core = core_of("kick-boost:later", &[0; 4], 2);
    tell(&mut core, 0, Event::Halted(waiting(2, 1, 0)), 10); // vCPU 2 gets slot 0
    tell(&mut core, 1, Event::Kicked(None), 20);
    tell(&mut core, 0, Event::Kicked(by(VcpuIndex(1))), 30);
    // Slot 0 becomes free first, but vCPU 0 belongs on its kicker's slot. No other vCPU is boosted, so vCPU 0
    // gets slot 0.
    let granted = tell(&mut core, 2, Event::Halted(waiting(4, 2, 0)), 40);
    assert_eq!(granted, [Action::Grant(VcpuIndex(0), SlotId(0))]);
}

#[test]
fn a_kick_before_start_cancels_the_first_halt() {
    let mut core = new_core("rr", &members(&[0, 0]), 1, None);
    tell(&mut core, 1, Event::Started, 1);
    tell(&mut core, 0, Event::Kicked(by(VcpuIndex(1))), 2);
    assert_eq!(core.state(VcpuIndex(0)), State::New, "a kick starts no vCPU");
    tell(&mut core, 1, Event::Exited, 3);
    tell(&mut core, 0, Event::Started, 4);
    tell(&mut core, 0, Event::Halted(waiting(2, 1, 0)), 5);
    assert_eq!(core.state(VcpuIndex(0)), State::Running(SlotId(0)), "the kick was for this halt");
}

#[test]
fn a_handover_reuses_the_freed_slot() {
    let mut core = core_of("rr", &[0; 3], 2);
    tell(&mut core, 2, Event::Exited, 5);
    tell(&mut core, 0, Event::Halted(waiting(2, 1, 0)), 10); // leaves slot 0 idle
    // Slot 0 is free, too, but its CPU sleeps.
    let granted = tell(&mut core, 1, Event::HandedOver(VcpuIndex(0), waiting(4, 1, 0)), 30);
    assert_eq!(granted, [Action::Grant(VcpuIndex(0), SlotId(1))]);
    assert_eq!(core.state(VcpuIndex(1)), State::Halted);
}

#[test]
fn directed_yield_prefers_the_holder() {
    let mut core = core_of("directed-yield", &[0; 4], 1);
    tell(&mut core, 0, Event::Stopped(free()), 1_001);
    tell(&mut core, 1, Event::Stopped(holding()), 2_001);
    tell(&mut core, 2, Event::Stopped(waiting(6, 2, 0)), 3_001);
    let granted = tell(&mut core, 3, Event::SpunOut(waiting(8, 3, 3_100)), 3_200);
    assert_eq!(granted, [Action::Grant(VcpuIndex(1), SlotId(0))], "though 0 has waited longer");
    let granted = tell(&mut core, 1, Event::Stopped(free()), 4_300);
    assert_eq!(granted, [Action::Grant(VcpuIndex(0), SlotId(0))]);
}

#[test]
fn gangs_switch_together() {
    let mut core = core_of("gang", &[0, 0, 1, 1], 2);
    let on_slots = |core: &Core| core.slots().iter().map(|v| v.unwrap().0).collect::<Vec<_>>();
    let first = on_slots(&core);
    assert!(first == [0, 1], "{first:?}");
    tell(&mut core, 0, Event::Stopped(holding()), 1_001);
    tell(&mut core, 1, Event::Stopped(free()), 1_002);
    assert_eq!(on_slots(&core), [2, 3]);
}

/// Regression: the first vCPU to leave its slot began its VM's next slice, and vCPUs still on the other slots
/// used that slice's end as their deadline: they never left.
#[test]
fn wide_gangs_run_on_all_slots() {
    let mut core = core_of("gang", &[0; 4], 2);
    let mut slices = [0; 4];
    for slice in 1..=8_u64 {
        for slot in 0..2 {
            let vcpu = core.slots()[slot].unwrap();
            slices[vcpu.ix()] += 1;
            tell(&mut core, vcpu.0, Event::Stopped(free()), slice * 1_001 + slot as u64);
        }
    }
    assert_eq!(slices, [4; 4]);
}
