//! Lost wakeups: every halted waiter wakes up although kicks are late, duplicate or spurious.

use super::{PvLocks, Suite};
use crate::check::ktap::TestResult;
use base::backend::PvBackend;

/// Late, duplicate and spurious kicks.
pub(super) const KICKS: &str = "kick-delay:300us,kick-dup:0.1,spurious:0.1";
/// Late halts in addition.
pub(super) const KICKS_AND_HALTS: &str =
    "kick-delay:300us,kick-dup:0.1,spurious:0.1,halt-delay:100us";

/// Tests one backend. KVM serves the hypercalls itself, without faults: only preemptions delay kicks.
pub(super) fn wakeup(
    suite: &mut Suite<'_>,
    pv: PvBackend,
    faults: Option<&str>,
) -> anyhow::Result<TestResult> {
    let locks = suite.pv_locks()?;
    if locks == PvLocks::Queued && pv != PvBackend::Kvm {
        return Ok(TestResult::skipped(format!("the kernel does not support the backend {pv}")));
    }
    let mut boot = suite.overcommitted(pv, "rr");
    if let Some(faults) = faults {
        boot = boot.option("--fault", faults);
    }
    if locks == PvLocks::Ticket {
        // Waiters halt earlier and so more often.
        boot = boot.append("pvticket_spin=64");
    }
    let result = suite.bench(boot, suite.load.long)?;
    let mut notes = vec![format!("{:.0} additions/s, none lost", result.rate)];
    notes.extend(faults.map(|faults| format!("faults {faults}")));
    Ok(match result.fewest {
        0 => TestResult::timed_out("a vCPU made no addition in the window", notes),
        _ => TestResult::ok(notes),
    })
}
