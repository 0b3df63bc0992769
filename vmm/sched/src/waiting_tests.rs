//! The longest wait of a vCPU for a slot: the bound that each policy documents, tested with
//! adversarial guests.

use proptest::{collection::vec, prelude::*};

use super::{
    core::State,
    policy::POLICIES,
    test_support::{SLICE, core_of, tell, waiting},
    test_world::{World, WorldStep, step},
    *,
};
use base::units::{Nanos, SlotId};

/// Returns the policies with a bound, with each set of arguments, and the bounds in slices per vCPU.
fn bounds() -> impl Iterator<Item = (&'static str, u64)> {
    let bounded = POLICIES.iter().filter_map(|policy| Some((policy.tested, policy.max_wait?)));
    bounded.flat_map(|(tested, slices)| tested.iter().map(move |text| (*text, slices)))
}

/// Start of each vCPU's current wait for a slot, and the longest wait so far.
struct Waits {
    since: Vec<Option<Nanos>>,
    longest: Nanos,
}

impl Waits {
    fn note(&mut self, world: &World) {
        for (vcpu, since) in (0..).map(VcpuIndex).zip(&mut self.since) {
            let waits = world.core.state(vcpu) == State::Ready;
            *since = waits.then(|| since.unwrap_or(world.now));
            let waited = since.map_or(Nanos::ZERO, |since| world.now.since(since));
            self.longest = self.longest.max(waited);
        }
    }

    /// Lets time pass. Each vCPU leaves the guest at its deadline, as the driver ensures.
    fn pass(&mut self, world: &mut World, span: u64) {
        let until = world.now.after(Nanos(span));
        while world.core.next_deadline().is_some_and(|at| at <= until) {
            world.due(span as usize);
            self.note(world);
        }
        world.now = world.now.max(until);
    }
}

fn longest_wait(policy: &str, vcpus: usize, slots: usize, steps: &[WorldStep]) -> Nanos {
    let mut world = World::new(policy, vcpus, slots, None);
    let mut waits = Waits { since: vec![None; vcpus], longest: Nanos::ZERO };
    // Repeated, so that starvation would exceed the bound.
    for step in std::iter::repeat_n(steps, 8).flatten() {
        match *step {
            WorldStep::Pass(span) => waits.pass(&mut world, span),
            // A vCPU that has exited keeps no other waiting.
            WorldStep::Exit(_) => {}
            step => world.step(step),
        }
        waits.note(&world);
    }
    waits.longest
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Holds for any behaviour of guests and any claims about locks.
    #[test]
    fn waits_stay_within_the_policys_bound(
        steps in vec(step(), 1..200), vcpus in 1..10_usize, slots in 1..4_usize,
    ) {
        for (policy, slices) in bounds() {
            let bound = Nanos(slices * SLICE.0 * vcpus as u64);
            let longest = longest_wait(policy, vcpus, slots, &steps);
            prop_assert!(longest <= bound, "{policy}: {longest} of {bound}");
        }
    }
}

/// Returns when vCPU 2 of three first gets the only slot, while the other two pass it to each
/// other by `pass`. None: not within 1000 passes.
fn first_grant(
    policy: &str,
    mut core: Core,
    pass: impl Fn(&mut Core, u32, u32, u64),
) -> Option<u64> {
    let mut now = 10;
    for _ in 0..1_000 {
        match core.slots()[0] {
            Some(VcpuIndex(2)) => return Some(now),
            Some(VcpuIndex(from)) => pass(&mut core, from, 1 - from, now),
            None => panic!("{policy}: the slot is idle"),
        }
        now += 100;
    }
    None
}

/// Regression: as long as the kicks continued, the slot went back and forth with them.
#[test]
fn mutual_handovers_do_not_starve_a_third() {
    for (policy, slices) in bounds().filter(|(policy, _)| *policy != "rr") {
        let mut core = core_of(policy, &[0; 3], 1);
        tell(&mut core, 0, Event::Halted(waiting(2, 1, 0)), 2);
        let hand_over = |core: &mut Core, from, to, now| {
            tell(core, from, Event::HandedOver(VcpuIndex(to), waiting(2, 1, 0)), now);
        };
        let wait = first_grant(policy, core, hand_over);
        let bound = slices * SLICE.0 * 3;
        assert!(wait.is_some_and(|wait| wait <= bound), "{policy}: {wait:?} of {bound}");
    }
}

/// If two vCPUs give each other the rest of one slice, a third waits no longer.
#[test]
fn mutual_yields_do_not_starve_a_third() {
    for policy in ["rr", "directed-yield"] {
        let core = core_of(policy, &[0; 3], 1);
        let give = |core: &mut Core, from, to, now| {
            tell(core, from, Event::YieldsTo(VcpuIndex(to), waiting(2, 1, 0)), now);
            assert_eq!(core.slots()[0], Some(VcpuIndex(to)), "{policy}, at {now}");
            let until = core.deadline(VcpuIndex(to)).expect("it runs");
            assert_eq!(until, Nanos(SLICE.0 + 1), "{policy}: the end of the slice that is given");
            if now + 100 >= until.0 {
                tell(core, to, Event::Stopped(waiting(2, 1, 0)), until.0);
            }
        };
        let wait = first_grant(policy, core, give);
        assert!(wait.is_some_and(|wait| wait <= SLICE.0 + 10), "{policy}: {wait:?}");
    }
}

/// Regression: each was next in line for the other's lock and went ahead of the third.
#[test]
fn mutual_spinning_does_not_starve_a_third() {
    let mut core = core_of("directed-yield", &[0; 3], 1);
    // vCPU 2 waits for a slot behind both of them.
    assert_eq!(core.state(VcpuIndex(0)), State::Running(SlotId(0)));
    tell(&mut core, 0, Event::SpunOut(waiting(2, 1, 0)), 2);
    let spin = |core: &mut Core, from, _, now| {
        tell(core, from, Event::SpunOut(waiting(2, 1, 0)), now);
    };
    let wait = first_grant("directed-yield", core, spin);
    assert!(wait.is_some_and(|wait| wait <= 2 * SLICE.0 * 3), "{wait:?}");
}
