//! `pvticket check`: tests a kernel's spinlocks for correctness and slowdowns. Each test of a fixed set boots
//! new guests; the verdicts are printed as KTAP version 1 (Documentation/dev-tools/ktap.rst).
//!
//! [`kernel_source`] finds the kernel and builds its tree, [`guests`] boots it, [`bug_reports`] searches its log,
//! [`host_time`] measures time taken by the host, [`suite`] has the tests, [`reference`](mod@reference)
//! stores rates and compares them, [`runner`] runs the tests, and [`ktap`] prints the results.

pub mod bug_reports;
pub mod guests;
pub mod host_time;
pub mod kernel_pair;
pub mod kernel_source;
pub mod ktap;
pub mod process;
pub mod reference;
pub mod runner;
pub mod suite;

use thiserror::Error;

/// Every test passed or was skipped.
pub const PASSED: u8 = 0;
/// A test failed.
pub const FAILED: u8 = 1;
/// No verdict on this kernel: `git bisect run` skips the commit.
pub const NO_VERDICT: u8 = 125;

/// The reason for a missing verdict.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct NoVerdict(pub String);

/// The reason for a skipped test.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct Skip(pub String);

/// The reason for a failed test.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{reason}")]
pub struct Failure {
    /// The message.
    pub reason: String,
    /// Whether it is a timeout, which the host may have caused.
    pub is_timeout: bool,
}

impl Failure {
    /// A failure that the host cannot have caused.
    pub fn certain(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), is_timeout: false }
    }
}
