//! What no policy may break, on random histories.

use std::cell::RefCell;

use proptest::{collection::vec, prelude::*};

use super::{
    core::State,
    event::Blind,
    log::{Log, Turn, TurnEnd},
    policy::Setup,
    recording::Recording,
    testing::{SLICE, core_of, free, holding, new_core, recording_of, tell, waiting},
    *,
};
use crate::units::{Nanos, SlotId};

/// Something that may happen next; whether it can is seen when its turn comes.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// The earliest deadline passes, and its vCPU comes out like this.
    Due(usize),
    /// A vCPU comes out for no reason.
    Spurious(usize),
    /// A running vCPU's latch is parked; its `Halted` may come later.
    Park(usize),
    /// Its `Halted`.
    Halted(usize),
    Kick(usize, usize),
    /// The first halts and kicks the second.
    HandOver(usize, usize),
    Yield(usize),
    Spin(usize, usize),
    Point(usize),
    Idle(usize),
    StopInHlt(usize),
    KickInHlt(usize, usize),
    Woken(usize),
    Exit(usize),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let who = || 0..64_usize;
    prop_oneof![
        20 => who().prop_map(Step::Due),
        4 => who().prop_map(Step::Spurious),
        8 => who().prop_map(Step::Park),
        8 => who().prop_map(Step::Halted),
        8 => (who(), who()).prop_map(|(a, b)| Step::Kick(a, b)),
        4 => (who(), who()).prop_map(|(a, b)| Step::HandOver(a, b)),
        4 => who().prop_map(Step::Yield),
        4 => (who(), who()).prop_map(|(a, b)| Step::Spin(a, b)),
        2 => who().prop_map(Step::Point),
        3 => who().prop_map(Step::Idle),
        3 => who().prop_map(Step::StopInHlt),
        3 => (who(), who()).prop_map(|(a, b)| Step::KickInHlt(a, b)),
        3 => who().prop_map(Step::Woken),
        1 => who().prop_map(Step::Exit),
        4 => (0..3_000_u64).prop_map(Step::Pass),
    ]
}

const LOOKS: [Doing; 5] = [
    Doing::Unknown,
    Doing::Free,
    Doing::Entering,
    Doing::Holding { lock: Some(LockId(1)), depth: 1 },
    Doing::Waiting {
        lock: LockId(1),
        ticket: 4,
        distance: Some(1),
        since: Nanos(0),
        halted: false,
    },
];

fn look(which: usize) -> Look {
    Look { mode: Mode::Unknown, doing: LOOKS[which % LOOKS.len()] }
}

/// A schedule, and what the threads around it would know.
struct World {
    core: Core,
    now: Nanos,
    parked: Vec<bool>,
    /// A kick was taken from the latch and is owed a wake-up.
    owed: Vec<bool>,
    conserving: bool,
    replays: bool,
    points: RefCell<u32>,
}

impl World {
    fn new(policy: &str, vcpus: usize, slots: usize, recording: Option<&Recording>) -> Self {
        let vms: Vec<u32> = (0..vcpus).map(|ix| (ix % 3) as u32).collect();
        let setup = Setup { vms: &vms, slots, slice: SLICE, seed: 7, recording };
        let policy = policy.parse::<PolicySpec>().unwrap().make(&setup).unwrap();
        let members: Vec<Member> =
            vms.iter().map(|vm| Member { vm: *vm, weight: 512 * (vm + 1) }).collect();
        let conserving = policy.is_work_conserving();
        let core = Core::new(&members, slots, policy, Log::new());
        let (parked, owed) = (vec![false; vcpus], vec![false; vcpus]);
        let (now, points) = (Nanos(1), RefCell::default());
        let replays = recording.is_some();
        let mut world = Self { core, now, parked, owed, conserving, replays, points };
        (0..vcpus).for_each(|ix| world.tell(ix, Event::Started));
        world
    }

