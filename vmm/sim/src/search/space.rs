//! The scenarios of a search, and their random generation.

use base::faults::FaultSpec;
use base::handoff::HandoffSpec;
use base::rng::SplitMix64;
use base::units::Nanos;
use hypercalls::payload::handoff;
use sched::PolicySpec;
use sched::policy::POLICIES;
use simulated_locks::{Family, System};

use super::Scenario;
use super::scenario::default_law;
use crate::machine::{Costs, Machine};

/// The ranges that a search draws from.
#[derive(Debug, Clone, PartialEq)]
pub struct Space {
    /// Maximum number of CPUs, at least one.
    pub cpus: usize,
    /// Maximum number of vCPUs, at least two.
    pub vcpus: usize,
    /// Policies; not empty, and all of them can be simulated.
    pub policies: Vec<PolicySpec>,
    /// The shortest slice: see [`shortest_slice`].
    pub slice: Nanos,
}

/// The shortest slice that a search tries on `machine`. With a slice hardly longer than an exit and an
/// entry, vCPUs make no progress with any lock.
pub fn shortest_slice(machine: &Machine) -> Nanos {
    let Costs { exit, switch, wakeup, .. } = machine.costs;
    Nanos((exit + switch + wakeup).0 / 400).max(Nanos::micros(20))
}

/// All policies that can be simulated, with the arguments of their own tests, and more that preempt
/// holders, waiters next in line, and vCPUs inside the windows of a halt and a kick, for longer.
pub fn default_policies() -> Vec<PolicySpec> {
    const MORE: [&str; 5] = [
        "point:before-flag,100000,20us",
        "point:flag-to-halt,100000,20us",
        "point:release-to-kick,100000,20us",
        "lhp:10000,500us",
        "lwp:10000,500us",
    ];
    let policies = POLICIES.iter().filter(|policy| !["host", "replay"].contains(&policy.name));
    // Only one form of each model of the host's scheduler: both forms would have a fifth of all trials,
    // and one mutant would not be found in time.
    let tested = policies.flat_map(|policy| policy.tested.iter().copied());
    let tested = tested.filter(|text| !text.contains("kick-yield"));
    tested.chain(MORE).filter_map(|text| text.parse().ok()).collect()
}

const SPIN_THRESHOLDS: [u32; 8] = [0, 1, 2, 5, 20, 100, 512, 4_096];
/// Think and critical times in increments. The longest exceed a wakeup: only then are there moments
/// at which no operation in progress hides a lost wakeup.
const WORK: [u32; 9] = [0, 1, 5, 20, 100, 400, 2_000, 20_000, 100_000];
/// Multiples of the shortest slice.
const SLICES: [u64; 6] = [1, 2, 5, 10, 50, 200];
/// A lost wakeup shows only if no other wakeup follows, for example at the end of a run. Short runs
/// therefore find as much as long runs.
const OPERATIONS: [u64; 6] = [30, 100, 300, 1_000, 3_000, 10_000];
const DELAYS: [&str; 5] = ["1us", "5us", "20us", "100us", "1ms"];
const CHANCES: [&str; 3] = ["0.01", "0.1", "0.4"];
/// Mean busy and idle times of the noise. It has to hit windows of a few nanoseconds, and has to last
/// longer than the actions of other vCPUs in between.
const NOISES: [&str; 4] = ["2us+4us", "5us+5us", "20us+20us", "50us+200us"];
/// Mean absences, of the order of a spin, a halt, a slice and the longest critical time.
const ABSENCES: [u64; 4] = [2_000, 20_000, 200_000, 1_000_000];
/// More vCPUs are a crowd, with short runs and slices.
pub(super) const FEW_VCPUS: usize = 8;
/// One in this many simulations may have a crowd.
const CROWDS: usize = 5;
/// Maximum number of operations of a crowd.
const CROWD_OPERATIONS: u64 = 300;
const SWITCHES: [u32; 4] = [handoff::PREDECESSOR, handoff::ADAPT, handoff::CLAIM, handoff::AHEAD];

