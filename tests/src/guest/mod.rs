//! Tests that boot Linux guests on a hardware KVM, possibly an emulated host's.

mod command;
mod ends;
mod faults;
mod first_cpu;
mod handoff;
mod hypercalls;
mod initrd;
mod kernels;
mod locks;
mod machine;
mod packed;
mod pgbench;
mod programs;
mod schedule;
mod shell;
pub mod steal;
mod stock;
mod window;
mod workloads;

use crate::{host::hostile, product::Boot, suite::Test};

/// Returns all tests of this group.
pub fn tests() -> Vec<Test> {
    [
        command::TESTS,
        machine::TESTS,
        first_cpu::TESTS,
        locks::TESTS,
        schedule::TESTS,
        hypercalls::TESTS,
        faults::TESTS,
        handoff::TESTS,
        ends::TESTS,
        initrd::TESTS,
        window::TESTS,
        workloads::TESTS,
        kernels::TESTS,
        pgbench::TESTS,
        programs::TESTS,
        shell::TESTS,
        steal::TESTS,
        stock::TESTS,
        hostile::emulated::TESTS,
        hostile::wakes::emulated::TESTS,
    ]
    .concat()
}

/// Builds a boot of two vCPUs that share a slot.
fn one_slot() -> Boot {
    Boot::direct().with("--cpus 2 --policy rr --slots 1 --slice 6ms")
}

/// Moves init and the script's shell to vCPU 1 of [`one_slot`], at the start of a slice. vCPU 0 then sends
/// their output to the serial line once it has the slot again.
const ON_VCPU_1: &str = "taskset -p 2 1; taskset -p 2 $$; sleep 0.1";
