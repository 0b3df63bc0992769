//! Mutual exclusion, and progress, while holders and waiters are preempted.

use std::time::Duration;

use super::{PvLocks, Suite, bench::BenchResult};
use crate::ktap::TestResult;
use base::backend::PvBackend;

/// A vCPU that has not got the lock for this long, behind a holder that was away for [`HOLD`], is stuck.
const STUCK: Duration = Duration::from_secs(5);
/// How long a preempted holder stays away.
const HOLD: &str = "20ms";

/// Without PV, in turns that end anywhere.
pub(super) fn native(suite: &mut Suite<'_>) -> anyhow::Result<TestResult> {
    excludes(suite, PvBackend::Off, "random", |_, notes| TestResult::ok(notes))
}

/// With PV, in turns that end anywhere.
pub(super) fn pv(suite: &mut Suite<'_>) -> anyhow::Result<TestResult> {
    match suite.pv_locks() {
        Err(skipped) => Ok(skipped),
        Ok(_) => excludes(suite, suite.backend(), "random", |_, notes| TestResult::ok(notes)),
    }
}

pub(super) fn preempted_holders(suite: &mut Suite<'_>) -> anyhow::Result<TestResult> {
    targeted(suite, "lhp:100,2ms", "a holder")
}

pub(super) fn preempted_waiters(suite: &mut Suite<'_>) -> anyhow::Result<TestResult> {
    targeted(suite, "lwp:100,2ms", "the next in line")
}

/// The schedule preempts whom the policy names, as the kernel's telemetry tells, or as far as it can be observed.
fn targeted(suite: &mut Suite<'_>, policy: &str, target: &str) -> anyhow::Result<TestResult> {
    let locks = match suite.pv_locks() {
        Err(skipped) => return Ok(skipped),
        Ok(locks) => locks,
    };
    excludes(suite, suite.backend(), policy, |result, mut notes| match result.counted("injected") {
        0 if locks == PvLocks::Ticket => {
            TestResult::late(format!("{target} was never found by the kernel's telemetry"), notes)
        }
        0 => TestResult::skipped(format!("{target} was never found")),
        count => {
            let guessed = result.guessed();
            notes.push(format!("{count} preemptions of {target}{guessed}, for 2 ms each"));
            TestResult::ok(notes)
        }
    })
}

/// No addition is lost, which the benchmark itself checks, and `judge` finds nothing else wrong.
fn excludes(
    suite: &mut Suite<'_>,
    pv: PvBackend,
    policy: &str,
    judge: impl Fn(&BenchResult, Vec<String>) -> TestResult,
) -> anyhow::Result<TestResult> {
    let boot = suite.overcommitted(pv, policy);
    Ok(match suite.bench(boot, suite.load.long)? {
        Err(failure) => TestResult::failed(failure, Vec::new()),
        Ok(result) => {
            let rate = format!("{:.0} additions/s, none lost", result.rate);
            let notes = vec![rate, format!("{} preemptions", result.counted("preemptions"))];
            judge(&result, notes)
        }
    })
}

/// A lock whose holder was away goes on when that is back.
pub(super) fn progress(suite: &mut Suite<'_>) -> anyhow::Result<TestResult> {
    let policy = match suite.pv {
        Some(PvLocks::Ticket | PvLocks::Queued) => format!("lhp:10,{HOLD}"),
        _ => "random".to_owned(),
    };
    let boot = suite.overcommitted(suite.backend(), &policy);
    let result = match suite.bench(boot, suite.load.long)? {
        Ok(result) => result,
        Err(failure) => return Ok(TestResult::failed(failure, Vec::new())),
    };
    // Who starves gets the lock when the others stop: a short benchmark shows no longer wait.
    let stuck = STUCK.min(suite.load.long / 2);
    let longest = result.longest.as_secs_f64() * 1e3;
    let away = match result.counted("injected") {
        0 => "no holder was found to be kept away".to_owned(),
        count => format!("{count} holders were away for {HOLD}{}", result.guessed()),
    };
    let notes = vec![format!("the longest addition took {longest:.1} ms, while {away}")];
    Ok(if result.longest > stuck {
        TestResult::late(format!("more than {} s", stuck.as_secs_f64()), notes)
    } else if result.fewest == 0 && suite.pv_locks().is_ok() {
        TestResult::late("a vCPU added nothing in the whole window", notes)
    } else {
        TestResult::ok(notes)
    })
}
