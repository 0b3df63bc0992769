//! What halts and kicks go through.

use crate::machine::{HaltVcpu, run, run_scheduled, run_with_courier};
use in_the_model::sleep::Check;

/// A kick before, during or after the one halt that it has to end.
const ONE_KICK: &[fn(&HaltVcpu)] = &[HaltVcpu::halt, |vcpu| vcpu.kick(0)];

/// Each kick follows a write that its target waits for: all are seen, though kicks coalesce.
const TWO_KICKERS: &[fn(&HaltVcpu)] = &[|vcpu| vcpu.halt_for(2), write_and_kick, write_and_kick];

fn write_and_kick(vcpu: &HaltVcpu) {
    vcpu.write_to(0);
    vcpu.kick(0);
}

/// Two halts in a row: the kick of the first is not in the way of the second's.
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

/// Two vCPUs pass one turn to and fro.
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

/// A vCPU that is kicked itself hands over: its halt may return at once.
const KICKED_WHILE_HANDING_OVER: &[fn(&HaltVcpu)] =
    &[|vcpu| vcpu.kick_and_halt(1), HaltVcpu::halt, |vcpu| vcpu.kick(0)];

/// A halted vCPU when the machine stops, while it is kicked.
const STOP: &[fn(&HaltVcpu)] = &[
    |vcpu| vcpu.until_stopped(4, || vcpu.halt()),
    |vcpu| vcpu.kick(0),
    |vcpu| vcpu.machine.stop(),
];

/// vCPUs that hand over to each other when the machine stops.
const STOP_HANDING_OVER: &[fn(&HaltVcpu)] = &[
    |vcpu| vcpu.until_stopped(2, || vcpu.kick_and_halt(1)),
    |vcpu| vcpu.until_stopped(2, || vcpu.kick_and_halt(0)),
    |vcpu| vcpu.machine.stop(),
];

/// Late kicks, more of them than there is room for: the first must not get lost.
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

/// One late kick.
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

/// Executions of each for shuttle.
const TIMES: usize = 300;

/// Every check, for loom and shuttle.
pub const CHECKS: &[Check] = &[
    Check { name: "one kick", run: || run(ONE_KICK), preemptions: 3, times: TIMES },
    Check {
        name: "one kick, scheduled",
        run: || run_scheduled(ONE_KICK),
        preemptions: 3,
        times: TIMES,
    },
    Check { name: "two kickers", run: || run(TWO_KICKERS), preemptions: 2, times: TIMES },
    Check {
        name: "two kickers, scheduled",
        run: || run_scheduled(TWO_KICKERS),
        preemptions: 2,
        times: TIMES,
    },
    Check { name: "kicked twice", run: || run(TWICE), preemptions: 3, times: TIMES },
    Check {
        name: "kicked twice, scheduled",
        run: || run_scheduled(TWICE),
        preemptions: 3,
        times: TIMES,
    },
    Check { name: "ended by the VMM", run: || run(ENDED_BY_THE_VMM), preemptions: 2, times: TIMES },
    Check {
        name: "ended by the VMM, scheduled",
        run: || run_scheduled(ENDED_BY_THE_VMM),
        preemptions: 2,
        times: TIMES,
    },
    Check { name: "ping-pong", run: || run(PING_PONG), preemptions: 3, times: TIMES },
    Check {
        name: "ping-pong, scheduled",
        run: || run_scheduled(PING_PONG),
        preemptions: 3,
        times: TIMES,
    },
    Check {
        name: "kicked while handing over",
        run: || run(KICKED_WHILE_HANDING_OVER),
        preemptions: 2,
        times: TIMES,
    },
    Check {
        name: "kicked while handing over, scheduled",
        run: || run_scheduled(KICKED_WHILE_HANDING_OVER),
        preemptions: 2,
        times: TIMES,
    },
    Check { name: "stop", run: || run(STOP), preemptions: 2, times: TIMES },
    Check { name: "stop, scheduled", run: || run_scheduled(STOP), preemptions: 2, times: TIMES },
    Check {
        name: "stop while handing over",
        run: || run(STOP_HANDING_OVER),
        preemptions: 2,
        times: TIMES,
    },
    Check {
        name: "stop while handing over, scheduled",
        run: || run_scheduled(STOP_HANDING_OVER),
        preemptions: 2,
        times: TIMES,
    },
    Check {
        name: "one late kick",
        run: || run_with_courier(ONE_LATE),
        preemptions: 2,
        times: TIMES,
    },
    Check { name: "late kicks", run: || run_with_courier(LATE), preemptions: 0, times: TIMES },
];
