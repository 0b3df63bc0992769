//! The scenarios that each engine runs.

use crate::scenario::{
    At, HOLDER, HOLDER_AGAIN, Handoff, Irq, LAST_TICKET, ONCE, Op, PLAIN, Program, Scenario,
    TAKES_LOCK_1, machine,
};

use Op::{Await, Idle, Ipi, IrqsOff, IrqsOn, Kick, Lock, Post, Take, Unlock};

const CLAIM: Handoff = Handoff { claim: true, ..PLAIN };
const AHEAD: Handoff = Handoff { ahead: true, ..PLAIN };
const CLAIM_FUSE: Handoff = Handoff { claim: true, fuse: true, ..PLAIN };
const FUSE: Handoff = Handoff { fuse: true, ..PLAIN };
const QUEUE: Handoff = Handoff { queue: 1, ..PLAIN };
const QUEUE_2: Handoff = Handoff { queue: 2, ..PLAIN };
const SPINS: Handoff = Handoff { far: 1, predecessor: true, adapt: true, ..PLAIN };
const ALL: Handoff = Handoff {
    far: 2,
    predecessor: true,
    adapt: true,
    claim: true,
    ahead: true,
    fuse: true,
    queue: 2,
    ..PLAIN
};

/// Programs that take lock 0 once, twice and three times.
const fn with(handoff: Handoff) -> Program {
    Program { handoff, ..ONCE }
}

const fn twice(handoff: Handoff) -> Program {
    Program { ops: &[Take(0), Take(0)], ..with(handoff) }
}

const fn thrice(handoff: Handoff, spin: u32) -> Program {
    Program { ops: &[Take(0), Take(0), Take(0)], spin, ..with(handoff) }
}

/// Takes lock 0, with an interrupt that takes lock 1 during the wait.
const fn interrupted(irqs: &'static [Irq]) -> Program {
    Program { irqs, ..ONCE }
}

const BEFORE_FLAG: Irq = Irq { at: At::BeforeFlag, lock: 1 };
const FLAG_TO_HALT: Irq = Irq { at: At::FlagToHalt, lock: 1 };
const RELEASE_TO_KICK: Irq = Irq { at: At::ReleaseToKick, lock: 1 };
const ANY_STEP: Irq = Irq { at: At::Step(60), lock: 1 };

/// Three programs for a search with an accidental match. Each waits until the previous is ready, to
/// leave little to chance: the holder has both locks; one waits for the first lock; another waits
/// behind it, with an interrupt whose ticket for the second lock equals the first waiter's.
const SEARCHER: Program =
    Program { ops: &[Lock(0), Lock(1), Post(0), Await(2), Unlock(0), Unlock(1)], ..ONCE };
const SOUGHT: Program = Program { ops: &[Await(0), Post(1), Take(0)], ..ONCE };
const ACCIDENT: Program =
    Program { ops: &[Await(1), Post(2), Take(0)], ..interrupted(&[FLAG_TO_HALT]) };

/// Small machines, for loom: one more CPU or round multiplies the schedules by ten.
pub const FOR_LOOM: &[Scenario] = &[
    machine("two", &[twice(PLAIN), ONCE], 3),
    machine("three", &[ONCE, ONCE, ONCE], 2),
    machine("spurious kick", &[ONCE, ONCE, Program { ops: &[Kick(1)], ..ONCE }], 2),
    machine(
        "pending kick",
        &[
            Program { ops: &[Kick(1), Take(0), Kick(1)], ..ONCE },
            Program { pending: true, ..twice(PLAIN) },
        ],
        2,
    ),
    machine("interrupt before flag", &[HOLDER, interrupted(&[BEFORE_FLAG])], 3),
    machine("interrupt before halt", &[HOLDER, interrupted(&[FLAG_TO_HALT])], 3),
    machine(
        "two interrupts",
        &[
            Program { ops: &[Lock(0), Take(1), Take(1), Unlock(0)], ..ONCE },
            interrupted(&[BEFORE_FLAG, FLAG_TO_HALT]),
        ],
        2,
    ),
    machine("a record changes under the search", &[ACCIDENT, SEARCHER, SOUGHT], 2),
    machine(
        "IPI to a halted waiter",
        &[
            Program { ops: &[Lock(0), Ipi(1), Unlock(0)], ..ONCE },
            Program { ops: &[Take(0), Idle], irqs_on: true, ..ONCE },
        ],
        3,
    ),
    machine("claim", &[twice(CLAIM), twice(CLAIM)], 2),
    machine("claim, three", &[with(CLAIM), with(CLAIM), with(CLAIM)], 2),
    machine("ahead", &[with(AHEAD), with(AHEAD), with(AHEAD)], 2),
    machine("fuse", &[twice(FUSE), twice(FUSE)], 2),
    machine("queue of one", &[twice(QUEUE), twice(QUEUE)], 2),
    machine("queue of one, three", &[with(QUEUE), with(QUEUE), with(QUEUE)], 2),
    machine("a queue for some", &[ONCE, with(QUEUE)], 3),
    machine("all handoffs", &[twice(ALL), twice(ALL)], 2),
];

const TIMES: usize = 1000;

