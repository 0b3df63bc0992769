//! Recordings of simulated schedules, and their replays.

use super::tests::{MILLI, spec};
use crate::*;
use base::units::Nanos;
use sched::{log::SliceEnd, recording::Recording};

const END: Picos = Picos(5 * MILLI.0);

fn run(spec: &Spec, decisions: Decisions<'_>) -> (Sim, SimFigures) {
    let mut sim = Sim::scheduled(spec, decisions).expect("it can be simulated");
    sim.run_until(END).expect("it goes on");
    let figures = sim.figures();
    (sim, figures)
}

fn recorded(spec: &Spec) -> (Recording, SimFigures) {
    let (sim, figures) = run(spec, Decisions { are_recorded: true, ..Decisions::default() });
    let recording = sim.recording();
    sim.finish().expect("it ends");
    (recording, figures)
}

/// Replays a recording in the same guest: the divergence, and the figures.
fn replayed(spec: &Spec, recording: &Recording) -> (sched::policy::Divergence, SimFigures) {
    let policy = "replay:of-a-test".parse().expect("it is a policy");
    let spec = Spec { policy, ..spec.clone() };
    let (sim, figures) = run(&spec, Decisions { replayed: Some(recording), are_recorded: false });
    let divergence = sim.divergence().expect("it is a replay");
    sim.finish().expect("it ends");
    (divergence, figures)
}

#[test]
fn replays_repeat_recorded_slices() {
    for (system, policy) in [
        (System::NativeTicket, "rr"),
        (System::TestAndSet, "random"),
        (System::Queued, "fair"),
        (System::NativeTicket, "gang"),
    ] {
        let spec = spec(system, 8, policy);
        let (recording, first) = recorded(&spec);
        assert!(recording.slices.len() > 40, "{system} {policy}: {}", recording.slices.len());
        let (divergence, replay) = replayed(&spec, &recording);
        let sched::policy::Divergence { recorded, replayed, skipped, woken, .. } = divergence;
        assert_eq!((skipped, woken), (0, 0), "{system} {policy}: {divergence:?}");
        // Slices in progress at the end are not replayed completely.
        assert!(replayed >= recorded - 8, "{system} {policy}: {divergence:?}");
        let (first, replay) = (first.schedule.preemptions, replay.schedule.preemptions);
        assert!(first.abs_diff(replay) <= first / 20 + 8, "{system} {policy}: {first} {replay}");
    }
}

/// Regression: a slice of `deferred` ends once its vCPU leaves its lock. The replay ended it by the clock, in
/// a lock: it had a thousandth of the rate, or preempted holders and passed as exact (A6 of tests/HISTORY.md).
#[test]
fn deferred_is_repeated() {
    for system in [System::NativeTicket, System::Queued] {
        let spec = spec(system, 8, "deferred");
        let (recording, first) = recorded(&spec);
        let (divergence, replay) = replayed(&spec, &recording);
        assert!(divergence.recorded > 40 && divergence.is_repeated(), "{system}: {divergence:?}");
        let rates = (first.total(), replay.total());
        assert!(rates.0.abs_diff(rates.1) <= rates.0 / 20, "{system}: {rates:?}");
        let held = (first.schedule.lhp, replay.schedule.lhp);
        assert!(held.1 <= held.0, "{system}: holders preempted, {held:?}");
        // Guests with shorter think times hold their locks at different times.
        let mut slower = spec.clone();
        slower.load.think = Span::Uniform(Picos(4 * spec.machine.costs.increment.0 * 53));
        let (divergence, small) = replayed(&slower, &recording);
        let by_clock = first.schedule.preemptions;
        assert!(small.schedule.lhp <= by_clock, "{system}: {divergence:?} {:?}", small.schedule);
    }
}

/// Halts and kicks may occur at other times. A replay with another rate is not reported as repeated.
#[test]
fn replays_with_other_rates_are_not_repeated() {
    let systems = [System::NativeTicket, System::PvTicket, System::PvQueued, System::TestAndSet];
    for system in systems {
        for policy in ["deferred", "kick-boost", "rr"] {
            let spec = spec(system, 8, policy);
            let (recording, first) = recorded(&spec);
            let (divergence, replay) = replayed(&spec, &recording);
            let (first, replay) = (first.total(), replay.total());
            let is_alike = first.abs_diff(replay) <= first / 5;
            assert!(
                is_alike || !divergence.is_repeated(),
                "{system} {policy}: {first} {replay} {divergence:?}"
            );
        }
    }
}

/// Regression: a vCPU that keeps its slot until the end of the recording cuts the replay short, and the
/// replay of the earlier slices was reported as complete.
#[test]
fn truncated_recordings_are_not_repeated() {
    let spec = spec(System::NativeTicket, 8, "rr");
    let (mut recording, _) = recorded(&spec);
    (recording.slices[8].ran, recording.slices[8].end) = (Nanos::ZERO, SliceEnd::Open);
    let (divergence, _) = replayed(&spec, &recording);
    assert!(!divergence.is_repeated(), "{} slices: {divergence:?}", recording.slices.len());
    assert!(divergence.recorded == 8 && divergence.left_out > 8, "{divergence:?}");
}

/// The guest decides when it halts and kicks: its slices may differ, and the difference is reported.
#[test]
fn replays_of_halts_report_divergence() {
    let spec = spec(System::PvTicket, 8, "rr");
    let (recording, _) = recorded(&spec);
    let (divergence, figures) = replayed(&spec, &recording);
    let slices = divergence.replayed + divergence.skipped;
    assert!(slices > 40 && slices <= divergence.recorded, "{divergence:?}");
    assert!(figures.operations.iter().sum::<u64>() > 0 && figures.violations == 0);
}

#[test]
fn only_a_recording_of_the_same_size_is_replayed() {
    let spec_of = |vcpus| spec(System::NativeTicket, vcpus, "rr");
    let (recording, _) = recorded(&spec_of(8));
    let policy: sched::PolicySpec = "replay:of-a-test".parse().expect("it is a policy");
    let small = Spec { policy: policy.clone(), ..spec_of(7) };
    let decisions = Decisions { replayed: Some(&recording), are_recorded: false };
    let refused = Sim::scheduled(&small, decisions).map(|_| ());
    assert!(matches!(refused, Err(SimSpecError::OtherSize { vcpus: 8, slots: 4 })), "{refused:?}");
    let refused = Sim::new(&Spec { policy, ..spec_of(8) }).map(|_| ());
    assert!(matches!(refused, Err(SimSpecError::NoRecording)), "{refused:?}");
}
