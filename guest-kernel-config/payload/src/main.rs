//! A bare guest without a kernel and without interrupts. Each vCPU is entered at [`_start`] in long
//! mode at CPL 3, or at CPL 0 if it is to execute HLT, runs the workload that the VMM set in the
//! [`Shared`] block, and writes `VCPU_DONE`.

#![no_std]
#![no_main]

mod console;
mod entry;
mod handoffs;
mod misuse;
mod port;
mod telemetry;
mod transport;
mod vcpu;
mod work;

use hypercalls::payload::Workload;
use vcpu::CallingVcpu;

/// The status of a vCPU whose workload is unknown.
const STATUS_UNKNOWN_WORKLOAD: u32 = 2;

/// Runs the workload; returns the vCPU's status, 0 = success.
fn run(vcpu: &CallingVcpu) -> u32 {
    let workload = vcpu.param(|params| &params.workload);
    if let Some(workload) = Workload::from_number(workload) {
        return work::run(vcpu, workload);
    }
    match workload {
        w if w == Workload::Hello as u32 => console::hello(vcpu),
        w if w == Workload::Rest as u32 => console::idle(vcpu),
        w if w == Workload::PortExit as u32 => handoffs::port_exits(vcpu),
        w if w == Workload::PingPong as u32 => handoffs::ping_pong(vcpu),
        w if w == Workload::KickRunning as u32 => handoffs::kick_running(vcpu),
        w if w == Workload::PendingHalt as u32 => handoffs::pending_halt(vcpu),
        w if w == Workload::Misuse as u32 => misuse::run(vcpu),
        _ => return STATUS_UNKNOWN_WORKLOAD,
    }
    0
}