    fn tell(&mut self, ix: usize, event: Event) {
        let free: Vec<bool> = self.core.slots().iter().map(Option::is_none).collect();
        let before: Vec<State> = self.states();
        let actions = self.core.handle(VcpuIndex(ix as u32), event, self.now, &Blind).to_vec();
        for action in actions {
            match action {
                Action::Grant(vcpu, slot) => {
                    let was = before[vcpu.ix()];
                    // Free before, or freed by the vCPU that this event is of or by.
                    let kicker = match event {
                        Event::Kicked(Some(by)) | Event::KickedInHlt(Some(by)) => before[by.ix()],
                        _ => State::New,
                    };
                    let freed = [before[ix], kicker].contains(&State::Running(slot));
                    assert!(free[slot.0 as usize] || freed);
                    assert_eq!(self.core.state(vcpu), State::Running(slot));
                    assert!(!matches!(was, State::Gone), "{vcpu:?} has left");
                    if was == State::Halted {
                        let kicked = match event {
                            Event::Kicked(_) => vcpu.ix() == ix,
                            Event::HandedOver(to, _) => vcpu == to,
                            _ => false,
                        };
                        assert!(kicked || self.replays, "{vcpu:?} was not kicked");
                        // Woken for no reason, its thread parks no longer.
                        self.parked[vcpu.ix()] = false;
                    }
                }
                Action::Points(mask) => *self.points.borrow_mut() = mask,
                Action::Ask(vcpu) | Action::Signal(vcpu) => {
                    assert!(matches!(self.core.state(vcpu), State::Running(_)));
                }
            }
        }
        self.check();
    }

    fn states(&self) -> Vec<State> {
        (0..self.parked.len()).map(|ix| self.core.state(VcpuIndex(ix as u32))).collect()
    }

    fn check(&self) {
        let states = self.states();
        for (ix, occupant) in self.core.slots().iter().enumerate() {
            let slot = SlotId(ix as u32);
            let here: Vec<usize> =
                (0..states.len()).filter(|vcpu| states[*vcpu] == State::Running(slot)).collect();
            assert!(here.len() <= 1, "{here:?} share {slot}");
            assert_eq!(here.first().copied(), occupant.map(VcpuIndex::ix));
        }
        let waits = states.contains(&State::Ready);
        assert_eq!(self.core.is_wanted(), waits);
        let idle = self.core.slots().iter().any(Option::is_none);
        assert!(!(self.conserving && waits && idle), "a slot idles while a vCPU waits");
    }

    fn runs(&self, ix: usize) -> bool {
        matches!(self.core.state(VcpuIndex(ix as u32)), State::Running(_))
    }

    /// A vCPU that runs and is not on its way into a halt can do things.
    fn acts(&self, ix: usize) -> bool {
        self.runs(ix) && !self.parked[ix] && !self.owed[ix]
    }

    fn due(&mut self, which: usize) {
        let all = (0..self.parked.len()).map(|ix| VcpuIndex(ix as u32));
        let next = all.filter_map(|v| Some((self.core.deadline(v)?, v))).min();
        let Some((at, vcpu)) = next.filter(|(at, _)| *at < Nanos::NEVER) else { return };
        self.now = self.now.max(at);
        if self.parked[vcpu.ix()] || self.owed[vcpu.ix()] {
            // Its thread is on its way into the halt, and says that first.
            return self.step(Step::Halted(vcpu.ix()));
        }
        match self.core.state(vcpu) {
            State::Held(_) => self.tell(vcpu.ix(), Event::HoldOver),
            _ => self.tell(vcpu.ix(), Event::Stopped(look(which))),
        }
    }

