//! Tests that boot Linux guests on a hardware KVM, possibly that of an emulated host.

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
mod pgbench;
mod schedule;
mod shell;
mod steal;
mod stock;
mod window;
mod workloads;

use crate::{host::hostile, suite::Test};

/// All tests of this group.
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
        shell::TESTS,
        steal::TESTS,
        stock::TESTS,
        hostile::emulated::TESTS,
    ]
    .concat()
}
