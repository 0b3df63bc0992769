//! The cases that the tests run.

use locks::{Handoff, Needs, System};

use crate::{Case, StepDuration, StepperLoad, StepperSpec};

/// The seed that `make test` uses.
pub const SEED: u64 = 14;

/// vCPUs, pCPUs, vCPUs of other guests.
type Ratio = (usize, usize, usize);

/// Not overcommitted; by 2, by 3, and by 4 with other guests' vCPUs that take pCPUs away.
const RATIOS: [Ratio; 4] = [(4, 4, 0), (4, 2, 0), (3, 1, 0), (6, 2, 2)];

/// Critical and think times: mostly free, mostly contended, and longer than a waiter spins.
const TIMES: [(u32, u32); 3] = [(4, 40), (10, 10), (60, 5)];

const PLAIN: Handoff = Handoff {
    far: 0,
    predecessor: false,
    adapt: false,
    claim: false,
    ahead: false,
    fuse: false,
    queue: 0,
};

/// Every handoff option, and combinations that act on the same step.
const HANDOFFS: &[Handoff] = &[
    Handoff { far: 1, ..PLAIN },
    Handoff { far: 2, ..PLAIN },
    Handoff { predecessor: true, ..PLAIN },
    Handoff { adapt: true, ..PLAIN },
    Handoff { claim: true, ..PLAIN },
    Handoff { ahead: true, ..PLAIN },
    Handoff { fuse: true, ..PLAIN },
    Handoff { claim: true, ahead: true, ..PLAIN },
    Handoff { fuse: true, far: 1, ..PLAIN },
    Handoff { fuse: true, claim: true, adapt: true, ..PLAIN },
    Handoff { predecessor: true, adapt: true, ahead: true, ..PLAIN },
    Handoff { queue: 1, ..PLAIN },
    Handoff { queue: 2, ..PLAIN },
    Handoff { queue: 3, ..PLAIN },
    Handoff { queue: 2, far: 1, ..PLAIN },
    Handoff { queue: 2, claim: true, ..PLAIN },
    Handoff { queue: 2, ahead: true, ..PLAIN },
    Handoff { queue: 2, adapt: true, predecessor: true, ..PLAIN },
    Handoff { queue: 2, fuse: true, ..PLAIN },
    Handoff {
        queue: 3,
        far: 1,
        predecessor: true,
        adapt: true,
        claim: true,
        ahead: true,
        fuse: true,
    },
];

fn machine((_, pcpus, strangers): Ratio) -> StepperSpec {
    StepperSpec {
        pcpus,
        strangers,
        in_turn: false,
        slice: 100,
        kick_delay: 0,
        spurious: 0,
        lost_kicks: 0,
        patience: 4_000_000,
    }
}

fn case(system: System, ratio: Ratio, (critical, think): (u32, u32), acquisitions: u64) -> Case {
    let (critical, think) = (StepDuration::About(critical), StepDuration::About(think));
    Case {
        system,
        handoff: PLAIN,
        spin_threshold: 20,
        vcpus: ratio.0,
        machine: machine(ratio),
        load: StepperLoad { acquisitions, locks: 1, think, critical },
    }
}

/// Every lock, at every ratio, with every load in turn; for locks whose waiters halt also with
/// delayed kicks and spurious wakeups.
pub fn locks(acquisitions: u64) -> impl Iterator<Item = Case> {
    let systems = System::ALL.iter().filter(|system| crate::subject(**system).is_some());
    systems.enumerate().flat_map(move |(turn, system)| {
        let ratios = RATIOS.iter().enumerate();
        let usual = ratios.map(move |(ix, ratio)| {
            case(*system, *ratio, TIMES[(turn + ix) % TIMES.len()], acquisitions)
        });
        let late = (system.needs() == Needs::Halts).then(|| {
            let mut late = case(*system, RATIOS[1], TIMES[2], acquisitions);
            (late.machine.kick_delay, late.machine.spurious) = (50, 8);
            late
        });
        usual.chain(late)
    })
}

/// Every handoff option of the PV ticketlock: overcommitted and not, halting at nearly every
/// handoff (critical sections longer than a waiter spins) and seldom.
pub fn handoffs(acquisitions: u64) -> impl Iterator<Item = Case> {
    HANDOFFS.iter().enumerate().flat_map(move |(turn, handoff)| {
        // Constant times: a releaser always returns before the next release.
        let mut long = case(System::PvTicket, RATIOS[0], TIMES[2], acquisitions);
        (long.load.critical, long.load.think) = (StepDuration::Fixed(60), StepDuration::Fixed(5));
        let over = case(System::PvTicket, RATIOS[1], TIMES[turn % TIMES.len()], acquisitions);
        let more = case(System::SmallPvTicket, RATIOS[3], TIMES[1], acquisitions);
        let mut late = case(System::PvTicket, RATIOS[2], TIMES[2], acquisitions);
        (late.machine.kick_delay, late.machine.spurious) = (50, 8);
        [long, over, more, late].map(|case| Case { handoff: *handoff, ..case })
    })
}

/// Limited queues on CPUs that are never taken away: every wait in the queue is longer than the
/// threshold, or none is; waiters with others ahead all halt; and releases of one lock are not
/// counted for another.
pub fn outside(acquisitions: u64) -> impl Iterator<Item = Case> {
    const LONG: (u32, u32, u32) = (20, 60, 5);
    const SHORT: (u32, u32, u32) = (2048, 3, 1);
    const FAR: (u32, u32, u32) = (2048, 20, 5);
    const Q2: Handoff = Handoff { queue: 2, ..PLAIN };
    let in_turn_case = move |system, vcpus, handoff, (spin_threshold, critical, think), locks| {
        let plain = case(system, (vcpus, vcpus, 0), (critical, think), acquisitions);
        let (critical, think) = (StepDuration::Fixed(critical), StepDuration::Fixed(think));
        let machine = StepperSpec { in_turn: true, ..plain.machine };
        Case {
            handoff,
            spin_threshold,
            machine,
            load: StepperLoad { locks, critical, think, ..plain.load },
            ..plain
        }
    };
    [
        in_turn_case(System::PvTicket, 6, Handoff { queue: 4, ..PLAIN }, LONG, 1),
        in_turn_case(System::PvTicket, 8, Handoff { queue: 1, ..PLAIN }, LONG, 1),
        in_turn_case(System::SmallPvTicket, 4, Q2, LONG, 1),
        in_turn_case(System::PvTicket, 5, Handoff { far: 1, ..Q2 }, FAR, 1),
        in_turn_case(
            System::PvTicket,
            5,
            Handoff { queue: 3, far: 1, adapt: true, ..PLAIN },
            FAR,
            1,
        ),
        in_turn_case(
            System::SmallPvTicket,
            5,
            Handoff { far: 1, claim: true, ahead: true, ..Q2 },
            FAR,
            1,
        ),
        in_turn_case(System::PvTicket, 4, Q2, SHORT, 1),
        in_turn_case(System::SmallPvTicket, 4, Q2, SHORT, 1),
        in_turn_case(System::SmallPvTicket, 7, Handoff { queue: 3, ..PLAIN }, SHORT, 1),
        in_turn_case(System::PvTicket, 5, Q2, LONG, 2),
        in_turn_case(System::SmallPvTicket, 6, Q2, SHORT, 2),
    ]
    .into_iter()
}

/// Every lock and handoff option at every number of vCPUs, `acquisitions` in each.
pub fn all(acquisitions: u64) -> Vec<Case> {
    locks(acquisitions).chain(handoffs(acquisitions)).chain(outside(acquisitions)).collect()
}
