//! The lock library on simulated vCPUs, on arbitrary machines with arbitrary loads.

use simulated_locks::System;
use stepper::{Case, CaseVerdict, Handoff, StepDuration, StepperLoad, StepperSpec};

use crate::input::Input;

fn handoff(input: &mut Input<'_>) -> Handoff {
    let flags = input.byte();
    let is_on = |bit: u8| flags >> bit & 1 == 1;
    Handoff {
        far: input.below(4) as u16,
        queue: input.below(5) as u16,
        predecessor: is_on(0),
        adapt: is_on(1),
        claim: is_on(2),
        ahead: is_on(3),
        fuse: is_on(4),
    }
}

fn times(input: &mut Input<'_>) -> StepDuration {
    let steps = 1 + u32::from(input.byte());
    if input.byte().is_multiple_of(2) {
        StepDuration::About(steps)
    } else {
        StepDuration::Fixed(steps)
    }
}

/// Any lock must be exclusive, come to an end, and keep its bound on bypasses.
pub fn locks(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let system = input.one_of(System::ALL);
    let is_pv = matches!(system, System::PvTicket | System::SmallPvTicket);
    let options = handoff(&mut input);
    let case = Case {
        system,
        handoff: if is_pv { options } else { Handoff::default() },
        spin_threshold: 1 + u32::from(input.byte()),
        vcpus: 2 + input.below(6),
        machine: StepperSpec {
            pcpus: 1 + input.below(6),
            strangers: input.below(3),
            in_turn: input.byte().is_multiple_of(4),
            slice: 10 + u32::from(input.half() % 500),
            kick_delay: u32::from(input.byte()),
            spurious: u32::from(input.byte()),
            lost_kicks: 0,
            patience: 4_000_000,
        },
        load: StepperLoad {
            locks: 1 + input.below(2),
            think: times(&mut input),
            critical: times(&mut input),
            // Steps cost time: few loads are long.
            acquisitions: input.one_of(&[24, 24, 24, 48, 48, 200]),
        },
    };
    let verdict = CaseVerdict::of(case, input.double());
    assert!(verdict.is_kept(), "{verdict}");
}

pub fn seeds() -> Vec<Vec<u8>> {
    let plain = |system: usize| {
        [&[system as u8, 0, 0, 0, 20, 2, 1, 0, 1, 90, 0, 0, 0, 0, 40, 0, 4, 0][..], &[14; 8]]
            .concat()
    };
    let queued = |system: usize| [&[system as u8, 31, 1, 2][..], &plain(system)[4..]].concat();
    (0..System::ALL.len()).flat_map(|system| [plain(system), queued(system)]).collect()
}
