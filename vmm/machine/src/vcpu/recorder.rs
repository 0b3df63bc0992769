//! The last events of each vCPU, in ring buffers that the vCPU threads write without waiting.

use std::{
    fmt::{self, Write},
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use crate::clock::Moment;
use base::{
    events::VcpuEvent,
    plural::count,
    units::{Nanos, VcpuCount, VcpuId},
};
use kvm::sys::tsc;

/// Number of events shown per vCPU if one is stuck.
const SHOWN: u64 = 64;
/// Capacity of an untraced ring: fewer than [`SHOWN`] events may be written while [`SHOWN`] are read.
const CAPACITY: usize = 2 * SHOWN as usize;
/// Number of events of a traced machine, 16 bytes each: one second at 2 million per second.
const TRACED_CAPACITY: usize = 2 << 20;
/// Minimum number per vCPU.
const MIN_TRACED_CAPACITY: usize = 1 << 14;
/// Number of attempts to read both clocks together. The attempt with the shortest interval counts.
const READINGS: usize = 16;

/// The ring buffers of one machine.
#[derive(Debug)]
pub struct Recorder {
    /// By vCPU.
    rings: Box<[EventRing]>,
    /// The ring of the thread that delivers delayed kicks.
    delayed: EventRing,
    start: StartTime,
    is_traced: bool,
}

impl Recorder {
    /// Creates rings for the last events of `vcpus` vCPUs. If traced, they hold one to two million
    /// events.
    pub fn new(vcpus: VcpuCount, is_traced: bool) -> Self {
        let ring = |_| {
            if is_traced { EventRing::traced(vcpus.get() as usize) } else { EventRing::default() }
        };
        Self {
            rings: vcpus.ids().map(ring).collect(),
            delayed: EventRing::default(),
            start: StartTime::now(),
            is_traced,
        }
    }

    /// Returns the ring of vCPU `id`. Only that vCPU's thread may write to it.
    pub fn ring(&self, id: VcpuId) -> &EventRing {
        &self.rings[id.0 as usize]
    }

    /// The ring of the thread that delivers delayed kicks.
    pub const fn delayed(&self) -> &EventRing {
        &self.delayed
    }

    /// Formats the last events of each vCPU, one per line.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (id, ring) in (0..).map(VcpuId).zip(&self.rings) {
            self.start.write(&mut text, &id, ring);
        }
        if !self.delayed.is_empty() {
            self.start.write(&mut text, &"late kicks", &self.delayed);
        }
        text
    }

    /// Returns the recorded vCPU events if the machine is traced. Must be called after the vCPU
    /// threads have ended.
    pub fn history(&self) -> Option<History> {
        self.is_traced.then(|| self.start.history(&self.rings, &self.delayed))
    }
}

/// The last events of one thread, which is the only writer. An event costs two stores, a counter
/// update and a TSC read. The memory is allocated and touched before the thread starts.
#[derive(Debug)]
#[repr(align(128))]
pub struct EventRing {
    /// The length is a power of two.
    slots: Box<[(AtomicU64, AtomicU64)]>,
    written: AtomicU64,
}

impl Default for EventRing {
    fn default() -> Self {
        Self::with_capacity(CAPACITY)
    }
}

impl EventRing {
    fn with_capacity(slots: usize) -> Self {
        let slot = || (AtomicU64::new(0), AtomicU64::new(0));
        Self { slots: (0..slots).map(|_| slot()).collect(), written: AtomicU64::new(0) }
    }

    /// Creates a ring for one of `vcpus` traced vCPUs.
    fn traced(vcpus: usize) -> Self {
        let share = TRACED_CAPACITY / vcpus.max(1).next_power_of_two();
        Self::with_capacity(share.max(MIN_TRACED_CAPACITY))
    }

    fn slot(&self, number: u64) -> &(AtomicU64, AtomicU64) {
        // The mask is the length minus one, and the length is a power of two.
        &self.slots[number as usize & (self.slots.len() - 1)]
    }

