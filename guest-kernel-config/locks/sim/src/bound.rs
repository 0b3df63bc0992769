//! What a lock's documentation promises to whoever waits.

use std::fmt;

use locks::{Bypass, System};

use crate::Case;
use crate::waits::Bypassed;

/// From when acquisitions by others count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// The waiter's first step in `lock`.
    Call,
    /// The waiter is in line.
    Line,
    /// As `Call`, but for the time from a kick that lets it into the queue to its ticket.
    Kept,
}

/// The most acquisitions by others that a lock promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// So many.
    pub most: u64,
    /// Counted so.
    pub since: Since,
}

impl Bound {
    /// What `counted` has come to by this bound's rule.
    pub fn of(self, counted: Bypassed) -> u64 {
        match self.since {
            Since::Call => counted.from_call,
            Since::Line => counted.in_line,
            Since::Kept => counted.while_kept,
        }
    }

    /// Does `counted` keep it?
    pub fn holds(self, counted: Bypassed) -> bool {
        self.of(counted) <= self.most
    }
}

impl Case {
    /// The bound that its lock promises; `None`: it promises none, by design.
    pub fn bound(&self) -> Option<Bound> {
        let cpus = u32::try_from(self.vcpus).ok()?;
        let bypass = self.system.bypass()?;
        if self.has_outsiders() {
            return None;
        }
        let since = match bypass {
            Bypass::FromCall => Since::Call,
            Bypass::FromQueue => Since::Line,
            Bypass::Unbounded => return None,
        };
        Some(Bound { most: bypass.most(cpus)?.into(), since })
    }

    /// May vCPUs be kept outside of the queue?
    fn has_outsiders(&self) -> bool {
        let has_queue = matches!(self.system, System::PvTicket | System::SmallPvTicket);
        has_queue && self.handoff.queue != 0
    }
}

impl fmt::Display for Since {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Call => "call",
            Self::Line => "line",
            Self::Kept => "kept",
        })
    }
}
