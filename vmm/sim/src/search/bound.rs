//! The bounds that a lock promises to its waiters.

use simulated_locks::{Family, PvTicketLock, SmallPvTicketLock, System};

use super::Scenario;

/// Bounds on acquisitions by others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    /// For a waiter in line.
    pub(super) in_line: u64,
    /// For one outside of a limited queue, if there can be one.
    pub(super) outside: Option<u64>,
}

impl Bounds {
    /// None: the lock promises nothing, by design.
    pub(super) fn of(scenario: &Scenario) -> Option<Self> {
        let Scenario { system, vcpus, .. } = *scenario;
        // A lockref's lock has a bound, but its operations seldom take it, and do not say so.
        if system.family() != Family::Spinlock {
            return None;
        }
        let cpus = u32::try_from(vcpus).ok()?;
        let in_line = system.bypass()?.most(cpus)?.into();
        let handoff = scenario.handoff();
        // A policy may take the CPU of any that has a kick to send.
        let stopped = cpus.saturating_sub(2);
        let outside = match system {
            _ if handoff.queue == 0 => None,
            System::PvTicket => Some(handoff.bypasses::<PvTicketLock>(cpus, stopped)),
            System::SmallPvTicket => Some(handoff.bypasses::<SmallPvTicketLock>(cpus, stopped)),
            _ => None,
        };
        Some(Self { in_line, outside: outside.map(u64::from) })
    }
}
