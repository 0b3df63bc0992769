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

/// Number of events shown for a stuck vCPU.
const KEPT: u64 = 64;
/// Capacity of an untraced ring. Up to [`KEPT`] events may be written while the same number are
/// read.
const PLACES: usize = 2 * KEPT as usize;
/// Number of events of a traced machine, 16 bytes each: one second at 2 million per second.
const TRACED_PLACES: usize = 2 << 20;
/// Minimum number per vCPU.
const TRACED_LEAST: usize = 1 << 14;
/// Number of attempts to read both clocks together. The attempt with the shortest interval counts.
const READINGS: usize = 16;

/// The ring buffers of one machine.
#[derive(Debug)]
pub struct Recorder {
    /// By vCPU.
    rings: Box<[EventRing]>,
    /// The ring of the thread that delivers delayed kicks.
    late: EventRing,
    began: Began,
    is_traced: bool,
}

impl Recorder {
    /// Creates rings for the last events of `vcpus` vCPUs. If traced, they have room for all
    /// events of a run.
    pub fn new(vcpus: VcpuCount, is_traced: bool) -> Self {
        let ring = |_| {
            if is_traced { EventRing::traced(vcpus.get() as usize) } else { EventRing::default() }
        };
        Self {
            rings: vcpus.ids().map(ring).collect(),
            late: EventRing::default(),
            began: Began::now(),
            is_traced,
        }
    }

    /// Returns the ring of vCPU `id`. Only that vCPU's thread may write to it.
    pub fn of(&self, id: VcpuId) -> &EventRing {
        &self.rings[id.0 as usize]
    }

    /// The ring of the thread that delivers delayed kicks.
    pub const fn late(&self) -> &EventRing {
        &self.late
    }

    /// Formats the last events of each vCPU, one per line.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (id, ring) in (0..).map(VcpuId).zip(&self.rings) {
            self.began.write(&mut text, &id, ring);
        }
        if !self.late.is_empty() {
            self.began.write(&mut text, &"late kicks", &self.late);
        }
        text
    }

    /// Returns all vCPU events if the machine is traced. Must be called after the vCPU threads
    /// have ended.
    pub fn history(&self) -> Option<History> {
        self.is_traced.then(|| self.began.history(&self.rings, &self.late))
    }
}

/// The last events of one thread, which is the only writer. An event costs two stores, a counter
/// update and a TSC read. The memory is allocated and touched before the thread starts.
#[derive(Debug)]
#[repr(align(128))]
pub struct EventRing {
    /// The length is a power of two.
    places: Box<[(AtomicU64, AtomicU64)]>,
    written: AtomicU64,
}

impl Default for EventRing {
    fn default() -> Self {
        Self::of(PLACES)
    }
}

impl EventRing {
    fn of(places: usize) -> Self {
        let place = || (AtomicU64::new(0), AtomicU64::new(0));
        Self { places: (0..places).map(|_| place()).collect(), written: AtomicU64::new(0) }
    }

    /// Creates a ring for one of `vcpus` traced vCPUs.
    fn traced(vcpus: usize) -> Self {
        let share = TRACED_PLACES / vcpus.max(1).next_power_of_two();
        Self::of(share.max(TRACED_LEAST))
    }

    fn place(&self, number: u64) -> &(AtomicU64, AtomicU64) {
        // The mask is the length minus one, and the length is a power of two.
        &self.places[number as usize & (self.places.len() - 1)]
    }

    /// Records an event that happens now. Owner only.
    pub fn add(&self, event: VcpuEvent) {
        self.add_at(tsc::read(), event);
    }

    /// Records an event that happened at the TSC value `ticks`. Owner only.
    pub fn add_at(&self, ticks: u64, event: VcpuEvent) {
        let written = self.written.load(Relaxed);
        let (time, word) = self.place(written);
        time.store(ticks, Relaxed);
        word.store(event.word(), Relaxed);
        self.written.store(written + 1, Release);
    }

    /// Whether nothing has been recorded yet.
    fn is_empty(&self) -> bool {
        self.written.load(Relaxed) == 0
    }

    /// Returns up to `most` last events with their TSC values, newest last. May be called by any
    /// thread. Omits events that are overwritten in the meantime.
    fn read(&self, most: u64) -> Vec<(u64, VcpuEvent)> {
        let written = self.written.load(Acquire);
        let places = (written.saturating_sub(most)..written).map(|number| {
            let (time, word) = self.place(number);
            (number, time.load(Relaxed), word.load(Relaxed))
        });
        let places: Vec<_> = places.collect();
        // The slot after the last event may be partially written.
        let next = self.written.load(Acquire);
        let is_whole = |number: u64| next - number < self.places.len() as u64;
        let whole = places.into_iter().filter(|(number, ..)| is_whole(*number));
        whole.filter_map(|(_, time, word)| Some((time, VcpuEvent::parse(word)?))).collect()
    }

    /// Returns all events still in the ring and the number of overwritten events. Only after the
    /// owner has stopped writing.
    fn all(&self) -> (Vec<(u64, VcpuEvent)>, u64) {
        let kept = self.read(self.places.len() as u64 - 1);
        let lost = self.written.load(Relaxed) - kept.len() as u64;
        (kept, lost)
    }
}

