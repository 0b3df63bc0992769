//! The lock library on simulated vCPUs, in arbitrary scenarios.

use std::sync::LazyLock;

use base::{faults::FaultSpec, handoff::HandoffSpec, host_extras::NoiseTimes};
use sim::{Brake, Family, LineLaw, Machine, System, search::Scenario};

use crate::input::Input;

/// A [`LineLaw`] without caches ignores a machine's costs.
static MACHINE: LazyLock<Machine> = LazyLock::new(|| Machine::ideal(8));

fn handoff(input: &mut Input<'_>) -> HandoffSpec {
    let bits = u32::from(input.byte()) & 0x1f;
    let (far, queue) = (input.below(4) as u16, input.below(5) as u16);
    HandoffSpec { bits, far, queue, ..HandoffSpec::NONE }
}

/// Delayed kicks, and spurious wakeups.
fn faults(input: &mut Input<'_>) -> FaultSpec {
    let (delay, spurious) = (u32::from(input.byte()), u32::from(input.byte()));
    let delay = (delay > 0).then(|| format!("kick-delay:{}ns", 50 * delay));
    let spurious = (spurious > 0).then(|| format!("spurious:{}", 0.4 / f64::from(spurious)));
    let list: Vec<_> = [delay, spurious].into_iter().flatten().collect();
    list.join(",").parse().unwrap_or_default()
}

fn noise(input: &mut Input<'_>) -> Option<NoiseTimes> {
    ["2us+4us", "20us+20us"].get(input.below(3)).and_then(|times| times.parse().ok())
}

/// Checks a lock's mutual exclusion, progress and bound on bypasses.
pub fn locks(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let system = input.choose(System::ALL);
    let is_pv = matches!(system, System::PvTicket | System::SmallPvTicket);
    let options = handoff(&mut input);
    let scenario = Scenario {
        system,
        handoff: match system.family() {
            _ if is_pv => options,
            Family::Spinlock => HandoffSpec { restrict: options.queue, ..HandoffSpec::NONE },
            _ => HandoffSpec::NONE,
        },
        spin_threshold: 1 + u32::from(input.byte()),
        vcpus: 2 + input.below(6),
        cpus: 1 + input.below(6),
        law: input.choose(&[LineLaw::AnyOrder, LineLaw::AnyOrder, LineLaw::InTurn]),
        policy: input.choose(&["random", "rr"]).parse().expect("it is a policy"),
        slice: 1_000 + 100 * u64::from(input.half() % 500),
        faults: faults(&mut input),
        noise: noise(&mut input),
        locks: 1 + input.below(2),
        think: 1 + u32::from(input.byte()),
        critical: 1 + u32::from(input.byte()),
        is_fixed: input.byte().is_multiple_of(2),
        tries: !input.byte().is_multiple_of(2),
        absence: 0,
        is_split: false,
        // Simulation is slow, so few scenarios are long.
        operations: input.choose(&[24, 24, 24, 48, 48, 200]),
        seed: input.double(),
    };
    scenario.check(&MACHINE).unwrap_or_else(|error| panic!("{scenario}: {error}"));
    let outcome = scenario.run_all(&MACHINE, &Brake::default());
    let outcome = outcome.expect("it can be simulated").expect("nothing ends it");
    assert_eq!(outcome.trouble, None, "{scenario:?}");
}

pub fn seeds() -> Vec<Vec<u8>> {
    let plain = |system: usize| {
        [&[system as u8, 0, 0, 0, 20, 2, 1, 0, 0, 90, 0, 0, 0, 2, 0, 4, 40, 0, 4][..], &[14; 8]]
            .concat()
    };
    let queued = |system: usize| [&[system as u8, 31, 1, 2][..], &plain(system)[4..]].concat();
    (0..System::ALL.len()).flat_map(|system| [plain(system), queued(system)]).collect()
}
