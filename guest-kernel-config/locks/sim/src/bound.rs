//! The bounds that a lock's documentation promises to waiters.

use std::fmt;

use locks::{Bypass, PvTicketLock, SmallPvTicketLock, System};

use crate::Case;
use crate::waits::Bypassed;

/// Where the count of acquisitions by others begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// The waiter's first step in `lock`.
    Call,
    /// The waiter is in line.
    Line,
    /// The waiter is outside of the queue. What others acquire from the kick that lets it in until
    /// it has its ticket does not count.
    Outside,
}

/// A promise of a lock: at most this many acquisitions by others before a waiter's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BypassBound {
    /// The number of acquisitions.
    pub most: u64,
    /// Where the count begins.
    pub since: Since,
}

impl BypassBound {
    /// The part of `counted` that this bound is about.
    pub fn of(self, counted: Bypassed) -> u64 {
        match self.since {
            Since::Call => counted.from_call,
            Since::Line => counted.in_line,
            Since::Outside => counted.outside,
        }
    }

    /// Is `counted` within the bound?
    pub fn holds(self, counted: Bypassed) -> bool {
        self.of(counted) <= self.most
    }
}

impl Case {
    /// The bounds that its lock promises; empty if it is unbounded by design.
    pub fn bounds(&self) -> Vec<BypassBound> {
        let cpus = u32::try_from(self.vcpus).unwrap_or(u32::MAX);
        let Some(bypass) = self.system.bypass() else { return Vec::new() };
        let Some(others) = bypass.most(cpus) else { return Vec::new() };
        let since = match (bypass, self.most_outside(cpus)) {
            (Bypass::FromQueue, _) | (_, Some(_)) => Since::Line,
            (Bypass::FromCall | Bypass::Unbounded, None) => Since::Call,
        };
        let outside = self.most_outside(cpus).map(|most| (most, Since::Outside));
        let bounds = [Some((others, since)), outside].into_iter().flatten();
        bounds.map(|(most, since)| BypassBound { most: most.into(), since }).collect()
    }

    /// The bound for vCPUs outside, if the queue is limited.
    fn most_outside(&self, cpus: u32) -> Option<u32> {
        // Where pCPUs are short, each of the others may be preempted with a kick unsent.
        let is_short = self.machine.pcpus < self.vcpus + self.machine.strangers;
        let stopped = if is_short { cpus.saturating_sub(2) } else { 0 };
        match self.system {
            _ if self.handoff.queue == 0 => None,
            System::PvTicket => Some(self.handoff.bypasses::<PvTicketLock>(cpus, stopped)),
            System::SmallPvTicket => {
                Some(self.handoff.bypasses::<SmallPvTicketLock>(cpus, stopped))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Since {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Call => "call",
            Self::Line => "line",
            Self::Outside => "outside",
        })
    }
}