/// The events of all vCPUs of one machine, as far as there was room.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct History {
    /// By vCPU, oldest first, in monotonic time.
    pub vcpus: Vec<Vec<(Nanos, VcpuEvent)>>,
    /// Events of the thread that delivers delayed kicks.
    pub late: Vec<(Nanos, VcpuEvent)>,
    /// Number of overwritten events.
    pub lost: u64,
}

/// Start of the recording on both clocks.
#[derive(Debug, Clone, Copy)]
struct Began {
    ticks: u64,
    at: Moment,
}

impl Began {
    /// Reads both clocks. Retries in case the thread is interrupted in between.
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
            .fold(first, |best, other| if other.0 < best.0 { other } else { best });
        closest.1
    }

    /// Writes the last events of `ring`, one per line and newest last, below a heading with the
    /// name `whose`.
    fn write(self, text: &mut String, whose: &dyn fmt::Display, ring: &EventRing) {
        let now = Self::now();
        let events = ring.read(KEPT);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{whose}: last {}", count(events.len(), "event"));
        for (ticks, event) in events {
            let ago = self.nanos(now, now.ticks.saturating_sub(ticks));
            let _ = writeln!(text, "  {:>11.6} s ago  {event}", ago.seconds());
        }
    }

    /// Returns all events still in these rings. Only after all writers have stopped.
    fn history(self, rings: &[EventRing], late: &EventRing) -> History {
        let now = Self::now();
        let mut history = History::default();
        let mut take = |ring: &EventRing| -> Vec<(Nanos, VcpuEvent)> {
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

    /// Converts ticks to time, by the time elapsed on both clocks since the start.
    fn nanos(self, now: Self, ticks: u64) -> Nanos {
        let all = u128::from(now.ticks.saturating_sub(self.ticks).max(1));
        let nanos = u128::from(ticks) * u128::from(now.at.since(self.at).0) / all;
        Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::events::KickOutcome;
    use base::units::Ticket;

    #[test]
    fn a_ring_keeps_the_last_ones_in_order() {
        let ring = EventRing::default();
        assert!(ring.read(KEPT).is_empty());
        (0..10).for_each(|n| ring.add(VcpuEvent::Parks(Ticket(n))));
        let tickets = |ring: &EventRing| -> Vec<u32> {
            let events = ring.read(KEPT).into_iter();
            events.map(|(_, event)| (event.word() >> 32) as u32).collect()
        };
        assert_eq!(tickets(&ring), (0..10).collect::<Vec<_>>());
        (10..200).for_each(|n| ring.add(VcpuEvent::Parks(Ticket(n))));
        assert_eq!(tickets(&ring), (136..200).collect::<Vec<_>>());
    }

    #[test]
    fn a_full_ring_counts_what_it_has_lost() {
        let (began, ring) = (Began::now(), EventRing::of(8));
        (0..5).for_each(|n| ring.add(VcpuEvent::Parks(Ticket(n))));
        let history =
            |ring: &EventRing| began.history(std::slice::from_ref(ring), &EventRing::default());
        let some = history(&ring);
        assert_eq!((some.vcpus[0].len(), some.lost), (5, 0));
        assert!(some.vcpus[0].is_sorted_by_key(|(at, _)| *at), "{some:?}");
        assert!(some.vcpus[0][0].0 >= began.at.reading(), "{some:?} {began:?}");
        (5..100).for_each(|n| ring.add(VcpuEvent::Parks(Ticket(n))));
        let last = history(&ring);
        assert_eq!((last.vcpus[0].len(), last.lost), (7, 93));
        assert_eq!(last.vcpus[0][6].1, VcpuEvent::Parks(Ticket(99)));
    }

    #[test]
    fn the_vcpus_of_a_traced_machine_share_its_room() {
        assert_eq!(EventRing::traced(2).places.len(), 1 << 20);
        assert_eq!(EventRing::traced(3).places.len(), 1 << 19);
        assert_eq!(EventRing::traced(128).places.len(), 1 << 14);
    }

    #[test]
    fn a_ring_prints_newest_last() {
        let (began, ring) = (Began::now(), EventRing::default());
        ring.add(VcpuEvent::Parks(Ticket(42)));
        ring.add(VcpuEvent::Kicks(VcpuId(3), KickOutcome::Dropped));
        let mut text = String::new();
        began.write(&mut text, &VcpuId(1), &ring);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "vCPU 1: last 2 events");
        assert!(lines[1].ends_with(" s ago  halts for ticket 42"), "{text}");
        assert!(lines[2].ends_with(" s ago  kicks vCPU 3: fault, dropped"), "{text}");
    }
    #[test]
    fn a_recorder_shows_late_kicks_if_there_were_any() {
        let recorder = Recorder::new(VcpuCount::ONE, false);
        recorder.of(VcpuId(0)).add(VcpuEvent::GoesOn);
        assert!(!recorder.text().contains("late kicks"), "{}", recorder.text());
        recorder.late().add(VcpuEvent::Kicks(VcpuId(0), KickOutcome::Woke));
        assert!(recorder.text().ends_with("kicks vCPU 0: woke it\n"), "{}", recorder.text());
        assert_eq!(recorder.history(), None, "it is not traced");
    }
}