    /// Records an event that happens now. Owner only.
    pub fn add(&self, event: VcpuEvent) {
        self.add_at(tsc::read(), event);
    }

    /// Records an event that happened at the TSC value `ticks`. Owner only.
    pub fn add_at(&self, ticks: u64, event: VcpuEvent) {
        let written = self.written.load(Relaxed);
        let (time, word) = self.slot(written);
        time.store(ticks, Relaxed);
        word.store(event.encode(), Relaxed);
        self.written.store(written + 1, Release);
    }

    /// Whether nothing has been recorded yet.
    fn is_empty(&self) -> bool {
        self.written.load(Relaxed) == 0
    }

    /// Returns up to `limit` last events with their TSC values, newest last. May be called by any
    /// thread. Omits events that are overwritten in the meantime.
    fn read(&self, limit: u64) -> Vec<(u64, VcpuEvent)> {
        let written = self.written.load(Acquire);
        let slots = (written.saturating_sub(limit)..written).map(|number| {
            let (time, word) = self.slot(number);
            (number, time.load(Relaxed), word.load(Relaxed))
        });
        let slots: Vec<_> = slots.collect();
        // The slot after the last event may be partially written.
        let next = self.written.load(Acquire);
        let is_valid = |number: u64| next - number < self.slots.len() as u64;
        let valid = slots.into_iter().filter(|(number, ..)| is_valid(*number));
        valid.filter_map(|(_, time, word)| Some((time, VcpuEvent::parse(word)?))).collect()
    }

    /// Returns all events still readable, and the number of lost events. Only after the
    /// owner has stopped writing.
    fn all_events(&self) -> (Vec<(u64, VcpuEvent)>, u64) {
        let events = self.read(self.slots.len() as u64 - 1);
        let lost = self.written.load(Relaxed) - events.len() as u64;
        (events, lost)
    }
}

/// The events of all vCPUs of one machine, as far as there was room.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct History {
    /// By vCPU, oldest first, in monotonic time.
    pub vcpus: Vec<Vec<(Nanos, VcpuEvent)>>,
    /// Events of the thread that delivers delayed kicks.
    pub delayed: Vec<(Nanos, VcpuEvent)>,
    /// Number of overwritten events.
    pub lost: u64,
}

/// Start of the recording on both clocks.
#[derive(Debug, Clone, Copy)]
struct StartTime {
    ticks: u64,
    at: Moment,
}

impl StartTime {
    /// Reads both clocks several times, because the thread may be interrupted in between.
    fn now() -> Self {
        let reading = || {
            let before = tsc::read();
            let at = Moment::now();
            let took = tsc::read().wrapping_sub(before);
            (took, Self { ticks: before.wrapping_add(took / 2), at })
        };
        let first = reading();
        let closest = (1..READINGS)
            .map(|_| reading())
            .fold(first, |best, reading| if reading.0 < best.0 { reading } else { best });
        closest.1
    }

