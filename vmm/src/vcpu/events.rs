//! The last things that each vCPU did, for who looks into why it does nothing more, and for traces.

use std::{
    fmt::{self, Write},
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use hypercalls::latch::Kick;

use crate::{
    clock::Moment,
    kvm::sys::tsc,
    units::{Nanos, Ticket, VcpuId},
};

/// Events that a ring shows of a vCPU that does nothing more.
const KEPT: u64 = 64;
/// Events that a ring has room for where nobody traces: so many more may be written while those
/// are read.
const PLACES: usize = 2 * KEPT as usize;
/// Events of all the vCPUs of a traced machine, of 16 bytes each: a second of 2 million.
const TRACED_PLACES: usize = 2 << 20;
/// Of one of them at least.
const TRACED_LEAST: usize = 1 << 14;
/// Readings of both clocks, of which the one counts that nothing came between.
const READINGS: usize = 16;

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
/// the time stamp counter. Its room is made, and touched, before the thread starts.
#[derive(Debug)]
#[repr(align(128))]
pub struct Ring {
    /// A power of two.
    places: Box<[(AtomicU64, AtomicU64)]>,
    written: AtomicU64,
}

impl Default for Ring {
    fn default() -> Self {
        Self::of(PLACES)
    }
}

impl Ring {
    fn of(places: usize) -> Self {
        let place = || (AtomicU64::new(0), AtomicU64::new(0));
        Self { places: (0..places).map(|_| place()).collect(), written: AtomicU64::new(0) }
    }

    /// One of `vcpus` whose events are traced.
    pub fn traced(vcpus: usize) -> Self {
        let share = TRACED_PLACES / vcpus.max(1).next_power_of_two();
        Self::of(share.max(TRACED_LEAST))
    }

    fn place(&self, number: u64) -> &(AtomicU64, AtomicU64) {
        // The mask is below their number, which is a power of two.
        &self.places[number as usize & (self.places.len() - 1)]
    }

    /// Owner: this happens.
    pub fn add(&self, event: Event) {
        self.add_at(tsc::read(), event);
    }

    /// Owner: this has happened when the time stamp counter stood there.
    pub fn add_at(&self, ticks: u64, event: Event) {
        let written = self.written.load(Relaxed);
        let (time, word) = self.place(written);
        time.store(ticks, Relaxed);
        word.store(event.word(), Relaxed);
        self.written.store(written + 1, Release);
    }

    /// Has nothing happened yet?
    pub fn is_empty(&self) -> bool {
        self.written.load(Relaxed) == 0
    }

    /// Anyone: the last `most`, newest last, with the readings of the time stamp counter. What is
    /// written over meanwhile is left out.
    fn read(&self, most: u64) -> Vec<(u64, Event)> {
        let written = self.written.load(Acquire);
        let places = (written.saturating_sub(most)..written).map(|number| {
            let (time, word) = self.place(number);
            (number, time.load(Relaxed), word.load(Relaxed))
        });
        let places: Vec<_> = places.collect();
        // The place after the last may be being written.
        let next = self.written.load(Acquire);
        let is_whole = |number: u64| next - number < self.places.len() as u64;
        let whole = places.into_iter().filter(|(number, ..)| is_whole(*number));
        whole.filter_map(|(_, time, word)| Some((time, Event::parse(word)?))).collect()
    }

    /// Everything that it still has, once its owner writes no more, and how many it has lost.
    fn all(&self) -> (Vec<(u64, Event)>, u64) {
        let kept = self.read(self.places.len() as u64 - 1);
        let lost = self.written.load(Relaxed) - kept.len() as u64;
        (kept, lost)
    }
}

/// Everything that the vCPUs of one machine did, as far as there was room.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct History {
    /// By vCPU, oldest first, by the monotonic clock.
    pub vcpus: Vec<Vec<(Nanos, Event)>>,
    /// Of who delivers late kicks.
    pub late: Vec<(Nanos, Event)>,
    /// Events that were written over by later ones.
    pub lost: u64,
}

/// When the rings began, by two clocks.
#[derive(Debug, Clone, Copy)]
pub struct Began {
    ticks: u64,
    at: Moment,
}

impl Began {
    /// Now: a thread that is interrupted between the two readings tries again.
    pub fn now() -> Self {
        let reading = || {
            let before = tsc::read();
            let at = Moment::now();
            let took = tsc::read().wrapping_sub(before);
            (took, Self { ticks: before.wrapping_add(took / 2), at })
        };
        let first = reading();
        let closest = (1..READINGS)
            .map(|_| reading())
            .fold(first, |best, other| if other.0 < best.0 { other } else { best });
        closest.1
    }

    /// The last events of `ring`, a line each, newest last, under a heading of whose they are.
    pub fn write(self, text: &mut String, whose: &dyn fmt::Display, ring: &Ring) {
        let now = Self::now();
        let events = ring.read(KEPT);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{whose}: last {} events", events.len());
        for (ticks, event) in events {
            let ago = self.nanos(now, now.ticks.saturating_sub(ticks));
            let _ = writeln!(text, "  {:>11.6} s ago  {event}", ago.seconds());
        }
    }

    /// All that these rings have kept; nobody writes any more.
    pub fn history(self, rings: &[Ring], late: &Ring) -> History {
        let now = Self::now();
        let mut history = History::default();
        let mut take = |ring: &Ring| -> Vec<(Nanos, Event)> {
            let (events, lost) = ring.all();
            history.lost += lost;
            let at = |ticks: u64| {
                self.at.reading().after(self.nanos(now, ticks.saturating_sub(self.ticks)))
            };
            events.into_iter().map(|(ticks, event)| (at(ticks), event)).collect()
        };
        let (vcpus, late) = (rings.iter().map(&mut take).collect(), take(late));
        History { vcpus, late, ..history }
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
        assert!(ring.read(KEPT).is_empty());
        (0..10).for_each(|n| ring.add(Event::Parks(Ticket(n))));
        let tickets = |ring: &Ring| -> Vec<u32> {
            let events = ring.read(KEPT).into_iter();
            events.map(|(_, event)| (event.word() >> 32) as u32).collect()
        };
        assert_eq!(tickets(&ring), (0..10).collect::<Vec<_>>());
        (10..200).for_each(|n| ring.add(Event::Parks(Ticket(n))));
        assert_eq!(tickets(&ring), (136..200).collect::<Vec<_>>());
    }

    #[test]
    fn a_full_ring_counts_what_it_has_lost() {
        let (began, ring) = (Began::now(), Ring::of(8));
        (0..5).for_each(|n| ring.add(Event::Parks(Ticket(n))));
        let history = |ring: &Ring| began.history(std::slice::from_ref(ring), &Ring::default());
        let some = history(&ring);
        assert_eq!((some.vcpus[0].len(), some.lost), (5, 0));
        assert!(some.vcpus[0].is_sorted_by_key(|(at, _)| *at), "{some:?}");
        assert!(some.vcpus[0][0].0 >= began.at.reading(), "{some:?} {began:?}");
        (5..100).for_each(|n| ring.add(Event::Parks(Ticket(n))));
        let last = history(&ring);
        assert_eq!((last.vcpus[0].len(), last.lost), (7, 93));
        assert_eq!(last.vcpus[0][6].1, Event::Parks(Ticket(99)));
    }

    #[test]
    fn the_vcpus_of_a_traced_machine_share_its_room() {
        assert_eq!(Ring::traced(2).places.len(), 1 << 20);
        assert_eq!(Ring::traced(3).places.len(), 1 << 19);
        assert_eq!(Ring::traced(128).places.len(), 1 << 14);
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
