//! A lock's promised bounds on bypasses.

use simulated_locks::{Bypass, Family, PvTicketLock, SmallPvTicketLock, System};

use super::Scenario;

/// Bounds on acquisitions by others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    /// For a waiter in line; `None` if it may be passed any number of times, at least while it does not run.
    pub(super) in_line: Option<u64>,
    /// For a waiter in line that runs and does not yield.
    pub(super) running: Option<u64>,
    /// For the head of a queue while it spins.
    pub(super) as_head: Option<u64>,
    /// For a throttled waiter, if there can be one.
    pub(super) throttled: Option<u64>,
}

impl Bounds {
    /// The bounds to check.
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self::promised(scenario).unwrap_or_default()
    }

    fn promised(scenario: &Scenario) -> Option<Self> {
        let Scenario { system, vcpus, .. } = *scenario;
        match system.family() {
            Family::Spinlock => {}
            // With caches, a lockref's operations rarely take its lock, and do not report it.
            Family::Lockref if !scenario.law.has_caches() => {}
            _ => return None,
        }
        let cpus = u32::try_from(vcpus).ok()?;
        let bypass = system.bypass()?;
        let in_line = bypass.bound(cpus).map(u64::from);
        // Under other laws an access of a running waiter may take as long as a slice, and noise is like a preemption.
        let is_prompt = scenario.law.has_caches() && scenario.noise.is_none();
        let running = (bypass == Bypass::WhileRunning && is_prompt).then(|| u64::from(cpus) - 1);
        let as_head = (bypass == Bypass::WhileHead).then_some(1);
        let handoff = scenario.handoff();
        // With too few CPUs or preemption, the others may be stopped with a kick unsent.
        let is_steady = matches!(scenario.policy.name(), "rr" | "random");
        let can_be_stopped = scenario.cpus < vcpus || scenario.noise.is_some() || !is_steady;
        let stopped = if can_be_stopped { cpus.saturating_sub(2) } else { 0 };
        let throttled = match system {
            _ if handoff.restrict != 0 => handoff.restricted_bypasses(bypass, cpus, stopped),
            _ if handoff.queue == 0 => None,
            System::PvTicket => Some(handoff.bypasses::<PvTicketLock>(cpus, stopped)),
            System::SmallPvTicket => Some(handoff.bypasses::<SmallPvTicketLock>(cpus, stopped)),
            _ => None,
        };
        Some(Self { in_line, running, as_head, throttled: throttled.map(u64::from) })
    }
}
