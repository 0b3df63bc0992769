//! Tests that run on this host.

mod access;
mod bad_image;
mod bad_usage;
mod emulated;
mod faults;
pub mod hypercalls;
pub mod instructions;
mod keys;
mod library;
mod reports;
mod schedule;
mod tiny;

use crate::suite::Test;

/// Side by side.
pub fn quick() -> Vec<Test> {
    [
        bad_usage::TESTS,
        bad_image::TESTS,
        access::TESTS,
        tiny::TESTS,
        keys::TESTS,
        reports::TESTS,
        instructions::TESTS,
    ]
    .concat()
}

/// One after the other: they measure.
pub fn schedules() -> Vec<Test> {
    [schedule::TESTS, hypercalls::TESTS, faults::TESTS, library::TESTS].concat()
}

/// One after the other.
pub fn emulated() -> Vec<Test> {
    emulated::TESTS.to_vec()
}
