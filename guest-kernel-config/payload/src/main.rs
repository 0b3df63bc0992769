//! A bare ring-3 guest: no kernel, no interrupts, no HLT. Each vCPU is entered
//! at [`_start`] in long mode at CPL 3, runs the workload that the
//! VMM left in the [`Shared`] block, and says `VCPU_DONE`.

#![no_std]
#![no_main]

mod console;
mod entry;
mod lock;
mod misuse;
mod port;
mod telemetry;
mod vcpu;

use hypercalls::payload::Workload;
use vcpu::Vcpu;

/// The status of a vCPU that was told to do something unknown.
const STATUS_UNKNOWN_WORKLOAD: u32 = 2;

/// Runs the workload; returns the vCPU's status, 0 = well.
fn run(vcpu: &Vcpu) -> u32 {
    match vcpu.param(|params| &params.workload) {
        w if w == Workload::Hello as u32 => console::hello(vcpu),
        w if w == Workload::Lock as u32 => return lock::run(vcpu),
        w if w == Workload::PortExit as u32 => port_exits(vcpu),
        w if w == Workload::Misuse as u32 => misuse::run(vcpu),
        _ => return STATUS_UNKNOWN_WORKLOAD,
    }
    0
}

/// One exit to the VMM per operation, and nothing else.
fn port_exits(vcpu: &Vcpu) {
    vcpu.wait_for_go();
    let mut operations = 0;
    while !vcpu.stopped() {
        port::out32(hypercalls::payload::UNCLAIMED_PORT, 0);
        operations += 1;
        vcpu.publish(|slot| &slot.operations, operations);
    }
}