    fn step(&mut self, step: Step) {
        let n = self.parked.len();
        match step {
            Step::Due(which) => self.due(which),
            Step::Pass(span) => self.now = self.now.after(Nanos(span)),
            Step::Spurious(v) if self.acts(v % n) => self.tell(v % n, Event::Stopped(look(v))),
            Step::Park(v) if self.acts(v % n) => self.parked[v % n] = true,
            Step::Halted(v) => {
                let v = v % n;
                if self.runs(v) && (self.parked[v] || self.owed[v]) {
                    let owed = self.owed[v];
                    self.tell(v, Event::Halted(look(4)));
                    let woken = self.replays && !owed;
                    assert!(woken || self.runs(v) == owed, "an early kick ends a halt at once");
                    if owed {
                        self.owed[v] = false;
                    }
                }
            }
            Step::Kick(v, by) if self.parked[v % n] => {
                self.parked[v % n] = false;
                self.owed[v % n] = self.runs(v % n);
                // Who is on its way into a halt kicks nobody.
                let by = self.acts(by % n).then_some(VcpuIndex((by % n) as u32));
                self.tell(v % n, Event::Kicked(by));
                assert_ne!(self.states()[v % n], State::Halted, "a kicked vCPU stays halted");
            }
            Step::HandOver(v, to) if self.acts(v % n) && self.parked[to % n] => {
                let (v, to) = (v % n, to % n);
                self.parked[to] = false;
                self.owed[to] = self.runs(to);
                self.parked[v] = true;
                self.tell(v, Event::HandedOver(VcpuIndex(to as u32), look(4)));
                assert!(self.replays || !self.runs(v), "who hands over halts");
                assert_ne!(self.states()[to], State::Halted, "a kicked vCPU stays halted");
            }
            Step::Yield(v) if self.acts(v % n) => self.tell(v % n, Event::Yielded),
            Step::Spin(v, l) if self.acts(v % n) => self.tell(v % n, Event::SpunOut(look(l))),
            Step::Point(v) if self.acts(v % n) && *self.points.borrow() != 0 => {
                let point = hypercalls::telemetry::Point::Critical;
                self.tell(v % n, Event::Point(point, look(3)));
            }
            Step::Idle(v) if self.acts(v % n) => self.tell(v % n, Event::Idle(look(v))),
            Step::StopInHlt(v) if self.acts(v % n) => {
                self.tell(v % n, Event::StoppedInHlt(look(v)));
            }
            Step::KickInHlt(v, by) => {
                let by = self.acts(by % n).then_some(VcpuIndex((by % n) as u32));
                self.tell(v % n, Event::KickedInHlt(by));
                assert_ne!(self.states()[v % n], State::Idle, "a kicked vCPU stays in HLT");
            }
            Step::Woken(v) => self.tell(v % n, Event::Woken(look(v))),
            Step::Exit(v) if self.acts(v % n) => self.tell(v % n, Event::Exited),
            _ => {}
        }
    }
}

