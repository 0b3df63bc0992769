//! Fixed scenarios that check whether locks keep their bounds on bypasses: every lock and every handoff
//! option, under the laws without caches.

use std::fmt;

use base::faults::FaultSpec;
use base::handoff::HandoffSpec;
use base::plural::count;
use sched::PolicySpec;
use simulated_locks::{Family, System};

use super::bound::Bounds;
use super::{Scenario, TrialOutcome};
use crate::lines::LineLaw;

/// Seed of the cases' random choices.
pub const SEED: u64 = 14;

/// Numbers of CPUs and vCPUs, and whether background noise takes CPUs away.
#[derive(Debug, Clone, Copy)]
struct Ratio {
    cpus: usize,
    vcpus: usize,
    is_noisy: bool,
}

const fn ratio(vcpus: usize, cpus: usize) -> Ratio {
    Ratio { cpus, vcpus, is_noisy: false }
}

/// No overcommit; 2x; 3x; 3x with background noise.
const EVEN: Ratio = ratio(4, 4);
const TWICE: Ratio = ratio(4, 2);
const THRICE: Ratio = ratio(3, 1);
const NOISY: Ratio = Ratio { is_noisy: true, ..ratio(6, 2) };
const RATIOS: [Ratio; 4] = [EVEN, TWICE, THRICE, NOISY];

/// Critical and think times in steps: low contention, high contention, and longer than a waiter spins.
const TIMES: [(u32, u32); 3] = [(4, 40), (10, 10), (60, 5)];

/// Every handoff option, and combinations that affect the same step.
const HANDOFFS: &str = "far:1 far:2 predecessor adapt claim ahead fuse claim+ahead fuse+far:1 fuse+claim+adapt \
    predecessor+adapt+ahead queue:1 queue:2 queue:3 queue:2+far:1 queue:2+claim queue:2+ahead \
    queue:2+adapt+predecessor queue:2+fuse queue:3+far:1+predecessor+adapt+claim+ahead+fuse";

/// Kick delays with a mean of 25 steps, and a spurious wakeup for one in 8 halts or kicks.
const LATE: &str = "kick-delay:2500ns,spurious:0.125";

/// Parses a constant of this file. A test fails if one does not parse.
fn parse<T: std::str::FromStr + Default>(text: &str) -> T {
    text.parse().unwrap_or_default()
}

fn case(system: System, ratio: Ratio, (critical, think): (u32, u32), operations: u64) -> Scenario {
    let noise = ratio.is_noisy.then(|| "20us+20us".parse().ok()).flatten();
    Scenario {
        system,
        handoff: HandoffSpec::NONE,
        cpus: ratio.cpus,
        vcpus: ratio.vcpus,
        spin_threshold: 20,
        think,
        critical,
        is_fixed: false,
        policy: "random".parse().unwrap_or_else(|_| PolicySpec::round_robin()),
        // Slices of 1 to 200 steps.
        slice: 10_000,
        faults: FaultSpec::default(),
        noise,
        law: LineLaw::AnyOrder,
        locks: 1,
        tries: false,
        absence: 0,
        is_split: false,
        operations,
        seed: SEED,
    }
}

fn delayed(case: Scenario) -> Scenario {
    Scenario { faults: parse(LATE), ..case }
}

/// Every lock at every ratio, with the loads in rotation. Locks whose waiters halt also run with delayed
/// kicks and spurious wakeups.
fn lock_cases(operations: u64) -> impl Iterator<Item = Scenario> {
    let systems = System::ALL.iter().filter(|system| system.family() != Family::Counter);
    systems.enumerate().flat_map(move |(nth, system)| {
        let ratios = RATIOS.iter().enumerate();
        let cases = ratios.map(move |(ix, ratio)| {
            case(*system, *ratio, TIMES[(nth + ix) % TIMES.len()], operations)
        });
        cases.chain(system.halts().then(|| delayed(case(*system, TWICE, TIMES[2], operations))))
    })
}

