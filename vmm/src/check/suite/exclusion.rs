//! Mutual exclusion and progress while holders and waiters are preempted.

use std::time::Duration;

use super::{PvLocks, Suite, bench::BenchResult};
use crate::check::ktap::TestResult;
use base::backend::PvBackend;

/// A vCPU that waits for the lock this long, while holders are preempted for [`HOLD`], is stuck.
const STUCK: Duration = Duration::from_secs(5);
/// Time for which a preempted holder has no CPU.
const HOLD: &str = "20ms";

/// Native locks, with slices of random length.
pub(super) fn native(suite: &mut Suite<'_>) -> anyhow::Result<TestResult> {
    let (_, notes) = excluding(suite, PvBackend::Off, "random")?;
    Ok(TestResult::ok(notes))
}

/// PV locks, with slices of random length.
pub(super) fn pv(suite: &mut Suite<'_>) -> anyhow::Result<TestResult> {
    suite.pv_locks()?;
    let (_, notes) = excluding(suite, suite.backend(), "random")?;
    Ok(TestResult::ok(notes))
}

/// The policy preempts its target, which it knows from the kernel's telemetry or by observation.
pub(super) fn targeted(
    suite: &mut Suite<'_>,
    policy: &str,
    target: &str,
) -> anyhow::Result<TestResult> {
    let locks = suite.pv_locks()?;
    let (result, mut notes) = excluding(suite, suite.backend(), policy)?;
    Ok(match result.counted("injected") {
        0 if locks == PvLocks::Ticket => {
            TestResult::late(format!("the kernel's telemetry never reported {target}"), notes)
        }
        0 => TestResult::skipped(format!("{target} was never observed")),
        count => {
            let guessed = result.guessed();
            notes.push(format!("{count} preemptions of {target}{guessed}, for 2 ms each"));
            TestResult::ok(notes)
        }
    })
}

/// Runs the benchmark, which fails if an addition is lost. Returns its result, and notes about it.
fn excluding(
    suite: &mut Suite<'_>,
    pv: PvBackend,
    policy: &str,
) -> anyhow::Result<(BenchResult, Vec<String>)> {
    let result = suite.bench(suite.overcommitted(pv, policy), suite.load.long)?;
    let rate = format!("{:.0} additions/s, none lost", result.rate);
    let notes = vec![rate, format!("{} preemptions", result.counted("preemptions"))];
    Ok((result, notes))
}

/// A lock makes progress after its preempted holder has returned.
pub(super) fn progress(suite: &mut Suite<'_>) -> anyhow::Result<TestResult> {
    let policy = match suite.pv {
        Some(PvLocks::Ticket | PvLocks::Queued) => format!("lhp:10,{HOLD}"),
        _ => "random".to_owned(),
    };
    let boot = suite.overcommitted(suite.backend(), &policy);
    let result = suite.bench(boot, suite.load.long)?;
    // A starved vCPU gets the lock when the others stop, so waits are limited by the benchmark's duration.
    let stuck = STUCK.min(suite.load.long / 2).as_secs_f64();
    let longest = result.longest * 1e3;
    let away = match result.counted("injected") {
        0 => "no holder was preempted".to_owned(),
        count => format!("{count} holders were preempted for {HOLD}{}", result.guessed()),
    };
    let notes = vec![format!("the longest addition took {longest:.1} ms, while {away}")];
    Ok(if result.longest > stuck {
        TestResult::late(format!("an addition took more than {stuck} s"), notes)
    } else if result.fewest == 0 && suite.pv_locks().is_ok() {
        TestResult::late("a vCPU added nothing in the whole window", notes)
    } else {
        TestResult::ok(notes)
    })
}
