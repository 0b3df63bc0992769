//! The scenarios of spinlocks other than `PvTicketLock`, small because there are many.

use crate::scenario::{
    At, HOLDER, HOLDER_AGAIN, Handoff, Irq, ONCE, Op, PLAIN, Program, Scenario, TAKES_LOCK_1,
    machine,
};

use Op::{Kick, Take, Try, Wait};

const TWICE: Program = Program { ops: &[Take(0), Take(0)], ..ONCE };
const THRICE: Program = Program { ops: &[Take(0), Take(0), Take(0)], ..ONCE };
const TRIES: Program = Program { ops: &[Try(0), Take(0), Try(0)], ..ONCE };

/// A CPU that spins enters a restricted lock with others inside, as long as all handovers are in time.
const fn spinning(spin: u32, program: Program) -> Program {
    Program { spin, handoff: Handoff { restrict: u16::MAX, ..PLAIN }, ..program }
}

/// `program`, with an interrupt that takes lock 1 at `at`.
const fn interrupted(at: At, program: Program) -> Program {
    let irqs = match at {
        At::BeforeFlag => &[Irq { at: At::BeforeFlag, lock: 1 }],
        At::FlagToHalt => &[Irq { at: At::FlagToHalt, lock: 1 }],
        At::ReleaseToKick => &[Irq { at: At::ReleaseToKick, lock: 1 }],
        At::Step(_) => &[Irq { at: At::Step(40), lock: 1 }],
    };
    Program { irqs, ..program }
}

/// The same scenario without freeing: a CPU that only reads a lock may do so after its last use.
const fn not_freed(scenario: Scenario) -> Scenario {
    Scenario { frees: false, ..scenario }
}

/// For loom.
pub const ANY_FOR_LOOM: &[Scenario] = &[
    machine("two", &[TWICE, ONCE], 2),
    machine("three", &[ONCE, ONCE, ONCE], 1),
    not_freed(machine("one tries", &[TRIES, ONCE], 2)),
    not_freed(machine("one waits for a release", &[TWICE, Program { ops: &[Wait(0)], ..ONCE }], 2)),
    machine("interrupt before halt", &[HOLDER, interrupted(At::FlagToHalt, ONCE)], 2),
];

const TIMES: usize = 200;

/// For shuttle.
pub const ANY_FOR_SHUTTLE: &[Scenario] = &[
    machine("three", &[TWICE, TWICE, spinning(1, TWICE)], 2 * TIMES),
    machine("four", &[THRICE, THRICE, spinning(1, THRICE), spinning(3, THRICE)], TIMES),
    not_freed(machine("two try", &[TRIES, TRIES, THRICE], TIMES)),
    not_freed(machine(
        "one waits for releases",
        &[THRICE, THRICE, Program { ops: &[Wait(0), Wait(0)], ..ONCE }],
        TIMES,
    )),
    machine(
        "spurious kicks",
        &[TWICE, TWICE, Program { ops: &[Kick(0), Kick(1), Kick(0), Kick(1)], ..ONCE }],
        TIMES,
    ),
    machine(
        "interrupts while waiting",
        &[HOLDER_AGAIN, interrupted(At::BeforeFlag, ONCE), interrupted(At::FlagToHalt, ONCE)],
        TIMES,
    ),
    machine(
        "an interrupt at any step",
        &[interrupted(At::Step(0), TWICE), interrupted(At::ReleaseToKick, TWICE), TAKES_LOCK_1],
        2 * TIMES,
    ),
];