    /// Writes the last events of `ring`, one per line and newest last, below a heading with the
    /// name `name`.
    fn write(self, text: &mut String, name: &dyn fmt::Display, ring: &EventRing) {
        let now = Self::now();
        let events = ring.read(SHOWN);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name}: last {}", count(events.len(), "event"));
        for (ticks, event) in events {
            let ago = self.nanos(now, now.ticks.saturating_sub(ticks));
            let _ = writeln!(text, "  {:>11.6} s ago  {event}", ago.seconds());
        }
    }

    /// Returns all events still in these rings. Only after all writers have stopped.
    fn history(self, rings: &[EventRing], delayed: &EventRing) -> History {
        let now = Self::now();
        let mut history = History::default();
        let mut take = |ring: &EventRing| -> Vec<(Nanos, VcpuEvent)> {
            let (events, lost) = ring.all_events();
            history.lost += lost;
            let at = |ticks: u64| {
                self.at.nanos().after(self.nanos(now, ticks.saturating_sub(self.ticks)))
            };
            events.into_iter().map(|(ticks, event)| (at(ticks), event)).collect()
        };
        let (vcpus, delayed) = (rings.iter().map(&mut take).collect(), take(delayed));
        History { vcpus, delayed, ..history }
    }

    /// Converts ticks to time, by the time elapsed on both clocks since the start.
    fn nanos(self, now: Self, ticks: u64) -> Nanos {
        let elapsed = u128::from(now.ticks.saturating_sub(self.ticks).max(1));
        let nanos = u128::from(ticks) * u128::from(now.at.since(self.at).0) / elapsed;
        Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::events::KickOutcome;
    use base::units::Ticket;

    #[test]
    fn rings_keep_the_last_events_in_order() {
        let ring = EventRing::default();
        assert!(ring.read(SHOWN).is_empty());
        (0..10).for_each(|n| ring.add(VcpuEvent::Parks(Ticket(n))));
        let tickets = |ring: &EventRing| -> Vec<u32> {
            let events = ring.read(SHOWN).into_iter();
            events.map(|(_, event)| (event.encode() >> 32) as u32).collect()
        };
        assert_eq!(tickets(&ring), (0..10).collect::<Vec<_>>());
        (10..200).for_each(|n| ring.add(VcpuEvent::Parks(Ticket(n))));
        assert_eq!(tickets(&ring), (136..200).collect::<Vec<_>>());
    }

    #[test]
    fn full_rings_count_lost_events() {
        let (start, ring) = (StartTime::now(), EventRing::with_capacity(8));
        (0..5).for_each(|n| ring.add(VcpuEvent::Parks(Ticket(n))));
        let history =
            |ring: &EventRing| start.history(std::slice::from_ref(ring), &EventRing::default());
        let partial = history(&ring);
        assert_eq!((partial.vcpus[0].len(), partial.lost), (5, 0));
        assert!(partial.vcpus[0].is_sorted_by_key(|(at, _)| *at), "{partial:?}");
        assert!(partial.vcpus[0][0].0 >= start.at.nanos(), "{partial:?} {start:?}");
        (5..100).for_each(|n| ring.add(VcpuEvent::Parks(Ticket(n))));
        let last = history(&ring);
        assert_eq!((last.vcpus[0].len(), last.lost), (7, 93));
        assert_eq!(last.vcpus[0][6].1, VcpuEvent::Parks(Ticket(99)));
    }

    #[test]
    fn traced_vcpus_share_the_capacity() {
        assert_eq!(EventRing::traced(2).slots.len(), 1 << 20);
        assert_eq!(EventRing::traced(3).slots.len(), 1 << 19);
        assert_eq!(EventRing::traced(128).slots.len(), 1 << 14);
    }

    #[test]
    fn a_ring_prints_newest_last() {
        let (start, ring) = (StartTime::now(), EventRing::default());
        ring.add(VcpuEvent::Parks(Ticket(42)));
        ring.add(VcpuEvent::Kicks(VcpuId(3), KickOutcome::Dropped));
        let mut text = String::new();
        start.write(&mut text, &VcpuId(1), &ring);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "vCPU 1: last 2 events");
        assert!(lines[1].ends_with(" s ago  halts for ticket 42"), "{text}");
        assert!(lines[2].ends_with(" s ago  kicks vCPU 3: fault, dropped"), "{text}");
    }
    #[test]
    fn shows_delayed_kicks_if_any() {
        let recorder = Recorder::new(VcpuCount::ONE, false);
        recorder.ring(VcpuId(0)).add(VcpuEvent::Resumes);
        assert!(!recorder.text().contains("late kicks"), "{}", recorder.text());
        recorder.delayed().add(VcpuEvent::Kicks(VcpuId(0), KickOutcome::Woke));
        assert!(recorder.text().ends_with("kicks vCPU 0: woke it\n"), "{}", recorder.text());
        assert_eq!(recorder.history(), None, "it is not traced");
    }
}
