//! A replay ends each slice as recorded, by the guest's own event if an event ended it, and counts the
//! deviations.

use hypercalls::telemetry::Point;

use super::{
    core::State,
    log::{Turn, TurnEnd},
    policy::Divergence,
    test_support::{SLICE, by, free, holding, members, new_core, recording_of, waiting},
    *,
};
use base::units::{Nanos, SlotId};

fn turn(at: u64, ran: u64, vcpu: u32, end: TurnEnd) -> Turn {
    let (at, ran, vcpu, slot) = (Nanos(at), Nanos(ran), VcpuIndex(vcpu), SlotId(0));
    Turn { at, ran, vcpu, slot, end, point: None, free: false }
}

fn core_of(policy: &str, vcpus: usize, slots: usize, turns: &[Turn]) -> Core {
    let recording = recording_of(vcpus, slots, turns);
    new_core(policy, &members(&vec![0; vcpus]), slots, Some(&recording))
}

/// A replay on one slot. Its vCPUs start at time 0.
struct Replay(Core);

impl Replay {
    fn of(vcpus: usize, turns: &[Turn]) -> Self {
        let mut replay = Self(core_of("replay:it", vcpus, 1, turns));
        (0..vcpus as u32).for_each(|vcpu| drop(replay.tell(vcpu, Event::Started, 0)));
        replay
    }

    fn tell(&mut self, vcpu: u32, event: Event, now: u64) -> Vec<Action> {
        self.0.handle(VcpuIndex(vcpu), event, Nanos(now)).to_vec()
    }

    fn until(&self, vcpu: u32) -> u64 {
        self.0.deadline(VcpuIndex(vcpu)).unwrap().0
    }

    fn ends(&self) -> Vec<TurnEnd> {
        self.0.log().turns().iter().map(|turn| turn.end).collect()
    }

    /// Returns the numbers of early, late and otherwise divergent slices.
    fn divergence(&self) -> (u64, u64, u64) {
        let Divergence { early, late, otherwise, .. } = self.0.policy().divergence().unwrap();
        (early, late, otherwise)
    }
}

#[test]
fn a_turn_that_was_yielded_is_asked_for_from_then_on() {
    let mut replay =
        Replay::of(2, &[turn(0, 500, 0, TurnEnd::Yield), turn(500, 9, 1, TurnEnd::Slice)]);
    replay.tell(0, Event::Yielded, 100);
    assert_eq!(replay.until(0), 500, "it was not asked to");
    assert_eq!(replay.tell(0, Event::Stopped(holding()), 500), [Action::Ask(VcpuIndex(0))]);
    let next = replay.tell(0, Event::Yielded, 520);
    assert_eq!(next, [Action::Grant(VcpuIndex(1), SlotId(0))]);
    assert_eq!((replay.0.accounting().totals().preemptions, replay.divergence()), (0, (0, 0, 0)));
}

/// Regression: a vCPU that kept its slot to the end of the recording cut the replay short, and the replay of
/// the part before it was reported as complete.
#[test]
fn turns_after_one_that_was_not_over_are_left_out_and_counted() {
    let open = |slot: u32| Turn { slot: SlotId(slot), ..turn(0, 0, slot, TurnEnd::Open) };
    let whole = |count: u64, slot: u32| {
        (0..count).map(move |n| Turn {
            slot: SlotId(slot),
            ..turn(n * 100, 100, 1 + (n % 2) as u32, TurnEnd::Slice)
        })
    };
    let outcome = |turns: &[Turn]| {
        let Divergence { recorded, left_out, .. } =
            core_of("replay:it", 3, 2, turns).policy().divergence().unwrap();
        let all_came =
            Divergence { recorded, replayed: recorded, left_out, ..Divergence::default() };
        (recorded, left_out, all_came.is_repeated())
    };
    let first_is_open: Vec<Turn> = [open(0)].into_iter().chain(whole(20, 1)).collect();
    assert_eq!(outcome(&first_is_open), (0, 21, false));
    assert_eq!(outcome(&[open(0), open(1)]), (0, 2, false), "nothing can be repeated");
    assert_eq!(outcome(&[]), (0, 0, true));
    // The usual end of a recording: each slot has an open slice, and few slices began after the first.
    let late = |turn: Turn| Turn { at: Nanos(turn.at.0 + 2_000), ..turn };
    let usual: Vec<Turn> = whole(20, 1)
        .chain([late(open(0))])
        .chain(whole(1, 1).map(late))
        .chain([late(open(1))])
        .collect();
    assert_eq!(outcome(&usual), (20, 1, true));
}

