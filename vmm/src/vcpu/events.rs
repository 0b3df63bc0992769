//! The last things that each vCPU did, for who looks into why it does nothing more.

use std::{
    fmt::{self, Write},
    sync::atomic::{
        AtomicU32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use hypercalls::latch::Kick;

use crate::{
    clock::Moment,
    kvm::sys::tsc,
    units::{Nanos, Ticket, VcpuId},
};

/// Events that a ring shows.
const KEPT: u32 = 64;
/// Events that it has room for: so many more may be written while it is read.
const PLACES: u32 = 2 * KEPT;

/// What became of a kick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Outcome {
    /// Its target was parked, and is woken.
    Woke,
    /// It stays pending.
    LeftPending,
    /// It joined a pending one.
    Coalesced,
    /// An MSI carries it.
    Sent,
    /// It was not delivered, on purpose.
    Dropped,
    /// It is delivered later, on purpose.
    Delayed,
}

impl From<Kick> for Outcome {
    fn from(kick: Kick) -> Self {
        match kick {
            Kick::Wake => Outcome::Woke,
            Kick::LeftPending => Outcome::LeftPending,
            Kick::Coalesced => Outcome::Coalesced,
        }
    }
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

/// One thing that a vCPU did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It parks, for this ticket.
    Parks(Ticket),
    /// It goes on.
    GoesOn,
    /// It did not park: a kick was pending.
    FoundKick(Ticket),
    /// It did not park, on purpose.
    Spurious(Ticket),
    /// It kicked that vCPU.
    Kicks(VcpuId, Outcome),
    /// It woke that vCPU for nothing, on purpose.
    Strays(VcpuId, Outcome),
    /// It is done, with this status.
    Done(u32),
}

impl Event {
    /// In one word: the kind, what became of it, the number.
    fn word(self) -> u64 {
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

    fn parse(word: u64) -> Option<Self> {
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
            Outcome::Coalesced => "joined a pending one",
            Outcome::Sent => "sent to KVM",
            Outcome::Dropped => "fault, dropped",
            Outcome::Delayed => "fault, delayed",
        })
    }
}

/// The last events of one thread, which alone writes: two stores, a counter's and a reading of
/// the time stamp counter.
#[derive(Debug)]
#[repr(align(128))]
pub struct Ring {
    places: [(AtomicU64, AtomicU64); PLACES as usize],
    written: AtomicU32,
}

impl Default for Ring {
    fn default() -> Self {
        Self {
            places: [const { (AtomicU64::new(0), AtomicU64::new(0)) }; PLACES as usize],
            written: AtomicU32::new(0),
        }
    }
}

impl Ring {
    /// Owner: this happens.
    pub fn add(&self, event: Event) {
        let written = self.written.load(Relaxed);
        let (time, word) = &self.places[(written % PLACES) as usize];
        time.store(tsc::read(), Relaxed);
        word.store(event.word(), Relaxed);
        self.written.store(written.wrapping_add(1), Release);
    }

    /// Has nothing happened yet?
    pub fn is_empty(&self) -> bool {
        self.written.load(Relaxed) == 0
    }

    /// Anyone: what it holds, newest last, with the readings of the time stamp counter. What is
    /// written over meanwhile is left out.
    fn read(&self) -> Vec<(u64, Event)> {
        let written = self.written.load(Acquire);
        let places = (0..written.min(KEPT)).rev().map(|back| {
            let number = written.wrapping_sub(back + 1);
            let (time, word) = &self.places[(number % PLACES) as usize];
            (number, time.load(Relaxed), word.load(Relaxed))
        });
        let places: Vec<_> = places.collect();
        // The place after the last may be being written.
        let next = self.written.load(Acquire);
        let is_whole = |number: u32| next.wrapping_sub(number) < PLACES;
        let whole = places.into_iter().filter(|(number, ..)| is_whole(*number));
        whole.filter_map(|(_, time, word)| Some((time, Event::parse(word)?))).collect()
    }
}

/// When the rings began, by two clocks.
#[derive(Debug, Clone, Copy)]
pub struct Began {
    ticks: u64,
    at: Moment,
}

impl Began {
    /// Now.
    pub fn now() -> Self {
        Self { ticks: tsc::read(), at: Moment::now() }
    }

    /// The events of `ring`, a line each, newest last, under a heading of whose they are.
    pub fn write(self, text: &mut String, whose: &dyn fmt::Display, ring: &Ring) {
        let now = Self::now();
        let events = ring.read();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{whose}: last {} events", events.len());
        for (ticks, event) in events {
            let ago = self.nanos(now, now.ticks.saturating_sub(ticks));
            let _ = writeln!(text, "  {:>11.6} s ago  {event}", ago.seconds());
        }
    }

    /// How long so many ticks are, by what passed since the beginning.
    fn nanos(self, now: Self, ticks: u64) -> Nanos {
        let all = u128::from(now.ticks.saturating_sub(self.ticks).max(1));
        let nanos = u128::from(ticks) * u128::from(now.at.since(self.at).0) / all;
        Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
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

    #[test]
    fn a_ring_keeps_the_last_ones_in_order() {
        let ring = Ring::default();
        assert!(ring.read().is_empty());
        (0..10).for_each(|n| ring.add(Event::Parks(Ticket(n))));
        let tickets = |ring: &Ring| -> Vec<u32> {
            let events = ring.read().into_iter();
            events.map(|(_, event)| (event.word() >> 32) as u32).collect()
        };
        assert_eq!(tickets(&ring), (0..10).collect::<Vec<_>>());
        (10..200).for_each(|n| ring.add(Event::Parks(Ticket(n))));
        assert_eq!(tickets(&ring), (136..200).collect::<Vec<_>>());
    }

    #[test]
    fn a_ring_prints_newest_last() {
        let (began, ring) = (Began::now(), Ring::default());
        ring.add(Event::Parks(Ticket(42)));
        ring.add(Event::Kicks(VcpuId(3), Outcome::Dropped));
        let mut text = String::new();
        began.write(&mut text, &VcpuId(1), &ring);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "vCPU 1: last 2 events");
        assert!(lines[1].ends_with(" s ago  halts for ticket 42"), "{text}");
        assert!(lines[2].ends_with(" s ago  kicks vCPU 3: fault, dropped"), "{text}");
    }
}