const ALL: [&str; 13] = [
    "rr",
    "fair",
    "gang",
    "kick-boost",
    "kick-boost:later",
    "directed-yield",
    "deferred",
    "deferred:look",
    "lhp:100000,5us",
    "lwp:100000,5us",
    "point:critical,100000,5us",
    "random",
    "replay:none",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Never two vCPUs on a slot nor one on two; work conserved where promised; halted vCPUs
    /// never granted; no kick lost: all checked at every step.
    #[test]
    fn no_history_breaks_the_rules(
        steps in vec(step(), 1..400), vcpus in 1..12_usize, slots in 1..5_usize,
    ) {
        for policy in ALL {
            let mut world = World::new(policy, vcpus, slots, None);
            steps.iter().for_each(|s| world.step(*s));
        }
    }

    /// Whoever waits runs within a bounded number of turns, under what promises it.
    #[test]
    fn nobody_starves(steps in vec(step(), 1..200), vcpus in 1..12_usize, slots in 1..5_usize) {
        for policy in ["rr", "fair"] {
            let mut world = World::new(policy, vcpus, slots, None);
            steps.iter().for_each(|s| world.step(*s));
            let waiting: Vec<usize> =
                (0..vcpus).filter(|v| world.states()[*v] == State::Ready).collect();
            let mut ran = vec![false; vcpus];
            // `fair` lets those go first that have had less: at most a slice's credit each, and by
            // weights of 1 to 3.
            for _ in 0..vcpus * 40 + 400 {
                world.due(1);
                (0..vcpus).filter(|v| world.runs(*v)).for_each(|v| ran[v] = true);
            }
            for v in waiting {
                prop_assert!(ran[v], "{policy}: vCPU {v} starves");
            }
        }
    }

    /// A replay takes the very same turns, whatever the guests do in it.
    #[test]
    fn replays_hold_against_any_history(
        steps in vec(step(), 1..300), others in vec(step(), 1..300), vcpus in 1..8_usize, slots in 1..4_usize,
    ) {
        let stays = |steps: &[Step]| -> Vec<Step> {
            steps.iter().copied().filter(|step| !matches!(step, Step::Exit(_))).collect()
        };
        let mut first = World::new("random", vcpus, slots, None);
        stays(&steps).into_iter().for_each(|step| first.step(step));
        let turns = first.core.log().turns().to_vec();
        let recording = recording_of(vcpus, slots, &turns);
        let mut again = World::new("replay:it", vcpus, slots, Some(&recording));
        stays(&others).into_iter().for_each(|step| again.step(step));
        // However it went, it goes on to the recording's end.
        for _ in 0..turns.len() * 3 {
            again.due(1);
        }
        let replayed = again.core.log().turns();
        let whole: Vec<&Turn> = turns.iter().take_while(|t| t.end != TurnEnd::Open).collect();
        prop_assert!(replayed.len() >= whole.len(), "{} of {}", replayed.len(), whole.len());
        for (recorded, replayed) in whole.into_iter().zip(replayed) {
            prop_assert_eq!((recorded.vcpu, recorded.slot), (replayed.vcpu, replayed.slot));
        }
    }

    /// A replay of a history without halts takes the very same turns.
    #[test]
    fn replays_take_the_same_turns(dues in vec(0..64_usize, 1..300), vcpus in 1..8_usize, slots in 1..4_usize) {
        let mut first = World::new("random", vcpus, slots, None);
        dues.iter().for_each(|which| first.due(*which));
        let turns = first.core.log().turns().to_vec();
        let recording = recording_of(vcpus, slots, &turns);
        let mut again = World::new("replay:it", vcpus, slots, Some(&recording));
        dues.iter().for_each(|which| again.due(*which));
        let who = |turns: &[Turn]| -> Vec<_> { turns.iter().map(|t| (t.vcpu, t.slot)).collect() };
        let replayed = again.core.log().turns();
        let common = turns.iter().take_while(|t| t.end != TurnEnd::Open).count();
        prop_assert!(replayed.len() >= common);
        prop_assert_eq!(who(&turns[..common]), who(&replayed[..common]));
        let divergence = again.core.policy().divergence().unwrap();
        prop_assert_eq!((divergence.skipped, divergence.early, divergence.late), (0, 0, 0));
    }
}

#[test]
fn lhp_waits_for_a_holder_and_keeps_it_off() {
    let mut core = core_of("lhp:100000,500ns", &[0, 0], 2);
    // The first is due 10 us after the start.
    tell(&mut core, 0, Event::Stopped(waiting(2, 1, 0)), 20_000);
    tell(&mut core, 1, Event::Stopped(free()), 20_100);
    assert_eq!(core.policy().hits().unwrap().misses, 2);
    tell(&mut core, 1, Event::Stopped(holding()), 20_200);
    assert_eq!(core.state(VcpuIndex(1)), State::Held(Nanos(20_700)));
    // A waiter spins from 20_000 until the holder is back at 20_700, all but 200 ns in vain.
    tell(&mut core, 0, Event::Stopped(waiting(2, 1, 20_000)), 20_600);
    tell(&mut core, 1, Event::HoldOver, 20_699);
    assert_eq!(core.state(VcpuIndex(1)), State::Held(Nanos(20_700)), "too early");
    tell(&mut core, 1, Event::HoldOver, 20_700);
    let totals = core.truth().totals();
    assert_eq!((totals.lhp, totals.lwp, totals.injected), (1, 0, 1));
    assert_eq!(totals.wasted_spin_ns, 400, "counted at its stop; the rest was not witnessed");
    assert_eq!(totals.holders_off_ns, 500);
    assert_eq!(core.truth().records()[0].off, Some(Nanos(500)));
}

