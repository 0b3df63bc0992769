//! What each way to make handoffs cheaper is worth: the payload under blind preemption, and at 1x,
//! where it must cost nothing.

use std::time::Duration;

use super::{
    Comparison, Contender, Interrupt, LabError, LevelReport, Observer, PayloadCell, Plan, compare,
};
use crate::{
    guest::handoff::{HandoffError, HandoffSpec},
    sched::{PolicySpec, policy::DEFAULT_SLICE},
    units::{CpuList, UnitError, VcpuCount},
    vm::PvBackend,
};

/// Contention before the measurement.
const WARM_UP: Duration = Duration::from_millis(100);

/// How much it may be overcommitted.
const LEVELS: [u32; 2] = [1, 2];

/// The settings that are compared with none, on so many slots.
fn settings(slots: usize) -> Result<Vec<HandoffSpec>, HandoffError> {
    let queue = format!("queue:{slots}");
    ["none", "far:2", "adapt", "claim", "fuse", "claim+fuse", &queue]
        .iter()
        .map(|words| words.parse())
        .collect()
}

/// The comparison: every setting, and the native lock, under `rr`.
pub fn plan(cpus: &CpuList, rounds: u32, duration: Duration, seed: u64) -> Result<Plan, UnitError> {
    let slots = cpus.cpus().len();
    let rr = "rr".parse::<PolicySpec>().unwrap_or_else(|_| PolicySpec::host());
    let handoffs = settings(slots).unwrap_or_default();
    Ok(Plan {
        levels: LEVELS
            .iter()
            .map(|times| VcpuCount::try_from(times * slots as u32))
            .collect::<Result<_, _>>()?,
        cpus: cpus.clone(),
        runs: rounds,
        warm_up: WARM_UP,
        duration,
        contenders: Contender::all(&[rr], &[PvBackend::Off, PvBackend::Vmm], &handoffs),
        vms: 1,
        slots,
        slice: DEFAULT_SLICE,
        recording: None,
        record: false,
        trace: false,
        seed,
        faults: None,
    })
}

/// Carries it out.
pub fn run(
    plan: &Plan,
    interrupt: &Interrupt,
    observer: &mut dyn Observer,
) -> Result<Comparison, LabError> {
    compare::compare(plan, &PayloadCell::default(), interrupt, observer)
}

/// What a handoff through the VMM costs a slot at the least, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit {
    /// An exit and the entry after it.
    pub exit: f64,
    /// From one thread to another on the same CPU.
    pub switch: f64,
}

impl Limit {
    /// Handoffs a second on so many slots: each is a kick, a halt (in one exit, if `fused`) and a
    /// switch.
    pub fn handoffs(self, slots: usize, fused: bool) -> f64 {
        let exits = if fused { 1.0 } else { 2.0 };
        slots as f64 * 1e9 / (exits * self.exit + self.switch)
    }
}

/// Analyses the levels.
pub fn reports(plan: &Plan, comparison: &Comparison) -> Vec<LevelReport> {
    LevelReport::all(plan, &comparison.levels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_has_every_setting_once_and_the_native_lock() {
        let plan = plan(&"0-1".parse().unwrap(), 3, Duration::from_secs(1), 1).unwrap();
        assert_eq!(plan.contenders.len(), 8);
        assert_eq!(plan.contenders[0].backend, PvBackend::Off);
        assert!(plan.contenders.iter().all(|contender| contender.policy.name() == "rr"));
    }

    #[test]
    fn a_limit_is_what_slots_have_time_for() {
        let limit = Limit { exit: 30_000.0, switch: 2_000.0 };
        assert_eq!(limit.handoffs(2, true), 62_500.0);
        assert!(limit.handoffs(2, false) < limit.handoffs(2, true));
    }
}
