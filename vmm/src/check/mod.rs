//! `pvticket check`: is this kernel's spinlock right, and has it become slower? A fixed set of tests, each in guests of its
//! own, whose verdicts are printed as KTAP version 1 (Documentation/dev-tools/ktap.rst).
//!
//! [`subject`] finds the kernel and builds its tree, [`guests`] boots it, [`complaints`] reads its log, [`host_time`] measures what
//! the host took away, [`suite`] has the tests, [`reference`](mod@reference) keeps rates and compares them, [`runner`] runs
//! them, and [`ktap`] prints.

pub mod complaints;
pub mod guests;
pub mod host_time;
pub mod ktap;
pub mod pairs;
pub mod process;
pub mod reference;
pub mod runner;
pub mod subject;
pub mod suite;

use thiserror::Error;

/// Every test passed or was skipped.
pub const PASSED: u8 = 0;
/// A test failed.
pub const FAILED: u8 = 1;
/// Nothing can be said about this kernel: `git bisect run` skips the commit.
pub const CANNOT_TELL: u8 = 125;

/// Why nothing can be said about a kernel.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct CannotTell(pub String);

/// Why a test is skipped.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct Skip(pub String);

/// The reason for a failed test.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{why}")]
pub struct Failure {
    /// In words.
    pub why: String,
    /// Whether the host can have caused it, if it took much time.
    pub is_late: bool,
}

impl Failure {
    /// The kernel's fault in any case.
    pub fn sure(why: impl Into<String>) -> Self {
        Self { why: why.into(), is_late: false }
    }
}
