//! Results as KTAP version 1: one line per test, after its figures as diagnostics.

use std::{borrow::Cow, fmt::Write as _};

use crate::check::{Failure, Skip};
use base::sanitize;

/// Limits of a test's output: characters per line, and lines.
const MAX_LINE: usize = 2000;
const MAX_LINES: usize = 40;

/// The outcome of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The test passed.
    Ok,
    /// The test failed, with the reason.
    NotOk(String),
    /// The test was skipped, with the reason.
    Skipped(String),
}

impl Verdict {
    /// Name in files.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::NotOk(_) => "not ok",
            Self::Skipped(_) => "skipped",
        }
    }
}

/// The result of a test.
#[derive(Debug, Clone)]
pub struct TestResult {
    /// The outcome.
    pub verdict: Verdict,
    /// Lines with figures.
    pub notes: Vec<String>,
    /// Whether it failed by a timeout, which the host may have caused.
    pub is_timeout: bool,
}

impl TestResult {
    /// A passed test with these figures.
    pub const fn ok(notes: Vec<String>) -> Self {
        Self { verdict: Verdict::Ok, notes, is_timeout: false }
    }

    /// A failed test.
    pub fn not_ok(reason: impl Into<String>, notes: Vec<String>) -> Self {
        Self { verdict: Verdict::NotOk(reason.into()), notes, is_timeout: false }
    }

    /// A test that failed by a timeout.
    pub fn timed_out(reason: impl Into<String>, notes: Vec<String>) -> Self {
        Self { is_timeout: true, ..Self::not_ok(reason, notes) }
    }

    /// A test with a failed boot.
    pub fn failed(failure: Failure, notes: Vec<String>) -> Self {
        Self { is_timeout: failure.is_timeout, ..Self::not_ok(failure.reason, notes) }
    }

    /// Converts a [`Failure`] or a [`Skip`] to a result, and returns any other error.
    pub fn from_error(error: anyhow::Error) -> anyhow::Result<Self> {
        match error.downcast::<Failure>() {
            Ok(failure) => Ok(Self::failed(failure, Vec::new())),
            Err(error) => Ok(Self::skipped(error.downcast::<Skip>()?.0)),
        }
    }

    /// A skipped test.
    pub fn skipped(reason: impl Into<String>) -> Self {
        Self { verdict: Verdict::Skipped(reason.into()), notes: Vec::new(), is_timeout: false }
    }
}

/// The first lines: version, plan, and the tested kernel.
pub fn heading(tests: usize, about: &[String]) -> String {
    format!("KTAP version 1\n1..{tests}\n{}", comments(about))
}

/// The lines of test `number`, from 1. Guest output becomes one line of printable characters.
pub fn lines(number: usize, name: &str, result: &TestResult) -> String {
    let mut text = comments(&result.notes);
    let _ = match &result.verdict {
        Verdict::Ok => writeln!(text, "ok {number} {name}"),
        Verdict::NotOk(reason) => {
            text += &comments(std::slice::from_ref(reason));
            writeln!(text, "not ok {number} {name}")
        }
        Verdict::Skipped(note) => writeln!(text, "ok {number} {name} # SKIP {}", plain(note)),
    };
    text
}

/// The last line: the number of tests by outcome, in the format of kselftest.
pub fn totals(results: &[TestResult]) -> String {
    let count =
        |is: fn(&Verdict) -> bool| results.iter().filter(|result| is(&result.verdict)).count();
    format!(
        "# Totals: pass:{} fail:{} xfail:0 xpass:0 skip:{} error:0\n",
        count(|verdict| *verdict == Verdict::Ok),
        count(|verdict| matches!(verdict, Verdict::NotOk(_))),
        count(|verdict| matches!(verdict, Verdict::Skipped(_))),
    )
}

fn comments(lines: &[String]) -> String {
    lines.iter().take(MAX_LINES).map(|line| format!("# {}\n", plain(line))).collect()
}

fn plain(line: &str) -> Cow<'_, str> {
    sanitize::line(sanitize::truncate(line, MAX_LINE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_one_line_after_its_figures() {
        let notes = vec!["3 of 4 CPUs".to_owned(), "two\nlines".to_owned()];
        let failed = lines(2, "smp", &TestResult::not_ok("it hung", notes));
        assert_eq!(failed.lines().count(), 4, "{failed}");
        assert!(
            failed.starts_with("# 3 of 4 CPUs\n# two")
                && failed.ends_with("# it hung\nnot ok 2 smp\n")
        );
        assert_eq!(lines(3, "pv", &TestResult::skipped("no PV")), "ok 3 pv # SKIP no PV\n");
        assert_eq!(lines(1, "boot", &TestResult::ok(Vec::new())), "ok 1 boot\n");
        assert!(
            heading(14, &["kernel x".into()]).starts_with("KTAP version 1\n1..14\n# kernel x\n")
        );
    }

    #[test]
    fn lines_and_their_number_are_bounded() {
        let long = "x".repeat(1 << 20);
        let failed = TestResult::not_ok(long.clone(), vec![long.clone(); 1000]);
        for result in [failed, TestResult::skipped(long)] {
            let text = lines(1, "a", &result);
            assert!(text.len() < (MAX_LINES + 2) * (MAX_LINE + 10), "{}", text.len());
        }
    }

    #[test]
    fn totals_count_each_kind() {
        let results = [
            TestResult::ok(Vec::new()),
            TestResult::skipped(""),
            TestResult::not_ok("", Vec::new()),
        ];
        assert_eq!(totals(&results), "# Totals: pass:1 fail:1 xfail:0 xpass:0 skip:1 error:0\n");
    }
}