#[test]
fn a_lock_that_serves_a_preempted_vcpu_wastes_what_others_spin() {
    let mut core = core_of("rr", &[0; 3], 2);
    // Far back in the line when its slice ends, and served 300 ns later.
    tell(&mut core, 0, Event::Stopped(waiting(8, 3, 0)), 1_100);
    assert_eq!(core.truth().totals().lwp, 0);
    tell(&mut core, 1, Event::Stopped(waiting(10, 1, 1_400)), 2_000);
    assert_eq!(core.truth().totals().wasted_spin_ns, 600, "from when it waits until it is seen");
    let mut core = core_of("rr", &[0; 3], 2);
    tell(&mut core, 0, Event::Stopped(waiting(8, 3, 0)), 1_100);
    tell(&mut core, 1, Event::Stopped(waiting(10, 2, 1_400)), 2_000);
    assert_eq!(core.truth().totals().wasted_spin_ns, 0, "another is served, who runs");
}

/// What one vCPU is seen at.
struct Seen(u32, Doing);

impl Witness for Seen {
    fn glance(&self, vcpu: VcpuIndex) -> Doing {
        if vcpu == VcpuIndex(self.0) { self.1 } else { Doing::Free }
    }
}

/// A wait that began before a measurement, and ends after it: the measurement has its share of it,
/// and no more than its own length.
#[test]
fn what_is_measured_between_two_moments_is_what_was_spun_between_them() {
    let mut core = core_of("lhp:100000,50us", &[0, 0], 2);
    tell(&mut core, 1, Event::Stopped(holding()), 20_000);
    assert_eq!(core.state(VcpuIndex(1)), State::Held(Nanos(70_000)));
    let spins = waiting(2, 1, 20_000);
    let at = |core: &mut Core, now| {
        core.settle(now, &Seen(0, spins.doing));
        core.truth().totals_at(now)
    };
    let (before, after) = (at(&mut core, Nanos(30_000)), at(&mut core, Nanos(40_000)));
    assert_eq!((after - before).wasted_spin_ns, 10_000);
    assert_eq!((after - before).holders_off_ns, 10_000, "it is not back, and off all the same");
    // The rest of the wait is of the time after, and nothing of it counts twice.
    tell(&mut core, 0, Event::Stopped(spins), 45_000);
    let later = core.truth().totals_at(Nanos(45_000)) - after;
    assert_eq!((later.wasted_spin_ns, later.holders_off_ns), (5_000, 5_000));
}

#[test]
fn deferred_asks_once_and_forces_after_the_grace() {
    let mut core = core_of("deferred:ask,300ns", &[0, 0], 1);
    assert_eq!(tell(&mut core, 0, Event::Stopped(holding()), 1_001), [Action::Ask(VcpuIndex(0))]);
    assert_eq!(core.deadline(VcpuIndex(0)), Some(Nanos(1_301)));
    let granted = tell(&mut core, 0, Event::Yielded, 1_100);
    assert_eq!(granted, [Action::Grant(VcpuIndex(1), SlotId(0))]);
    assert_eq!((core.truth().totals().yields, core.truth().totals().preemptions), (1, 0));
    tell(&mut core, 1, Event::Stopped(holding()), 2_100);
    tell(&mut core, 1, Event::Stopped(holding()), 2_400);
    assert_eq!((core.truth().totals().forced, core.truth().totals().lhp), (1, 1));
    // Out of any lock it goes at once.
    tell(&mut core, 0, Event::Stopped(free()), 3_400);
    assert_eq!(core.truth().totals().preemptions, 2);
}

