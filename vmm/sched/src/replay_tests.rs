//! A replay ends each slice as recorded, by the guest's own event if an event ended it, and counts the
//! deviations.

use hypercalls::telemetry::Point;

use super::{
    core::State,
    log::{Slice, SliceEnd},
    policy::Divergence,
    test_support::{SLICE, by, free, holding, members, new_core, recording_of, waiting},
    *,
};
use base::units::{Nanos, SlotId};

fn slice(at: u64, ran: u64, vcpu: u32, end: SliceEnd) -> Slice {
    let (at, ran, vcpu, slot) = (Nanos(at), Nanos(ran), VcpuIndex(vcpu), SlotId(0));
    Slice { at, ran, vcpu, slot, end, point: None, free: false }
}

fn core_of(policy: &str, vcpus: usize, slots: usize, slices: &[Slice]) -> Core {
    let recording = recording_of(vcpus, slots, slices);
    new_core(policy, &members(&vec![0; vcpus]), slots, Some(&recording))
}

/// A replay on one slot. Its vCPUs start at time 0.
struct Replay(Core);

impl Replay {
    fn new(vcpus: usize, slices: &[Slice]) -> Self {
        let mut replay = Self(core_of("replay:it", vcpus, 1, slices));
        (0..vcpus as u32).for_each(|vcpu| drop(replay.tell(vcpu, Event::Started, 0)));
        replay
    }

    fn tell(&mut self, vcpu: u32, event: Event, now: u64) -> Vec<Action> {
        self.0.handle(VcpuIndex(vcpu), event, Nanos(now)).to_vec()
    }

    fn until(&self, vcpu: u32) -> u64 {
        self.0.deadline(VcpuIndex(vcpu)).unwrap().0
    }

    fn ends(&self) -> Vec<SliceEnd> {
        self.0.log().slices().iter().map(|slice| slice.end).collect()
    }

    /// Returns the numbers of early, late and otherwise divergent slices.
    fn divergence(&self) -> (u64, u64, u64) {
        let Divergence { early, late, otherwise, .. } = self.0.policy().divergence().unwrap();
        (early, late, otherwise)
    }
}