#[test]
fn an_event_that_does_not_come_within_a_slice_is_a_divergence() {
    for (end, ends) in [
        (TurnEnd::Yield, TurnEnd::Slice),
        (TurnEnd::Spun, TurnEnd::Slice),
        (TurnEnd::MadeWay, TurnEnd::Slice),
    ] {
        let mut replay = Replay::of(2, &[turn(0, 500, 0, end), turn(500, 9, 1, TurnEnd::Slice)]);
        replay.tell(0, Event::Stopped(holding()), 500);
        assert_eq!(replay.until(0), 500 + SLICE.0, "{end:?}");
        replay.tell(0, Event::Stopped(holding()), 500 + SLICE.0);
        assert_eq!((replay.ends()[0], replay.divergence()), (ends, (0, 0, 1)), "{end:?}");
    }
}

#[test]
fn a_turn_that_spun_out_is_replayed() {
    let turns = [turn(0, 500, 0, TurnEnd::Spun), turn(500, 9, 1, TurnEnd::Slice)];
    let mut replay = Replay::of(2, &turns);
    assert_eq!(replay.tell(0, Event::SpunOut(waiting(4, 2, 0)), 300), [], "too early");
    replay.tell(0, Event::Stopped(waiting(4, 2, 0)), 500);
    replay.tell(0, Event::SpunOut(waiting(4, 2, 0)), 510);
    assert_eq!((replay.ends()[0], replay.divergence()), (TurnEnd::Spun, (0, 0, 0)));
}

#[test]
fn a_turn_that_ended_for_a_kick_is_replayed() {
    let turns = [
        turn(0, 10, 1, TurnEnd::Halted),
        turn(10, 500, 0, TurnEnd::MadeWay),
        turn(510, 9, 1, TurnEnd::Slice),
    ];
    let mut replay = Replay::of(2, &turns);
    replay.tell(1, Event::Halted(waiting(2, 1, 0)), 10);
    replay.tell(0, Event::Stopped(free()), 510);
    let next = replay.tell(1, Event::Kicked(by(VcpuIndex(0))), 512);
    assert_eq!(next, [Action::Grant(VcpuIndex(1), SlotId(0))]);
    assert_eq!((replay.ends()[1], replay.divergence()), (TurnEnd::MadeWay, (0, 0, 0)));
}

#[test]
fn a_preemption_at_a_point_is_replayed() {
    let at_place = Turn { point: Some(Point::Critical), ..turn(0, 500, 0, TurnEnd::Injected) };
    let turns = [at_place, turn(500, 100, 1, TurnEnd::Slice), turn(700, 9, 0, TurnEnd::Slice)];
    let mut replay = Replay::of(2, &turns);
    let told = replay.tell(0, Event::Stopped(free()), 500);
    assert_eq!(told, [Action::Points(Point::Critical.bit())]);
    replay.tell(0, Event::Point(Point::BeforeFlag, holding()), 520);
    assert_eq!(replay.0.state(VcpuIndex(0)), State::Running(SlotId(0)), "another place");
    replay.tell(0, Event::Point(Point::Critical, holding()), 530);
    assert_eq!(replay.0.state(VcpuIndex(0)), State::Held(Nanos(730)), "200 ns, as recorded");
    let [turn, ..] = replay.0.log().turns() else { panic!() };
    assert_eq!((turn.end, turn.point), (TurnEnd::Injected, Some(Point::Critical)));
    assert_eq!((replay.0.policy().points(Nanos(530)), replay.divergence()), (0, (0, 0, 0)));
}

#[test]
fn nothing_is_held_for_longer_than_a_minute() {
    let again = turn(1 << 63, 100, 0, TurnEnd::Slice);
    let mut replay = Replay::of(1, &[turn(0, 500, 0, TurnEnd::Injected), again]);
    replay.tell(0, Event::Stopped(free()), 500);
    assert_eq!(replay.0.state(VcpuIndex(0)), State::Held(Nanos(60_000_000_500)));
}
