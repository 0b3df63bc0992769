//! What vCPUs do about halts and kicks: for the diagnosis of stuck vCPUs, and for traces.

use std::fmt;

use crate::units::{Ticket, VcpuId};

/// What happened to a kick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Outcome {
    /// The target was parked and is woken.
    Woke,
    /// Stays pending.
    LeftPending,
    /// Merged with a pending one.
    Coalesced,
    /// Sent as an MSI.
    Sent,
    /// Not delivered, an injected fault.
    Dropped,
    /// Delivered later, an injected fault.
    Delayed,
}

impl Outcome {
    const ALL: [Outcome; 6] = [
        Outcome::Woke,
        Outcome::LeftPending,
        Outcome::Coalesced,
        Outcome::Sent,
        Outcome::Dropped,
        Outcome::Delayed,
    ];
}

/// One event of a vCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Parks for this ticket.
    Parks(Ticket),
    /// The thread resumes after a park.
    GoesOn,
    /// Did not park: a kick was pending.
    FoundKick(Ticket),
    /// Did not park, an injected fault.
    Spurious(Ticket),
    /// Kicked this vCPU.
    Kicks(VcpuId, Outcome),
    /// Woke this vCPU without reason, an injected fault.
    Strays(VcpuId, Outcome),
    /// Done, with this status.
    Done(u32),
}

impl Event {
    /// Encodes kind, outcome and number in one word.
    pub fn word(self) -> u64 {
        let (kind, outcome, number) = match self {
            Event::Parks(Ticket(ticket)) => (1, 0, ticket),
            Event::GoesOn => (2, 0, 0),
            Event::FoundKick(Ticket(ticket)) => (3, 0, ticket),
            Event::Spurious(Ticket(ticket)) => (4, 0, ticket),
            Event::Kicks(VcpuId(id), outcome) => (5, outcome as u64, id),
            Event::Strays(VcpuId(id), outcome) => (6, outcome as u64, id),
            Event::Done(status) => (7, 0, status),
        };
        kind | outcome << 8 | u64::from(number) << 32
    }

    /// Decodes such a word; None if it is not one.
    pub fn parse(word: u64) -> Option<Self> {
        let number = (word >> 32) as u32;
        let outcome = || Outcome::ALL.get((word >> 8 & 0xff) as usize).copied();
        Some(match word & 0xff {
            1 => Event::Parks(Ticket(number)),
            2 => Event::GoesOn,
            3 => Event::FoundKick(Ticket(number)),
            4 => Event::Spurious(Ticket(number)),
            5 => Event::Kicks(VcpuId(number), outcome()?),
            6 => Event::Strays(VcpuId(number), outcome()?),
            7 => Event::Done(number),
            _ => return None,
        })
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Parks(ticket) => write!(f, "halts for ticket {ticket}"),
            Event::GoesOn => write!(f, "goes on"),
            Event::FoundKick(ticket) => {
                write!(f, "would halt for ticket {ticket}: a kick was pending")
            }
            Event::Spurious(ticket) => {
                write!(f, "would halt for ticket {ticket}: fault, returns at once")
            }
            Event::Kicks(target, outcome) => write!(f, "kicks {target}: {outcome}"),
            Event::Strays(target, outcome) => write!(f, "fault, wakes {target} too: {outcome}"),
            Event::Done(status) => write!(f, "is done, status {status}"),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outcome::Woke => "woke it",
            Outcome::LeftPending => "left pending",
            Outcome::Coalesced => "merged with a pending one",
            Outcome::Sent => "sent to KVM",
            Outcome::Dropped => "fault, dropped",
            Outcome::Delayed => "fault, delayed",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_travel_through_words() {
        let mut events = vec![
            Event::Parks(Ticket(0xfffe)),
            Event::GoesOn,
            Event::FoundKick(Ticket(u32::MAX)),
            Event::Spurious(Ticket(2)),
            Event::Done(1),
        ];
        events.extend(Outcome::ALL.map(|outcome| Event::Kicks(VcpuId(127), outcome)));
        events.extend(Outcome::ALL.map(|outcome| Event::Strays(VcpuId(0), outcome)));
        for event in events {
            assert_eq!(Event::parse(event.word()), Some(event));
        }
        assert_eq!(Event::parse(0), None);
        assert_eq!(Event::parse(5 | 77 << 8), None);
    }
}