type Mutation = fn(&Space, &mut Scenario, &mut SplitMix64);

/// Each redraws one property of a scenario.
const MUTATIONS: [Mutation; 14] = [
    |space, scenario, rng| scenario.cpus = 1 + rng.below(space.cpus),
    |space, scenario, rng| {
        let max = space.vcpus.min(scenario.system.max_cpus() as usize);
        let few = max.min(FEW_VCPUS) - 1;
        scenario.vcpus = 2 + if is_one_in(CROWDS, rng) {
            // The largest has most pairs of vCPUs in which a lock of 64 bits or nodes could go wrong.
            if is_one_in(2, rng) { max - 2 } else { rng.below(max - 1) }
        } else {
            // The smaller of two draws: few vCPUs find as much as many, and are faster to simulate.
            rng.below(few).min(rng.below(few))
        };
    },
    |_, scenario, rng| scenario.handoff = handoffs(scenario.system, rng),
    |_, scenario, rng| scenario.spin_threshold = pick(&SPIN_THRESHOLDS, rng),
    |_, scenario, rng| {
        (scenario.think, scenario.critical) = (pick(&WORK, rng), pick(&WORK, rng));
        scenario.is_fixed = is_one_in(3, rng);
    },
    |space, scenario, rng| {
        scenario.policy = space.policies[rng.below(space.policies.len())].clone()
    },
    |space, scenario, rng| scenario.slice = space.slice.0 * pick(&SLICES, rng),
    |_, scenario, rng| scenario.faults = faults(rng),
    |_, scenario, rng| {
        let noise = pick(&NOISES, rng).parse().ok();
        scenario.noise = noise.filter(|_| is_one_in(3, rng));
    },
    |_, scenario, rng| scenario.operations = pick(&OPERATIONS, rng),
    // Several locks, half of the time; mostly if CPUs stand outside of locks, and one could be let into another.
    |_, scenario, rng| {
        let is_limited = scenario.handoff.queue != 0 || scenario.handoff.restrict != 0;
        scenario.locks =
            pick(if is_limited { &[1, 2, 2, 2, 3, 4] } else { &[1, 1, 1, 2, 3, 4] }, rng);
    },
    |_, scenario, rng| scenario.tries = is_one_in(3, rng),
    |_, scenario, rng| {
        scenario.absence = if is_one_in(4, rng) { pick(&ABSENCES, rng) } else { 0 };
    },
    |_, scenario, rng| scenario.is_split = is_one_in(2, rng),
];

fn pick<T: Copy>(values: &[T], rng: &mut SplitMix64) -> T {
    values[rng.below(values.len())]
}

fn is_one_in(n: usize, rng: &mut SplitMix64) -> bool {
    rng.below(n) == 0
}

/// Options of a PV ticketlock, or a limit on the concurrent vCPUs of another spinlock.
fn handoffs(system: System, rng: &mut SplitMix64) -> HandoffSpec {
    let has_options = matches!(system, System::PvTicket | System::SmallPvTicket);
    if !has_options {
        let is_restricted = system.family() == Family::Spinlock && is_one_in(3, rng);
        let limits = [1, 2, 3, handoff::ADAPTIVE, handoff::ADAPTIVE];
        let restrict = if is_restricted { pick(&limits, rng) } else { 0 };
        return HandoffSpec { restrict, ..HandoffSpec::NONE };
    }
    if is_one_in(3, rng) {
        return HandoffSpec::NONE;
    }
    // The smaller of two draws: a short queue leaves more vCPUs outside.
    let mut number = |n| {
        if is_one_in(n, rng) { 1 + rng.below(4).min(rng.below(4)) as u16 } else { 0 }
    };
    let (far, queue) = (number(4), number(2));
    // Has an effect only without `queue`.
    let fuse = if queue == 0 && is_one_in(2, rng) { handoff::FUSE } else { 0 };
    let bits: u32 = SWITCHES.into_iter().filter(|_| is_one_in(3, rng)).sum();
    HandoffSpec { bits: bits | fuse, far, queue, restrict: 0 }
}

