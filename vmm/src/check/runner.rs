//! Runs the tests of one kernel, and prints each result at once.

use crate::check::{
    CannotTell, FAILED, PASSED,
    guests::Guests,
    ktap::{self, TestResult, Verdict},
    reference::Reference,
    suite::{FIRST, Load, Suite, TESTS, Test, TestName},
};
use os::streams::print;
use study::host_facts::FileFacts;

/// Runs the tests, or `only` these, and adds their results to `found`, which names the kernel and the host.
/// Returns the exit status and the results. Fails if there is no verdict.
pub fn run(
    found: Reference,
    mut guests: Guests,
    load: Load,
    against: Option<&Reference>,
    only: &[TestName],
) -> anyhow::Result<(u8, Reference)> {
    let is_wanted = |(ix, (name, _)): &(usize, &Test)| {
        only.is_empty() || *ix < FIRST || only.iter().any(|only| only.0 == *name)
    };
    let tests: Vec<&Test> =
        TESTS.iter().enumerate().filter(is_wanted).map(|(_, test)| test).collect();
    print(&ktap::heading(tests.len(), &about(&found, guests.slots(), against)));
    let mut suite = Suite::new(&mut guests, load, found, against);
    let mut results: Vec<TestResult> = Vec::new();
    for (number, test) in (1..).zip(tests) {
        let result = suite.verdict(test).inspect_err(|_| print("Bail out!\n"))?;
        print(&ktap::lines(number, test.0, &result));
        suite.found.results.push((test.0.to_owned(), result.verdict.name().to_owned()));
        results.push(result);
    }
    print(&ktap::totals(&results));
    Ok((status(&results)?, suite.found))
}

/// Lines about the kernel and the host.
fn about(found: &Reference, slots: u32, against: Option<&Reference>) -> Vec<String> {
    let Reference { kernel: FileFacts { path, sha256, version, .. }, host, .. } = found;
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
fn status(results: &[TestResult]) -> Result<u8, CannotTell> {
    if results.iter().any(|result| matches!(result.verdict, Verdict::NotOk(_))) {
        return Ok(FAILED);
    }
    let is_skipped = |result: &TestResult| matches!(result.verdict, Verdict::Skipped(_));
    let skipped = |tests: &[TestResult]| !tests.is_empty() && tests.iter().all(is_skipped);
    // The last test, if only the first ones were requested.
    let first = FIRST.min(results.len().saturating_sub(1));
    if results.get(first..).is_some_and(skipped) {
        let what = "all tests except the first were skipped, for the reasons above";
        return Err(CannotTell(what.into()));
    }
    Ok(PASSED)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a kernel that crashed when its other CPUs came up, so that all later tests were skipped,
    /// had no verdict, and `git bisect` skipped it.
    #[test]
    fn what_has_failed_is_a_verdict_though_all_that_follows_is_skipped() {
        let ok = || TestResult::ok(Vec::new());
        let failed = || TestResult::not_ok("it hung", Vec::new());
        let skipped = || TestResult::skipped("smp failed");
        assert_eq!(status(&[ok(), failed(), skipped()]).unwrap(), FAILED);
        assert_eq!(status(&[ok(), ok(), ok(), skipped()]).unwrap(), PASSED);
        assert_eq!(status(&[ok(), ok()]).unwrap(), PASSED, "no more was asked for");
        assert!(status(&[ok(), ok(), skipped(), skipped()]).is_err());
        assert!(status(&[ok(), skipped()]).is_err(), "the host took the time of smp");
    }
}
