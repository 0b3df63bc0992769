//! The scheduler's core under arbitrary events, and recordings of schedules.

use sched::{
    LockActivity, Mode, Observation, VcpuIndex,
    policy::POLICIES,
    recording::Recording,
    test_world::{World, WorldStep, make_core},
};

use crate::input::{Input, is_one_line};

/// Maximum number of steps in a history: some milliseconds of work.
const MAX_STEPS: usize = 2000;

fn step(input: &mut Input<'_>) -> WorldStep {
    let kind = input.below(17);
    let (a, b) = (usize::from(input.byte()), usize::from(input.byte()));
    match kind {
        0 => WorldStep::Due(a),
        1 => WorldStep::Spurious(a),
        2 => WorldStep::Park(a),
        3 => WorldStep::Halted(a),
        4 => WorldStep::Kick(a, b),
        5 => WorldStep::HandOver(a, b),
        6 => WorldStep::Yield(a),
        7 => WorldStep::Spin(a, b),
        8 => WorldStep::Point(a),
        9 => WorldStep::Idle(a),
        10 => WorldStep::StopInHlt(a),
        11 => WorldStep::KickInHlt(a, b),
        12 => WorldStep::Woken(a),
        13 => WorldStep::Exit(a),
        14 => WorldStep::Wait(a),
        15 => WorldStep::YieldTo(a, b),
        _ => WorldStep::Pass((a << 8 | b) as u64),
    }
}

/// Any policy, any number of vCPUs and slots, any history. `World` checks the rules at each step, and
/// the events alone must reproduce the schedule.
pub fn core(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let policies: Vec<&str> = POLICIES.iter().flat_map(|policy| policy.tested).copied().collect();
    let policy = input.choose(&policies);
    let (vcpus, slots) = (1 + input.below(12), 1 + input.below(5));
    let mut world = World::new(policy, vcpus, slots, None);
    for _ in 0..MAX_STEPS {
        if input.is_empty() {
            break;
        }
        world.step(step(&mut input));
    }
    check_sums(&world);
    let (mut repeated, _) = make_core(policy, vcpus, slots, None);
    for (vcpu, event, now, actions) in &world.history {
        assert_eq!(repeated.handle(*vcpu, *event, *now), &actions[..], "{policy}");
    }
    assert_eq!(repeated.log().slices(), world.core.log().slices(), "{policy}");
    assert_eq!(repeated.accounting().totals(), world.core.accounting().totals(), "{policy}");
}

/// Checks the account with the time of vCPUs that are still off a slot: adding the difference of two accounts
/// to the first gives the second. Also checks deadlines, and slots kept in HLT.
fn check_sums(world: &World) {
    let core = &world.core;
    let (closed, total) = (core.accounting().totals(), core.accounting().totals_at(world.now));
    let mut sum = closed;
    sum += total - closed;
    assert_eq!(sum, total);
    assert!(core.accounting().records().len() as u64 <= total.preemptions);
    let vcpus = (0..world.states().len() as u32).map(VcpuIndex);
    let earliest = vcpus.clone().filter_map(|vcpu| core.deadline(vcpu)).min();
    assert_eq!(core.next_deadline(), earliest);
    let observation = Observation { mode: Mode::Unknown, activity: LockActivity::Free };
    for vcpu in vcpus {
        let keeps = core.keeps_slot_in_hlt(vcpu, &observation, world.now);
        assert!(!keeps || world.runs(vcpu.ix()), "{vcpu:?} keeps a slot that it does not have");
    }
}

pub fn core_seeds() -> Vec<Vec<u8>> {
    // A history of all 17 kinds of steps, for each policy.
    let history: Vec<u8> = (0..200_u8).flat_map(|n| [n % 17, n.wrapping_mul(7), n / 3]).collect();
    let count = POLICIES.iter().map(|policy| policy.tested.len()).sum::<usize>();
    (0..count).map(|policy| [&[policy as u8, 5, 1], &history[..]].concat()).collect()
}

/// A recording file: it is written as it was read, and can be replayed.
pub fn recording(bytes: &[u8]) {
    const MAX_VCPUS: u32 = 16;
    let recording = match Recording::read(&mut &*bytes) {
        Ok(recording) => recording,
        Err(error) => return is_one_line(&error.to_string()),
    };
    check_round_trip(&recording);
    let (vcpus, slots) = (recording.vcpus, recording.slots);
    if !(1..=MAX_VCPUS).contains(&vcpus) || !(1..=MAX_VCPUS).contains(&slots) {
        return;
    }
    if let Some(shortfall) = recording.shortfall() {
        is_one_line(&shortfall);
    }
    let mut world = World::new("replay:it", vcpus as usize, slots as usize, Some(&recording));
    (0..recording.slices.len().min(MAX_STEPS)).for_each(|n| advance(&mut world, n));
    let divergence = world.core.policy().divergence().unwrap();
    assert!(divergence.replayed + divergence.skipped <= divergence.recorded);
    assert_eq!((divergence + divergence).replayed, 2 * divergence.replayed);
    // A recording of the replay.
    check_round_trip(&Recording::from_core(&world.core, vcpus));
}

/// Checks that a recording is read as it was written.
fn check_round_trip(recording: &Recording) {
    let mut written = Vec::new();
    recording.write(&mut written).unwrap();
    assert_eq!(Recording::read(&mut &written[..]).unwrap(), *recording);
}

/// Advances to the next deadline, then takes step `n` of a fixed sequence.
fn advance(world: &mut World, n: usize) {
    world.due(n);
    let v = n / 8;
    let step = match n % 8 {
        0 => WorldStep::Park(v),
        1 => WorldStep::Halted(v),
        2 => WorldStep::Kick(v, v + 1),
        3 => WorldStep::Yield(v),
        4 => WorldStep::Spin(v, n),
        5 => WorldStep::Point(v),
        6 => WorldStep::HandOver(v, v + 1),
        _ if v % 40 == 39 => WorldStep::Exit(v),
        _ => WorldStep::Pass(300),
    };
    world.step(step);
}

pub fn recording_seeds() -> Vec<Vec<u8>> {
    let record = |policy, vcpus: u32, slots| {
        let mut world = World::new(policy, vcpus as usize, slots, None);
        (0..600).for_each(|n| advance(&mut world, n));
        let mut bytes = Vec::new();
        Recording::from_core(&world.core, vcpus).write(&mut bytes).unwrap();
        bytes
    };
    let policies =
        ["rr", "random", "kick-boost", "directed-yield", "deferred:ask", "lhp:100000,5us"];
    let mut seeds: Vec<_> = policies.map(|policy| record(policy, 6, 2)).into();
    seeds.push(record("point:critical,100000,5us", 3, 1));
    seeds
}