/// Empty in about half of all cases, because faults that wake vCPUs hide lost wakeups. Never loses a kick.
fn faults(rng: &mut SplitMix64) -> FaultSpec {
    let mut list = Vec::new();
    if is_one_in(2, rng) {
        for (name, values) in [
            ("kick-delay", &DELAYS[..]),
            ("kick-dup", &CHANCES),
            ("spurious", &CHANCES),
            ("halt-delay", &DELAYS),
        ] {
            if is_one_in(2, rng) {
                list.push(format!("{name}:{}", pick(values, rng)));
            }
        }
    }
    // Only the empty text fails to parse: no faults.
    list.join(",").parse().unwrap_or_default()
}

impl Space {
    /// A random scenario of `system`.
    pub(super) fn draw(&self, system: System, rng: &mut SplitMix64) -> Scenario {
        let mut scenario = Scenario {
            system,
            handoff: HandoffSpec::NONE,
            cpus: 1,
            vcpus: 2,
            spin_threshold: 0,
            think: 0,
            critical: 0,
            is_fixed: false,
            policy: self.policies[0].clone(),
            slice: 0,
            faults: FaultSpec::default(),
            noise: None,
            law: default_law(),
            locks: 1,
            tries: false,
            absence: 0,
            is_split: false,
            operations: 0,
            seed: rng.next_u64(),
        };
        MUTATIONS.iter().for_each(|mutate| mutate(self, &mut scenario, rng));
        self.limited(scenario)
    }

    /// Limits the operations and the slice of a crowd.
    fn limited(&self, mut scenario: Scenario) -> Scenario {
        if scenario.vcpus > FEW_VCPUS {
            scenario.operations = scenario.operations.min(CROWD_OPERATIONS);
            scenario.slice = scenario.slice.min(5 * self.slice.0);
        }
        scenario
    }

    /// Varies `base`: a new seed, and up to two new properties.
    pub(super) fn vary(&self, base: &Scenario, rng: &mut SplitMix64) -> Scenario {
        let mut scenario = Scenario { seed: rng.next_u64(), ..base.clone() };
        for _ in 0..rng.below(3) {
            MUTATIONS[rng.below(MUTATIONS.len())](self, &mut scenario, rng);
        }
        self.limited(scenario)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_scenarios_are_valid_and_survive_json() {
        let machine = Machine::shipped("westmere-80").expect("it is shipped");
        let space = Space {
            cpus: 8,
            vcpus: 200,
            policies: default_policies(),
            slice: shortest_slice(&machine),
        };
        let mut rng = SplitMix64::new(3);
        let mut faulty = 0;
        for system in System::ALL.iter().cycle().take(600) {
            let drawn = space.draw(*system, &mut rng);
            let varied = space.vary(&drawn, &mut rng);
            assert_ne!(drawn.seed, varied.seed);
            faulty += u32::from(drawn.faults != FaultSpec::default());
            for scenario in [drawn, varied] {
                scenario.check(&machine).unwrap_or_else(|error| panic!("{scenario}: {error}"));
                let text = serde_json::to_string(&scenario).expect("it can be written");
                assert_eq!(serde_json::from_str::<Scenario>(&text).expect(&text), scenario);
            }
        }
        assert!((200..350).contains(&faulty), "{faulty}");
    }

    #[test]
    fn default_policies_are_all_simulated_policies() {
        let names: Vec<_> = default_policies().iter().map(|policy| policy.name()).collect();
        for policy in POLICIES {
            let is_tried = names.contains(&policy.name);
            assert_eq!(is_tried, !["host", "replay"].contains(&policy.name), "{}", policy.name);
        }
    }
}
