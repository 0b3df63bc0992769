//! Halt and kick events of vCPUs, for diagnosing stuck vCPUs and for traces.

use std::fmt;

use crate::units::{Ticket, VcpuId};

/// Outcome of a kick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum KickOutcome {
    /// The target was parked and has been woken.
    Woke,
    /// The kick stays pending.
    LeftPending,
    /// Merged with a pending kick.
    Coalesced,
    /// Sent as an MSI.
    Sent,
    /// Dropped by an injected fault.
    Dropped,
    /// Delayed by an injected fault.
    Delayed,
}

impl KickOutcome {
    const ALL: [KickOutcome; 6] = [
        KickOutcome::Woke,
        KickOutcome::LeftPending,
        KickOutcome::Coalesced,
        KickOutcome::Sent,
        KickOutcome::Dropped,
        KickOutcome::Delayed,
    ];
}

/// One event of a vCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VcpuEvent {
    /// Parks to wait for this ticket.
    Parks(Ticket),
    /// Resumes after a park.
    Resumes,
    /// Did not park because a kick was pending.
    KickPending(Ticket),
    /// Did not park because of an injected fault.
    Spurious(Ticket),
    /// Kicked the vCPU with this id.
    Kicks(VcpuId, KickOutcome),
    /// Spuriously woke the vCPU with this id because of an injected fault.
    WakesOther(VcpuId, KickOutcome),
    /// Done, with this status.
    Done(u32),
}

impl VcpuEvent {
    /// Encodes kind, outcome and number in one word.
    pub fn encode(self) -> u64 {
        let (kind, outcome, number) = match self {
            VcpuEvent::Parks(Ticket(ticket)) => (1, 0, ticket),
            VcpuEvent::Resumes => (2, 0, 0),
            VcpuEvent::KickPending(Ticket(ticket)) => (3, 0, ticket),
            VcpuEvent::Spurious(Ticket(ticket)) => (4, 0, ticket),
            VcpuEvent::Kicks(VcpuId(id), outcome) => (5, outcome as u64, id),
            VcpuEvent::WakesOther(VcpuId(id), outcome) => (6, outcome as u64, id),
            VcpuEvent::Done(status) => (7, 0, status),
        };
        kind | outcome << 8 | u64::from(number) << 32
    }

    /// Decodes a word of [`encode`](Self::encode); None if it is invalid.
    pub fn parse(word: u64) -> Option<Self> {
        let number = (word >> 32) as u32;
        let outcome = || KickOutcome::ALL.get((word >> 8 & 0xff) as usize).copied();
        Some(match word & 0xff {
            1 => VcpuEvent::Parks(Ticket(number)),
            2 => VcpuEvent::Resumes,
            3 => VcpuEvent::KickPending(Ticket(number)),
            4 => VcpuEvent::Spurious(Ticket(number)),
            5 => VcpuEvent::Kicks(VcpuId(number), outcome()?),
            6 => VcpuEvent::WakesOther(VcpuId(number), outcome()?),
            7 => VcpuEvent::Done(number),
            _ => return None,
        })
    }
}

impl fmt::Display for VcpuEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VcpuEvent::Parks(ticket) => write!(f, "halts for ticket {ticket}"),
            VcpuEvent::Resumes => write!(f, "resumes"),
            VcpuEvent::KickPending(ticket) => {
                write!(f, "would halt for ticket {ticket}: a kick was pending")
            }
            VcpuEvent::Spurious(ticket) => {
                write!(f, "would halt for ticket {ticket}: fault, returns at once")
            }
            VcpuEvent::Kicks(target, outcome) => write!(f, "kicks {target}: {outcome}"),
            VcpuEvent::WakesOther(target, outcome) => write!(f, "fault, wakes {target}: {outcome}"),
            VcpuEvent::Done(status) => write!(f, "is done, status {status}"),
        }
    }
}

impl fmt::Display for KickOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KickOutcome::Woke => "woke it",
            KickOutcome::LeftPending => "left pending",
            KickOutcome::Coalesced => "merged with a pending kick",
            KickOutcome::Sent => "sent to KVM",
            KickOutcome::Dropped => "fault, dropped",
            KickOutcome::Delayed => "fault, delayed",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_round_trip() {
        let mut events = vec![
            VcpuEvent::Parks(Ticket(0xfffe)),
            VcpuEvent::Resumes,
            VcpuEvent::KickPending(Ticket(u32::MAX)),
            VcpuEvent::Spurious(Ticket(2)),
            VcpuEvent::Done(1),
        ];
        events.extend(KickOutcome::ALL.map(|outcome| VcpuEvent::Kicks(VcpuId(127), outcome)));
        events.extend(KickOutcome::ALL.map(|outcome| VcpuEvent::WakesOther(VcpuId(0), outcome)));
        for event in events {
            assert_eq!(VcpuEvent::parse(event.encode()), Some(event));
        }
        assert_eq!(VcpuEvent::parse(0), None);
        assert_eq!(VcpuEvent::parse(5 | 77 << 8), None);
    }
}
