//! Runs the tests of one kernel, and prints each result at once.

use crate::check::{
    FAILED, NoVerdict, PASSED,
    guests::Guests,
    ktap::{self, TestResult, Verdict},
    reference::Reference,
    suite::{Load, PROGRAM, REQUIRED, Suite, TESTS, Test, TestName},
};
use os::streams::print;
use study::host_facts::FileFacts;

/// Runs all tests, or the required tests and `only`, and adds their results to `outcome`, which names the kernel
/// and the host. Returns the exit status and the results. Fails if there is no verdict.
pub fn run(
    outcome: Reference,
    mut guests: Guests,
    load: Load,
    against: Option<&Reference>,
    only: &[TestName],
) -> anyhow::Result<(u8, Reference)> {
    let is_selected = |(ix, (name, _)): &(usize, &Test)| {
        let is_default = (*name == PROGRAM) == guests.program().is_some();
        let is_named = only.iter().any(|test| test.0 == *name);
        *ix < REQUIRED || is_named || only.is_empty() && is_default
    };
    let tests: Vec<&Test> =
        TESTS.iter().enumerate().filter(is_selected).map(|(_, test)| test).collect();
    print(&ktap::heading(tests.len(), &header_lines(&outcome, guests.slots(), against)));
    let mut suite = Suite::new(&mut guests, load, outcome, against);
    let mut results: Vec<TestResult> = Vec::new();
    for (number, test) in (1..).zip(tests) {
        let result = suite.verdict(test).inspect_err(|_| print("Bail out!\n"))?;
        print(&ktap::lines(number, test.0, &result));
        suite.outcome.results.push((test.0.to_owned(), result.verdict.name().to_owned()));
        results.push(result);
    }
    print(&ktap::totals(&results));
    Ok((status(&results)?, suite.outcome))
}

/// Lines about the kernel and the host.
fn header_lines(outcome: &Reference, slots: u32, against: Option<&Reference>) -> Vec<String> {
    let Reference { kernel: FileFacts { path, sha256, version, .. }, host, .. } = outcome;
    let version = version.as_deref().unwrap_or("of unknown version");
    let mut lines = vec![
        format!("kernel {version}, {path}, SHA-256 {sha256}..."),
        format!("host {host}; guests share {slots} CPUs"),
    ];
    lines.extend(against.map(|reference| {
        let FileFacts { path, sha256, .. } = &reference.kernel;
        format!("against {path}, SHA-256 {sha256}..., on {}", reference.host)
    }));
    lines
}

/// The exit status after these results, in order.
fn status(results: &[TestResult]) -> Result<u8, NoVerdict> {
    if results.iter().any(|result| matches!(result.verdict, Verdict::NotOk(_))) {
        return Ok(FAILED);
    }
    let is_skipped = |result: &TestResult| matches!(result.verdict, Verdict::Skipped(_));
    let skipped = |tests: &[TestResult]| !tests.is_empty() && tests.iter().all(is_skipped);
    // The last test, if only the first ones were requested.
    let first = REQUIRED.min(results.len().saturating_sub(1));
    if results.get(first..).is_some_and(skipped) {
        let reason = "all tests except the first were skipped, for the reasons above";
        return Err(NoVerdict(reason.into()));
    }
    Ok(PASSED)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a kernel that crashed when its other CPUs came up, so that all later tests were skipped,
    /// had no verdict, and `git bisect` skipped it.
    #[test]
    fn failure_before_skips_is_verdict() {
        let ok = || TestResult::ok(Vec::new());
        let failed = || TestResult::not_ok("it hung", Vec::new());
        let skipped = || TestResult::skipped("smp failed");
        assert_eq!(status(&[ok(), failed(), skipped()]).unwrap(), FAILED);
        assert_eq!(status(&[ok(), ok(), ok(), skipped()]).unwrap(), PASSED);
        assert_eq!(status(&[ok(), ok()]).unwrap(), PASSED, "no other test was requested");
        assert!(status(&[ok(), ok(), skipped(), skipped()]).is_err());
        assert!(status(&[ok(), skipped()]).is_err(), "the host took time from smp");
    }
}
