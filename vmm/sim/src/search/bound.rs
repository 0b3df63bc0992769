//! A lock's promised bounds on bypasses.

use simulated_locks::{Family, PvTicketLock, SmallPvTicketLock, System};

use super::Scenario;

/// Bounds on acquisitions by others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    /// For a waiter in line.
    pub(super) in_line: u64,
    /// For a throttled waiter, if there can be one.
    pub(super) throttled: Option<u64>,
}

impl Bounds {
    /// Returns `None` if there is no bound to check.
    pub(super) fn new(scenario: &Scenario) -> Option<Self> {
        let Scenario { system, vcpus, .. } = *scenario;
        match system.family() {
            Family::Spinlock => {}
            // With caches, a lockref's operations rarely take its lock, and do not report it.
            Family::Lockref if !scenario.law.has_caches() => {}
            _ => return None,
        }
        let cpus = u32::try_from(vcpus).ok()?;
        let in_line = system.bypass()?.bound(cpus)?.into();
        let handoff = scenario.handoff();
        // With too few CPUs or preemption, the others may be stopped with a kick unsent.
        let is_steady = matches!(scenario.policy.name(), "rr" | "random");
        let can_be_stopped = scenario.cpus < vcpus || scenario.noise.is_some() || !is_steady;
        let stopped = if can_be_stopped { cpus.saturating_sub(2) } else { 0 };
        let throttled = match system {
            _ if handoff.restrict != 0 => {
                handoff.restricted_bypasses(system.bypass()?, cpus, stopped)
            }
            _ if handoff.queue == 0 => None,
            System::PvTicket => Some(handoff.bypasses::<PvTicketLock>(cpus, stopped)),
            System::SmallPvTicket => Some(handoff.bypasses::<SmallPvTicketLock>(cpus, stopped)),
            _ => None,
        };
        Some(Self { in_line, throttled: throttled.map(u64::from) })
    }
}