/// Larger machines, for shuttle.
pub const FOR_SHUTTLE: &[Scenario] = &[
    machine(
        "four",
        &[thrice(PLAIN, 0), thrice(PLAIN, 0), thrice(PLAIN, 1), thrice(PLAIN, 2)],
        TIMES,
    ),
    machine(
        "spurious kicks",
        &[
            thrice(PLAIN, 0),
            Program { pending: true, ..thrice(PLAIN, 0) },
            Program { ops: &[Kick(0), Kick(1), Kick(0), Kick(1), Kick(1)], ..ONCE },
        ],
        TIMES,
    ),
    machine(
        "interrupts while waiting",
        &[HOLDER_AGAIN, interrupted(&[BEFORE_FLAG, FLAG_TO_HALT]), interrupted(&[FLAG_TO_HALT])],
        TIMES,
    ),
    machine(
        "interrupts while kicking",
        &[
            Program { irqs: &[RELEASE_TO_KICK, BEFORE_FLAG], ..thrice(PLAIN, 0) },
            Program { irqs: &[RELEASE_TO_KICK], ..thrice(PLAIN, 0) },
            TAKES_LOCK_1,
        ],
        TIMES,
    ),
    machine(
        "an interrupt at any step",
        &[
            Program { irqs: &[ANY_STEP], ..twice(PLAIN) },
            Program { irqs: &[ANY_STEP], ..twice(PLAIN) },
            TAKES_LOCK_1,
        ],
        5 * TIMES,
    ),
    machine(
        "the same with all handoffs",
        &[
            Program { irqs: &[ANY_STEP], ..twice(ALL) },
            Program { irqs: &[ANY_STEP], ..twice(ALL) },
            Program { handoff: ALL, ..TAKES_LOCK_1 },
        ],
        TIMES,
    ),
    machine("a record changes under the search", &[ACCIDENT, SEARCHER, SOUGHT], 3 * TIMES),
    machine(
        "the same, and the kick is owed",
        &[SOUGHT, Program { handoff: FUSE, ..SEARCHER }, ACCIDENT],
        3 * TIMES,
    ),
    machine(
        "claim and fuse, two locks",
        &[
            Program { ops: &[Take(0), Take(1), Take(0)], ..with(CLAIM_FUSE) },
            Program { ops: &[Take(0), Take(1)], ..with(CLAIM_FUSE) },
            Program { ops: &[Take(1), Take(0), Take(1)], ..with(CLAIM_FUSE) },
        ],
        3 * TIMES,
    ),
    machine(
        "IPI to halted waiters",
        &[
            Program { ops: &[Lock(0), Ipi(1), Ipi(2), Unlock(0)], ..ONCE },
            Program { ops: &[Take(0), Idle], irqs_on: true, ..ONCE },
            Program { ops: &[Take(0), Idle], irqs_on: true, spin: 2, ..ONCE },
        ],
        TIMES,
    ),
    machine("spinning less", &[thrice(SPINS, 3), thrice(SPINS, 3), thrice(SPINS, 3)], TIMES),
    machine("claim", &[thrice(CLAIM, 0), thrice(CLAIM, 0), thrice(CLAIM, 1)], TIMES),
    machine(
        "claim for some, spurious kicks",
        &[
            thrice(CLAIM, 0),
            thrice(PLAIN, 0),
            thrice(CLAIM, 1),
            Program { ops: &[Kick(0), Kick(1), Kick(2)], ..ONCE },
        ],
        TIMES,
    ),
    machine("ahead", &[thrice(AHEAD, 0), thrice(AHEAD, 0), thrice(AHEAD, 1)], TIMES),
    machine("fuse", &[thrice(FUSE, 0), thrice(FUSE, 0), thrice(FUSE, 1)], TIMES),
    machine(
        "fuse, two locks",
        &[
            Program { ops: &[Take(0), Take(1), Take(0)], ..with(FUSE) },
            Program { ops: &[Take(0), Take(1), Take(0)], ..with(FUSE) },
            Program { ops: &[Take(1), Take(0)], ..with(FUSE) },
        ],
        TIMES,
    ),
    machine(
        "a debt, and a long section",
        &[
            Program { ops: &[Take(0), Lock(1), Await(1), Unlock(1)], ..with(FUSE) },
            Program { ops: &[Take(0), Post(1)], ..with(FUSE) },
        ],
        TIMES,
    ),
    machine("queue of one", &[thrice(QUEUE, 0), thrice(QUEUE, 0), thrice(QUEUE, 1)], TIMES),
    machine(
        "queue of two",
        &[thrice(QUEUE_2, 0), thrice(QUEUE_2, 0), thrice(QUEUE_2, 1), thrice(QUEUE_2, 0)],
        TIMES,
    ),
    machine("a queue for some", &[twice(PLAIN), twice(QUEUE), twice(QUEUE_2)], TIMES),
    machine(
        "interrupts outside of the queue",
        &[
            Program { handoff: QUEUE, ..HOLDER_AGAIN },
            Program { handoff: QUEUE, ..interrupted(&[BEFORE_FLAG, FLAG_TO_HALT]) },
            Program { handoff: QUEUE, ..interrupted(&[FLAG_TO_HALT]) },
        ],
        TIMES,
    ),
    machine(
        "all handoffs",
        &[thrice(ALL, 0), thrice(ALL, 1), thrice(ALL, 0), thrice(ALL, 2)],
        TIMES,
    ),
    machine(
        "every CPU another handoff",
        &[thrice(CLAIM, 0), thrice(FUSE, 0), thrice(QUEUE, 0), thrice(ALL, 0)],
        TIMES,
    ),
    Scenario {
        locks: &[LAST_TICKET; 3],
        ..machine(
            "debts and interrupts",
            &[
                Program {
                    ops: &[IrqsOff, Take(0), IrqsOn, Take(2)],
                    irqs: &[Irq { at: At::Step(30), lock: 1 }],
                    ..with(FUSE)
                },
                Program { ops: &[Lock(1), Take(0), Unlock(1)], ..with(FUSE) },
                Program { ops: &[Take(2)], ..ONCE },
            ],
            3 * TIMES,
        )
    },
];
