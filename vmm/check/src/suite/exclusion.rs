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
    excludes(suite, PvBackend::Off, "random", |_| Ok(None))
}

/// With PV, in turns that end anywhere.
pub(super) fn pv(suite: &mut Suite<'_>) -> anyhow::Result<TestResult> {
    match suite.pv_locks() {
        Err(skipped) => Ok(skipped),
        Ok(_) => excludes(suite, suite.backend(), "random", |_| Ok(None)),
    }
}

pub(super) fn preempted_holders(suite: &mut Suite<'_>) -> anyhow::Result<TestResult> {
    targeted(suite, "lhp:100,2ms", "a holder")
}

pub(super) fn preempted_waiters(suite: &mut Suite<'_>) -> anyhow::Result<TestResult> {
    targeted(suite, "lwp:100,2ms", "the next in line")
}

/// The schedule preempts whom the policy names, if the guest's telemetry tells; else it cannot be found.
fn targeted(suite: &mut Suite<'_>, policy: &str, target: &str) -> anyhow::Result<TestResult> {
    match suite.pv_locks() {
        Err(skipped) => return Ok(skipped),
        Ok(PvLocks::Ticket) => {}
        Ok(_) => {
            let why = format!("the kernel publishes no telemetry, by which {target} is found");
            return Ok(TestResult::skipped(why));
        }
    }
    excludes(suite, suite.backend(), policy, |result| match result.counted("injected") {
        0 => Err(format!("{target} was never found by the kernel's telemetry")),
        count => Ok(Some(format!("{count} preemptions of {target}, for 2 ms each"))),
    })
}

/// No addition is lost, which the benchmark itself checks, and `judge` finds nothing else wrong.
fn excludes(
    suite: &mut Suite<'_>,
    pv: PvBackend,
    policy: &str,
    judge: impl Fn(&BenchResult) -> Result<Option<String>, String>,
) -> anyhow::Result<TestResult> {
    let boot = suite.overcommitted(pv, policy);
    let result = match suite.bench(boot, suite.load.long)? {
        Err(why) => return Ok(TestResult::not_ok(why, Vec::new())),
        Ok(result) => result,
    };
    let rate = format!("{:.0} additions/s, none lost", result.rate);
    let mut notes = vec![rate, format!("{} preemptions", result.counted("preemptions"))];
    Ok(match judge(&result) {
        Err(why) => TestResult::not_ok(why, notes),
        Ok(note) => {
            notes.extend(note);
            TestResult::ok(notes)
        }
    })
}

/// A lock whose holder was away goes on when that is back.
pub(super) fn progress(suite: &mut Suite<'_>) -> anyhow::Result<TestResult> {
    let (policy, away) = match suite.pv {
        Some(PvLocks::Ticket) => (format!("lhp:10,{HOLD}"), format!("holders are away for {HOLD}")),
        _ => ("random".to_owned(), "turns end anywhere".to_owned()),
    };
    let boot = suite.overcommitted(suite.backend(), &policy);
    let result = match suite.bench(boot, suite.load.long)? {
        Ok(result) => result,
        Err(why) => return Ok(TestResult::not_ok(why, Vec::new())),
    };
    // Who starves gets the lock when the others stop: a short benchmark shows no longer wait.
    let stuck = STUCK.min(suite.load.long / 2);
    let longest = result.longest.as_secs_f64() * 1e3;
    let notes = vec![format!("the longest addition took {longest:.1} ms, while {away}")];
    Ok(match () {
        () if result.longest > stuck => {
            TestResult::not_ok(format!("more than {} s", stuck.as_secs_f64()), notes)
        }
        () if result.fewest == 0 && suite.pv_locks().is_ok() => {
            TestResult::not_ok("a vCPU added nothing in the whole window", notes)
        }
        () => TestResult::ok(notes),
    })
}
