//! Tests that run on this host.

mod access;
mod bad_image;
mod bad_usage;
mod bpf;
mod bpf_doctor;
mod bpf_drivers;
mod bpf_holders;
mod bpf_load;
mod bpf_policies;
mod cgroups;
mod confinement;
mod control;
mod emulated;
mod faults;
mod features;
mod figures;
mod first_cpu;
pub mod hostile;
pub mod hypercalls;
pub mod instructions;
mod keys;
mod library;
mod limits;
mod outputs;
mod report;
mod reports;
mod reproduce;
mod resume;
mod run;
mod schedule;
mod search;
mod setup;
mod signals;
mod sim;
mod sizes;
mod supply;
mod sweeps;
mod system_calls;
mod tiny;
mod trace;

use crate::suite::Test;

/// Tests that run in parallel.
pub fn quick() -> Vec<Test> {
    [
        bad_usage::TESTS,
        bad_image::TESTS,
        access::TESTS,
        tiny::TESTS,
        keys::TESTS,
        report::TESTS,
        reports::TESTS,
        instructions::TESTS,
        supply::TESTS,
        setup::TESTS,
        limits::TESTS,
        outputs::TESTS,
        sim::TESTS,
        search::TESTS,
        confinement::TESTS,
        system_calls::TESTS,
    ]
    .concat()
}

/// Tests that run one after the other, because they measure.
pub fn schedules() -> Vec<Test> {
    let all = [
        schedule::TESTS,
        hypercalls::TESTS,
        faults::TESTS,
        library::TESTS,
        run::TESTS,
        resume::TESTS,
        reproduce::TESTS,
        trace::TESTS,
        figures::TESTS,
        sizes::TESTS,
        control::TESTS,
        hostile::TESTS,
    ];
    all.into_iter().map(<[Test]>::to_vec).chain([sweeps::tests()]).flatten().collect()
}

/// Measurements that print tables.
pub fn costs() -> Vec<Test> {
    sweeps::costs()
}

/// Tests of the emulated host that do not measure: two may run at a time.
pub fn emulated_beside() -> Vec<Test> {
    [emulated::TESTS, bpf_doctor::TESTS, features::TESTS, confinement::emulated::TESTS].concat()
}

/// Tests of the emulated host, one after the other.
pub fn emulated() -> Vec<Test> {
    [
        bpf::TESTS,
        bpf_drivers::TESTS,
        bpf_holders::TESTS,
        bpf_load::TESTS,
        bpf_policies::TESTS,
        first_cpu::TESTS,
        cgroups::TESTS,
        signals::TESTS,
        system_calls::emulated::TESTS,
    ]
    .concat()
}