/// Every handoff option of the PV ticketlock, with and without overcommit. Waiters halt at nearly every
/// handoff (critical sections longer than a waiter spins) or rarely.
fn handoff_cases(operations: u64) -> impl Iterator<Item = Scenario> {
    HANDOFFS.split(' ').enumerate().flat_map(move |(nth, handoff)| {
        // Constant times: a releaser always returns before the next release.
        let long = case(System::PvTicket, EVEN, TIMES[2], operations);
        let long = Scenario { is_fixed: true, ..long };
        let over = case(System::PvTicket, TWICE, TIMES[nth % TIMES.len()], operations);
        let more = case(System::SmallPvTicket, NOISY, TIMES[1], operations);
        let late = delayed(case(System::PvTicket, THRICE, TIMES[2], operations));
        [long, over, more, late].map(|case| Scenario { handoff: parse(handoff), ..case })
    })
}

/// Locks with each kind of bound, and a lock without one, with a limit on concurrent vCPUs.
fn restricted_cases(operations: u64) -> impl Iterator<Item = Scenario> {
    use System::{Mcs, NativeTicket, PvTicket, Reciprocating, TestAndSet};
    [NativeTicket, Mcs, PvTicket, Reciprocating, TestAndSet].into_iter().enumerate().flat_map(
        move |(nth, system)| {
            // One vCPU is throttled until the release that lets it in, while others are inside.
            let long = case(system, EVEN, TIMES[2], operations);
            let over = case(system, TWICE, TIMES[nth % TIMES.len()], operations);
            let late = delayed(case(system, THRICE, TIMES[2], operations));
            let adapted = case(system, TWICE, TIMES[nth % TIMES.len()], operations);
            [
                (long, "restrict:3"),
                (over, "restrict:2"),
                (late, "restrict:1"),
                (adapted, "restrict:auto"),
            ]
            .map(|(case, handoff)| Scenario { handoff: parse(handoff), ..case })
        },
    )
}

/// Limited queues without preemption: all waits in the queue exceed the threshold, or none does; all waiters
/// behind others halt; and releases of one lock do not count for another.
fn alternating_cases(operations: u64) -> impl Iterator<Item = Scenario> {
    use System::{PvTicket, SmallPvTicket};
    // Threshold, critical time and think time.
    const LONG: [u32; 3] = [20, 60, 5];
    const SHORT: [u32; 3] = [2048, 3, 1];
    const FAR: [u32; 3] = [2048, 20, 5];
    let case = move |system, vcpus, handoff, [spin_threshold, critical, think]: [u32; 3], locks| {
        Scenario {
            handoff: parse(handoff),
            spin_threshold,
            is_fixed: true,
            policy: PolicySpec::round_robin(),
            law: LineLaw::InTurn,
            locks,
            ..case(system, ratio(vcpus, vcpus), (critical, think), operations)
        }
    };
    [
        case(PvTicket, 6, "queue:4", LONG, 1),
        case(PvTicket, 8, "queue:1", LONG, 1),
        case(SmallPvTicket, 4, "queue:2", LONG, 1),
        case(PvTicket, 5, "queue:2+far:1", FAR, 1),
        case(PvTicket, 5, "queue:3+far:1+adapt", FAR, 1),
        case(SmallPvTicket, 5, "queue:2+far:1+claim+ahead", FAR, 1),
        case(PvTicket, 4, "queue:2", SHORT, 1),
        case(SmallPvTicket, 4, "queue:2", SHORT, 1),
        case(SmallPvTicket, 7, "queue:3", SHORT, 1),
        case(PvTicket, 5, "queue:2", LONG, 2),
        case(SmallPvTicket, 6, "queue:2", SHORT, 2),
    ]
    .into_iter()
}

