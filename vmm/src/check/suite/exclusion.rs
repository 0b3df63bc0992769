//! Mutual exclusion and progress while holders and waiters are preempted.

use std::time::Duration;

use super::{PvLocks, Suite, bench::BenchResult};
use crate::check::ktap::TestResult;
use base::backend::PvBackend;

/// A vCPU that waits for the lock this long, while holders are preempted for [`HOLD`], is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(5);
/// Time for which a preempted holder has no CPU.
const HOLD: &str = "20ms";

/// Native locks, with slices of random length.
pub(super) fn native(suite: &mut Suite<'_>) -> anyhow::Result<TestResult> {
    let (_, notes) = run_exclusion(suite, PvBackend::Off, "random")?;
    Ok(TestResult::ok(notes))
}

/// PV locks, with slices of random length.
pub(super) fn pv(suite: &mut Suite<'_>) -> anyhow::Result<TestResult> {
    suite.pv_locks()?;
    let (_, notes) = run_exclusion(suite, suite.backend(), "random")?;
    Ok(TestResult::ok(notes))
}

/// The policy preempts its target, which it knows from the kernel's telemetry or by observation.
pub(super) fn targeted(
    suite: &mut Suite<'_>,
    policy: &str,
    target: &str,
) -> anyhow::Result<TestResult> {
    let locks = suite.pv_locks()?;
    let (result, mut notes) = run_exclusion(suite, suite.backend(), policy)?;
    Ok(match result.count("injected") {
        0 if locks == PvLocks::Ticket => {
            TestResult::timed_out(format!("the kernel's telemetry never reported {target}"), notes)
        }
        0 => TestResult::skipped(format!("{target} was never observed")),
        count => {
            let note = result.guess_note();
            notes.push(format!("{count} preemptions of {target}{note}, for 2 ms each"));
            TestResult::ok(notes)
        }
    })
}

/// Runs the benchmark, which fails if an addition is lost. Returns its result, and notes about it.
fn run_exclusion(
    suite: &mut Suite<'_>,
    pv: PvBackend,
    policy: &str,
) -> anyhow::Result<(BenchResult, Vec<String>)> {
    let result = suite.bench(suite.overcommitted(pv, policy), suite.load.long)?;
    let rate = format!("{:.0} additions/s, none lost", result.rate);
    let notes = vec![rate, format!("{} preemptions", result.count("preemptions"))];
    Ok((result, notes))
}

/// A lock makes progress after its preempted holder is scheduled in.
pub(super) fn progress(suite: &mut Suite<'_>) -> anyhow::Result<TestResult> {
    let policy = match suite.pv {
        Some(PvLocks::Ticket | PvLocks::Queued) => format!("lhp:10,{HOLD}"),
        _ => "random".to_owned(),
    };
    let boot = suite.overcommitted(suite.backend(), &policy);
    let result = suite.bench(boot, suite.load.long)?;
    // A starved vCPU gets the lock when the others stop, so waits are limited by the benchmark's duration.
    let stuck = STUCK_AFTER.min(suite.load.long / 2).as_secs_f64();
    let longest = result.longest * 1e3;
    let preempted = match result.count("injected") {
        0 => "no holder was preempted".to_owned(),
        count => format!("{count} holders were preempted for {HOLD}{}", result.guess_note()),
    };
    let notes = vec![format!("the longest addition took {longest:.1} ms, while {preempted}")];
    Ok(if result.longest > stuck {
        TestResult::timed_out(format!("an addition took more than {stuck} s"), notes)
    } else if result.fewest == 0 && suite.pv_locks().is_ok() {
        TestResult::timed_out("a vCPU made no addition in the window", notes)
    } else {
        TestResult::ok(notes)
    })
}
