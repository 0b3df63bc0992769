//! Tests that run on this host.

mod access;
mod bad_image;
mod bpf;
mod bpf_doctor;
mod bpf_drivers;
mod bpf_extend;
mod bpf_holders;
mod bpf_load;
mod bpf_policies;
mod bpf_share;
mod cgroups;
mod check;
mod confinement;
mod emulated;
mod ends;
mod examples;
mod faults;
mod figures;
mod first_cpu;
mod first_run;
mod guest_kernels;
pub mod hostile;
pub mod hypercalls;
mod instructions;
mod interrupted_setup;
mod keys;
mod league;
mod library;
mod limits;
mod lock_crates;
mod many_cpus;
mod observer;
mod outputs;
mod parts;
mod priority;
mod refusals;
mod replays;
mod report;
mod reports;
mod reproduce;
mod results;
mod resume;
mod run;
mod schedule;
mod search;
mod setup;
mod signals;
mod sim;
mod sizes;
mod stops;
mod supply;
mod system_calls;
mod tiny;
mod trace;
mod tutorial;
mod unit_of_work;

use crate::suite::Test;

/// Returns all tests of this group, with the slowest first: tests that start an emulated host.
pub fn tests() -> Vec<Test> {
    let lists = [
        emulated::TESTS,
        guest_kernels::TESTS,
        check::TESTS,
        bpf::TESTS,
        bpf_doctor::TESTS,
        bpf_drivers::TESTS,
        bpf_extend::TESTS,
        bpf_holders::TESTS,
        bpf_load::TESTS,
        bpf_policies::TESTS,
        bpf_share::TESTS,
        observer::TESTS,
        observer::emulated::TESTS,
        examples::TESTS,
        first_cpu::TESTS,
        cgroups::TESTS,
        confinement::emulated::TESTS,
        system_calls::emulated::TESTS,
        signals::TESTS,
        signals::background::TESTS,
        limits::TESTS,
        ends::TESTS,
        league::TESTS,
        library::TESTS,
        lock_crates::TESTS,
        unit_of_work::TESTS,
        faults::TESTS,
        resume::TESTS,
        hostile::TESTS,
        hostile::wakes::TESTS,
        hostile::wakes::bpf::TESTS,
        report::TESTS,
        many_cpus::TESTS,
        outputs::TESTS,
        priority::TESTS,
        run::TESTS,
        schedule::TESTS,
        hypercalls::TESTS,
        reproduce::TESTS,
        trace::TESTS,
        tutorial::TESTS,
        figures::TESTS,
        stops::TESTS,
        sizes::TESTS,
        refusals::TESTS,
        bad_image::TESTS,
        access::TESTS,
        tiny::TESTS,
        keys::TESTS,
        reports::TESTS,
        instructions::TESTS,
        interrupted_setup::TESTS,
        supply::TESTS,
        first_run::TESTS,
        setup::TESTS,
        sim::TESTS,
        replays::TESTS,
        search::TESTS,
        confinement::TESTS,
        results::TESTS,
        system_calls::TESTS,
    ];
    [parts::tests()].into_iter().chain(lists.map(<[Test]>::to_vec)).flatten().collect()
}