#[test]
fn yielded_slices_are_replayed_by_asking() {
    let mut replay =
        Replay::new(2, &[slice(0, 500, 0, SliceEnd::Yield), slice(500, 9, 1, SliceEnd::Expired)]);
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
fn slices_after_an_open_slice_are_left_out() {
    let open = |slot: u32| Slice { slot: SlotId(slot), ..slice(0, 0, slot, SliceEnd::Open) };
    let ended = |count: u64, slot: u32| {
        (0..count).map(move |n| Slice {
            slot: SlotId(slot),
            ..slice(n * 100, 100, 1 + (n % 2) as u32, SliceEnd::Expired)
        })
    };
    let outcome = |slices: &[Slice]| {
        let Divergence { recorded, left_out, .. } =
            core_of("replay:it", 3, 2, slices).policy().divergence().unwrap();
        let complete =
            Divergence { recorded, replayed: recorded, left_out, ..Divergence::default() };
        (recorded, left_out, complete.is_repeated())
    };
    let first_is_open: Vec<Slice> = [open(0)].into_iter().chain(ended(20, 1)).collect();
    assert_eq!(outcome(&first_is_open), (0, 21, false));
    assert_eq!(outcome(&[open(0), open(1)]), (0, 2, false), "nothing can be repeated");
    assert_eq!(outcome(&[]), (0, 0, true));
    // The usual end of a recording: each slot has an open slice, and few slices began after the first.
    let late = |slice: Slice| Slice { at: Nanos(slice.at.0 + 2_000), ..slice };
    let usual: Vec<Slice> = ended(20, 1)
        .chain([late(open(0))])
        .chain(ended(1, 1).map(late))
        .chain([late(open(1))])
        .collect();
    assert_eq!(outcome(&usual), (20, 1, true));
}

#[test]
fn a_missing_event_is_a_divergence() {
    for (end, ends) in [
        (SliceEnd::Yield, SliceEnd::Expired),
        (SliceEnd::Spun, SliceEnd::Expired),
        (SliceEnd::MadeWay, SliceEnd::Expired),
    ] {
        let mut replay =
            Replay::new(2, &[slice(0, 500, 0, end), slice(500, 9, 1, SliceEnd::Expired)]);
        replay.tell(0, Event::Stopped(holding()), 500);
        assert_eq!(replay.until(0), 500 + SLICE.0, "{end:?}");
        replay.tell(0, Event::Stopped(holding()), 500 + SLICE.0);
        assert_eq!((replay.ends()[0], replay.divergence()), (ends, (0, 0, 1)), "{end:?}");
    }
}

#[test]
fn slices_that_spun_out_are_replayed() {
    let slices = [slice(0, 500, 0, SliceEnd::Spun), slice(500, 9, 1, SliceEnd::Expired)];
    let mut replay = Replay::new(2, &slices);
    assert_eq!(replay.tell(0, Event::SpunOut(waiting(4, 2, 0)), 300), [], "too early");
    replay.tell(0, Event::Stopped(waiting(4, 2, 0)), 500);
    replay.tell(0, Event::SpunOut(waiting(4, 2, 0)), 510);
    assert_eq!((replay.ends()[0], replay.divergence()), (SliceEnd::Spun, (0, 0, 0)));
}

#[test]
fn slices_ended_by_a_kick_are_replayed() {
    let slices = [
        slice(0, 10, 1, SliceEnd::Halted),
        slice(10, 500, 0, SliceEnd::MadeWay),
        slice(510, 9, 1, SliceEnd::Expired),
    ];
    let mut replay = Replay::new(2, &slices);
    replay.tell(1, Event::Halted(waiting(2, 1, 0)), 10);
    replay.tell(0, Event::Stopped(free()), 510);
    let next = replay.tell(1, Event::Kicked(by(VcpuIndex(0))), 512);
    assert_eq!(next, [Action::Grant(VcpuIndex(1), SlotId(0))]);
    assert_eq!((replay.ends()[1], replay.divergence()), (SliceEnd::MadeWay, (0, 0, 0)));
}

#[test]
fn a_preemption_at_a_point_is_replayed() {
    let at_point = Slice { point: Some(Point::Critical), ..slice(0, 500, 0, SliceEnd::Injected) };
    let slices =
        [at_point, slice(500, 100, 1, SliceEnd::Expired), slice(700, 9, 0, SliceEnd::Expired)];
    let mut replay = Replay::new(2, &slices);
    let actions = replay.tell(0, Event::Stopped(free()), 500);
    assert_eq!(actions, [Action::Points(Point::Critical.bit())]);
    replay.tell(0, Event::Point(Point::BeforeFlag, holding()), 520);
    assert_eq!(replay.0.state(VcpuIndex(0)), State::Running(SlotId(0)), "another point");
    replay.tell(0, Event::Point(Point::Critical, holding()), 530);
    assert_eq!(replay.0.state(VcpuIndex(0)), State::Held(Nanos(730)), "200 ns, as recorded");
    let [slice, ..] = replay.0.log().slices() else { panic!() };
    assert_eq!((slice.end, slice.point), (SliceEnd::Injected, Some(Point::Critical)));
    assert_eq!((replay.0.policy().points(Nanos(530)), replay.divergence()), (0, (0, 0, 0)));
}

#[test]
fn holds_are_limited_to_a_minute() {
    let later = slice(1 << 63, 100, 0, SliceEnd::Expired);
    let mut replay = Replay::new(1, &[slice(0, 500, 0, SliceEnd::Injected), later]);
    replay.tell(0, Event::Stopped(free()), 500);
    assert_eq!(replay.0.state(VcpuIndex(0)), State::Held(Nanos(60_000_000_500)));
}