#[test]
fn kick_boost_runs_the_kicked_on_the_kickers_slot() {
    let mut core = core_of("kick-boost:later", &[0; 4], 2);
    tell(&mut core, 0, Event::Halted(waiting(2, 1, 0)), 10); // 2 gets slot 0
    tell(&mut core, 1, Event::Kicked(None), 20);
    tell(&mut core, 0, Event::Kicked(Some(VcpuIndex(1))), 30);
    // Slot 0 frees first, but 0 belongs beside its kicker: nobody else boosted, so it goes there.
    assert_eq!(
        tell(&mut core, 2, Event::Halted(waiting(4, 2, 0)), 40),
        [Action::Grant(VcpuIndex(0), SlotId(0))]
    );
}

#[test]
fn a_kick_of_a_vcpu_that_has_not_come_is_kept_for_its_first_halt() {
    let mut core = new_core("rr", &[0, 0], 1);
    tell(&mut core, 1, Event::Started, 1);
    tell(&mut core, 0, Event::Kicked(Some(VcpuIndex(1))), 2);
    assert_eq!(core.state(VcpuIndex(0)), State::New, "a kick starts nobody");
    tell(&mut core, 1, Event::Exited, 3);
    tell(&mut core, 0, Event::Started, 4);
    tell(&mut core, 0, Event::Halted(waiting(2, 1, 0)), 5);
    assert_eq!(core.state(VcpuIndex(0)), State::Running(SlotId(0)), "the kick was for this halt");
}

#[test]
fn who_is_handed_over_to_runs_on_the_slot_that_was_left() {
    let mut core = core_of("rr", &[0; 3], 2);
    tell(&mut core, 2, Event::Exited, 5);
    tell(&mut core, 0, Event::Halted(waiting(2, 1, 0)), 10); // and leaves slot 0 idle
    assert_eq!(
        tell(&mut core, 1, Event::HandedOver(VcpuIndex(0), waiting(4, 1, 0)), 30),
        [Action::Grant(VcpuIndex(0), SlotId(1))],
        "slot 0 is free too, but its CPU sleeps"
    );
    assert_eq!(core.state(VcpuIndex(1)), State::Halted);
}

#[test]
fn a_kicker_makes_way_on_its_own_slot() {
    let mut core = core_of("kick-boost", &[0; 4], 2);
    tell(&mut core, 0, Event::Halted(waiting(2, 1, 0)), 10); // 2 gets slot 0
    assert_eq!(
        tell(&mut core, 0, Event::Kicked(Some(VcpuIndex(1))), 30),
        [Action::Grant(VcpuIndex(0), SlotId(1))]
    );
    assert_eq!(core.state(VcpuIndex(1)), State::Ready);
}

#[test]
fn directed_yield_prefers_the_holder() {
    let mut core = core_of("directed-yield", &[0; 4], 1);
    tell(&mut core, 0, Event::Stopped(free()), 1_001);
    tell(&mut core, 1, Event::Stopped(holding()), 2_001);
    tell(&mut core, 2, Event::Stopped(waiting(6, 2, 0)), 3_001);
    assert_eq!(
        tell(&mut core, 3, Event::SpunOut(waiting(8, 3, 3_100)), 3_200),
        [Action::Grant(VcpuIndex(1), SlotId(0))],
        "though 0 has waited longer"
    );
    assert_eq!(
        tell(&mut core, 1, Event::Stopped(free()), 4_300),
        [Action::Grant(VcpuIndex(0), SlotId(0))]
    );
}

#[test]
fn gangs_change_together() {
    let mut core = core_of("gang", &[0, 0, 1, 1], 2);
    let on_slots = |core: &Core| core.slots().iter().map(|v| v.unwrap().0).collect::<Vec<_>>();
    let first = on_slots(&core);
    assert!(first == [0, 1], "{first:?}");
    tell(&mut core, 0, Event::Stopped(holding()), 1_001);
    tell(&mut core, 1, Event::Stopped(free()), 1_002);
    assert_eq!(on_slots(&core), [2, 3]);
}
