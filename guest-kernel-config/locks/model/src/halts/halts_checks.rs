//! Scenarios of halts and kicks.

use crate::machine::{HaltVcpu, run, run_scheduled, run_with_delivery};
use in_the_model::Check;

/// A kick before or during the halt that it has to end.
const ONE_KICK: &[fn(&HaltVcpu)] = &[HaltVcpu::halt, |vcpu| vcpu.kick(0)];

/// Each kick follows a write that its target waits for: no write is missed although kicks
/// coalesce.
const TWO_KICKERS: &[fn(&HaltVcpu)] = &[|vcpu| vcpu.halt_for(2), write_and_kick, write_and_kick];

fn write_and_kick(vcpu: &HaltVcpu) {
    vcpu.write_to(0);
    vcpu.kick(0);
}

/// Two halts in a row: the kick of the first does not interfere with the second's.
const TWICE: &[fn(&HaltVcpu)] = &[
    |vcpu| {
        vcpu.halt_for(1);
        vcpu.write_to(1);
        vcpu.kick(1);
        vcpu.halt_for(2);
    },
    |vcpu| {
        write_and_kick(vcpu);
        vcpu.halt_for(1);
        write_and_kick(vcpu);
    },
];

/// The VMM ends a halt while a vCPU kicks.
const ENDED_BY_THE_VMM: &[fn(&HaltVcpu)] =
    &[|vcpu| vcpu.halt_for(1), write_and_kick, |vcpu| vcpu.end_halt(0)];

/// Two vCPUs pass the turn back and forth.
const PING_PONG: &[fn(&HaltVcpu)] = &[
    |vcpu| {
        vcpu.kick_and_halt(1);
        vcpu.kick_and_halt(1);
    },
    |vcpu| {
        vcpu.halt();
        vcpu.kick_and_halt(0);
        vcpu.kick(0);
    },
];

/// A vCPU that is itself kicked hands over: its halt may return at once.
const KICKED_WHILE_HANDING_OVER: &[fn(&HaltVcpu)] =
    &[|vcpu| vcpu.kick_and_halt(1), HaltVcpu::halt, |vcpu| vcpu.kick(0)];

/// The machine stops while a halted vCPU is kicked.
const STOP: &[fn(&HaltVcpu)] = &[
    |vcpu| vcpu.until_stopped(4, || vcpu.halt()),
    |vcpu| vcpu.kick(0),
    |vcpu| vcpu.machine.stop(),
];

/// The machine stops while vCPUs hand over to each other.
const STOP_HANDING_OVER: &[fn(&HaltVcpu)] = &[
    |vcpu| vcpu.until_stopped(2, || vcpu.kick_and_halt(1)),
    |vcpu| vcpu.until_stopped(2, || vcpu.kick_and_halt(0)),
    |vcpu| vcpu.machine.stop(),
];

/// More delayed kicks than there is room for: the first must not be lost.
const LATE: &[fn(&HaltVcpu)] = &[
    |vcpu| {
        vcpu.write_to(1);
        vcpu.kick_late(1);
        vcpu.kick_late(0);
        vcpu.kick_late(0);
    },
    |vcpu| {
        vcpu.halt_for(1);
        vcpu.machine.stop();
    },
];

const ONE_LATE: &[fn(&HaltVcpu)] = &[
    |vcpu| {
        vcpu.write_to(1);
        vcpu.kick_late(1);
    },
    |vcpu| {
        vcpu.halt_for(1);
        vcpu.machine.stop();
    },
];

const fn check(name: &'static str, run: fn(), preemptions: usize) -> Check {
    Check::new("halts", name, run, preemptions, 300)
}

/// Every check, for loom and shuttle.
pub const CHECKS: &[&[Check]] = &[&[
    check("one kick", || run(ONE_KICK), 3),
    check("one kick, scheduled", || run_scheduled(ONE_KICK), 3),
    check("two kickers", || run(TWO_KICKERS), 2),
    check("two kickers, scheduled", || run_scheduled(TWO_KICKERS), 2),
    check("kicked twice", || run(TWICE), 3),
    check("kicked twice, scheduled", || run_scheduled(TWICE), 3),
    check("ended by the VMM", || run(ENDED_BY_THE_VMM), 2),
    check("ended by the VMM, scheduled", || run_scheduled(ENDED_BY_THE_VMM), 2),
    check("ping-pong", || run(PING_PONG), 3),
    check("ping-pong, scheduled", || run_scheduled(PING_PONG), 3),
    check("kicked while handing over", || run(KICKED_WHILE_HANDING_OVER), 2),
    check("kicked while handing over, scheduled", || run_scheduled(KICKED_WHILE_HANDING_OVER), 2),
    check("stop", || run(STOP), 2),
    check("stop, scheduled", || run_scheduled(STOP), 2),
    check("stop while handing over", || run(STOP_HANDING_OVER), 2),
    check("stop while handing over, scheduled", || run_scheduled(STOP_HANDING_OVER), 2),
    check("one late kick", || run_with_delivery(ONE_LATE), 2),
    check("late kicks", || run_with_delivery(LATE), 0),
]];