/// Two locks with one waiter table and `try_lock`, for every spinlock; limited locks whose vCPUs come and go; and limits
/// with more vCPUs than a word of the waiters' mask has bits.
fn shared_cases(operations: u64) -> impl Iterator<Item = Scenario> {
    use System::{NativeTicket, PvTicket, SmallPvTicket};
    let systems = System::in_family(Family::Spinlock).enumerate().map(move |(nth, system)| {
        let base = case(system, RATIOS[nth % 3], TIMES[nth % TIMES.len()], operations);
        Scenario { locks: 2, tries: true, ..base }
    });
    let limits = [(PvTicket, "queue:2"), (SmallPvTicket, "queue:2"), (NativeTicket, "restrict:2")];
    let limited = limits.into_iter().flat_map(move |(system, handoff)| {
        let handoff = parse(handoff);
        let absent = case(system, ratio(6, 6), TIMES[2], operations);
        let crowd = case(system, ratio(100, 4), TIMES[1], operations / 10);
        [
            Scenario { handoff, locks: 2, tries: true, absence: 20_000, ..absent },
            Scenario { handoff, locks: 2, ..crowd },
        ]
    });
    systems.chain(limited)
}

/// All cases: every lock that is acquired and every handoff option, with `operations` operations each.
pub fn cases(operations: u64) -> Vec<Scenario> {
    lock_cases(operations)
        .chain(handoff_cases(operations))
        .chain(restricted_cases(operations))
        .chain(alternating_cases(operations))
        .chain(shared_cases(operations))
        .collect()
}

/// One line with a case and its outcome.
#[derive(Debug)]
pub struct Case<'a> {
    /// The scenario.
    pub scenario: &'a Scenario,
    /// Its outcome.
    pub outcome: &'a TrialOutcome,
}

impl fmt::Display for Case<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, outcome } = self;
        let (waits, figures) = (outcome.waits, &outcome.figures);
        match (&outcome.trouble, Bounds::new(scenario)) {
            (Some(trouble), _) => write!(f, "FAILED  {trouble}")?,
            (None, Bounds { in_line, as_head, throttled, .. }) => {
                write!(f, "ok      {}", waits.in_line)?;
                match in_line {
                    Some(max) => write!(f, " of {max} in line")?,
                    None => f.write_str(" in line, unbounded by design")?,
                }
                for (counted, max, place) in
                    [(waits.as_head, as_head, "head"), (waits.throttled, throttled, "throttled")]
                {
                    max.map_or(Ok(()), |max| write!(f, ", {counted} of {max} {place}"))?;
                }
            }
        }
        let Scenario { critical, think, spin_threshold, law, .. } = scenario;
        let about = if scenario.is_fixed { "" } else { "~" };
        write!(f, "  {scenario}, critical {about}{critical}, think {about}{think}")?;
        write!(f, ", threshold {spin_threshold}")?;
        if *law == LineLaw::InTurn {
            write!(f, ", in turn")?;
        }
        let (min, max) = (figures.operations.iter().min(), figures.operations.iter().max());
        write!(f, "; each {} to {}", min.unwrap_or(&0), max.unwrap_or(&0))?;
        write!(f, ", {}", count(figures.halts, "halt"))?;
        write!(f, ", {}, {}", count(figures.kicks, "kick"), count(figures.events, "event"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::machine::Machine;

    #[test]
    fn constants_can_be_read_and_every_case_can_be_simulated() {
        let machine = Machine::shipped("westmere-80").expect("it is shipped");
        let cases = cases(100);
        assert!(HANDOFFS.split(' ').all(|text| parse::<HandoffSpec>(text).to_string() != "none"));
        assert_ne!(parse::<FaultSpec>(LATE), FaultSpec::default());
        for case in &cases {
            case.check(&machine).unwrap_or_else(|error| panic!("{case}: {error}"));
            let text = serde_json::to_string(case).expect("it can be written");
            assert_eq!(&serde_json::from_str::<Scenario>(&text).expect(&text), case);
        }
        let noisy = cases.iter().filter(|case| case.noise.is_some()).count();
        let late = cases.iter().filter(|case| case.faults != FaultSpec::default()).count();
        assert!(noisy > 20 && late > 20, "{noisy} noisy, {late} late");
        let texts: HashSet<String> =
            cases.iter().map(|case| serde_json::to_string(case).unwrap_or_default()).collect();
        assert_eq!(texts.len(), cases.len());
        for system in System::ALL {
            let has_case = cases.iter().any(|case| case.system == *system);
            assert_eq!(has_case, system.family() != Family::Counter, "{system}");
        }
    }
}
