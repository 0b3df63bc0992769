//! Lost wakeups: every halted waiter is woken, though kicks come late, twice, and for nothing.

use super::{PvLocks, Suite};
use crate::ktap::TestResult;
use base::backend::PvBackend;

pub(super) fn vmm(suite: &mut Suite<'_>) -> anyhow::Result<TestResult> {
    woken(
        suite,
        PvBackend::Vmm,
        Some("kick-delay:300us,kick-dup:0.1,spurious:0.1,halt-delay:100us"),
    )
}

pub(super) fn doorbell(suite: &mut Suite<'_>) -> anyhow::Result<TestResult> {
    woken(suite, PvBackend::Doorbell, Some("kick-delay:300us,kick-dup:0.1,spurious:0.1"))
}

/// KVM serves the calls itself, so nothing is injected: preemptions alone make kicks late.
pub(super) fn kvm(suite: &mut Suite<'_>) -> anyhow::Result<TestResult> {
    woken(suite, PvBackend::Kvm, None)
}

fn woken(suite: &mut Suite<'_>, pv: PvBackend, faults: Option<&str>) -> anyhow::Result<TestResult> {
    let locks = match suite.pv_locks() {
        Err(skipped) => return Ok(skipped),
        Ok(PvLocks::Queued) if pv != PvBackend::Kvm => {
            return Ok(TestResult::skipped(format!("the kernel has no backend {pv}")));
        }
        Ok(locks) => locks,
    };
    let mut boot = suite.overcommitted(pv, "rr");
    if let Some(faults) = faults {
        boot = boot.with("--fault", faults);
    }
    if locks == PvLocks::Ticket {
        // Waiters halt early, and so more often.
        boot = boot.append("pvticket_spin=64");
    }
    Ok(match suite.bench(boot, suite.load.long)? {
        Err(failure) => TestResult::failed(failure, Vec::new()),
        Ok(result) => {
            let mut notes = vec![format!("{:.0} additions/s, none lost", result.rate)];
            notes.extend(faults.map(|faults| format!("faults {faults}")));
            match result.fewest {
                0 => TestResult::late("a vCPU added nothing in the whole window", notes),
                _ => TestResult::ok(notes),
            }
        }
    })
}
