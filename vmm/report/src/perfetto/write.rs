//! Writes packets to a file.

use std::io::{self, Write};

use prost::Message;

use super::proto::{
    BY_RANK, CounterDescriptor, DebugAnnotation, FIRST, ProcessDescriptor, TracePacket,
    TrackDescriptor, TrackEvent, TrackEventType,
};
use base::units::Nanos;
use study::timeline::TimeSpan;

/// Tag byte of `Trace.packet`: field 1, length-delimited.
pub(super) const PACKET: u8 = 1 << 3 | 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Track {
    /// The run itself.
    Run,
    /// The slot with this index.
    Slot(u32),
    /// The vCPU with this index.
    Vcpu(u32),
    /// Delayed kicks, delivered by a separate thread.
    Late,
    /// Waiting vCPUs of the VM with this index.
    Waiters(u32),
    /// Operations per second of the VM with this index.
    Operations(u32),
}

impl Track {
    /// Kind and index, for [`RunWriter::uuid`].
    const fn place(self) -> (u64, u32) {
        match self {
            Track::Run => (1, 0),
            Track::Operations(vm) => (2, vm),
            Track::Waiters(vm) => (3, vm),
            Track::Slot(slot) => (4, slot),
            Track::Vcpu(vcpu) => (5, vcpu),
            Track::Late => (6, 0),
        }
    }
}

/// The number of the run with this `trusted_packet_sequence_id`.
pub(super) const fn run_of(sequence: u32) -> Option<u32> {
    sequence.checked_sub(1)
}

/// Whether `uuid` is the [`Track::Run`] of any run.
pub(super) const fn is_run_track(uuid: u64) -> bool {
    uuid & 0xffff_ffff == Track::Run.place().0 << 24
}

/// Writes one run's part of a file.
pub(super) struct RunWriter<'a, W> {
    out: &'a mut W,
    /// The run's number plus one, so that it is not zero.
    number: u32,
    bytes: Vec<u8>,
}

pub(super) type Annotations = Vec<DebugAnnotation>;

pub(super) fn number(name: &str, value: u64) -> DebugAnnotation {
    DebugAnnotation { name: name.into(), number: Some(value), text: None }
}

pub(super) fn text(name: &str, value: impl Into<String>) -> DebugAnnotation {
    DebugAnnotation { name: name.into(), number: None, text: Some(value.into()) }
}

impl<'a, W: Write> RunWriter<'a, W> {
    /// Begins the part of run `number` (from zero) and names its process.
    pub(super) fn new(out: &'a mut W, number: u32, title: &str) -> io::Result<Self> {
        let mut part = Self { out, number: number + 1, bytes: Vec::new() };
        let process = ProcessDescriptor {
            pid: i32::try_from(part.number).unwrap_or(i32::MAX),
            process_name: title.into(),
        };
        let track = TrackDescriptor {
            uuid: part.process(),
            process: Some(process),
            child_ordering: BY_RANK,
            ..TrackDescriptor::default()
        };
        part.packet(TracePacket {
            flags: Some(FIRST),
            track: Some(Box::new(track)),
            ..TracePacket::default()
        })?;
        Ok(part)
    }

    fn process(&self) -> u64 {
        u64::from(self.number) << 32
    }

    fn uuid(&self, track: Track) -> u64 {
        let (kind, number) = track.place();
        self.process() | kind << 24 | u64::from(number)
    }

    /// The id of an arrow of this run.
    pub(super) fn flow(&self, number: usize) -> u64 {
        u64::from(self.number) << 40 | (number as u64 + 1)
    }

    fn packet(&mut self, packet: TracePacket) -> io::Result<()> {
        let packet = TracePacket { sequence: self.number, ..packet };
        self.bytes.clear();
        self.bytes.push(PACKET);
        // Encoding into a Vec fails only for lack of capacity, and a Vec grows.
        if packet.encode_length_delimited(&mut self.bytes).is_err() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.out.write_all(&self.bytes)
    }

    /// Names a track; counters have a unit.
    pub(super) fn name(&mut self, track: Track, name: &str, unit: Option<&str>) -> io::Result<()> {
        let (kind, number) = track.place();
        let track = TrackDescriptor {
            uuid: self.uuid(track),
            parent_uuid: self.process(),
            name: name.into(),
            counter: unit.map(|unit| CounterDescriptor { unit_name: unit.into() }),
            sibling_order_rank: kind as i32 * 1000 + number as i32,
            ..TrackDescriptor::default()
        };
        self.packet(TracePacket { track: Some(Box::new(track)), ..TracePacket::default() })
    }

    fn event(&mut self, at: Nanos, track: Track, event: TrackEvent) -> io::Result<()> {
        let event = TrackEvent { track_uuid: self.uuid(track), ..event };
        self.packet(TracePacket {
            timestamp: Some(at.0),
            event: Some(Box::new(event)),
            ..TracePacket::default()
        })
    }

    /// Begins a slice with the name and annotations of `event`.
    pub(super) fn begin(&mut self, at: Nanos, track: Track, event: TrackEvent) -> io::Result<()> {
        self.event(at, track, TrackEvent { kind: TrackEventType::SliceBegin.into(), ..event })
    }

    /// Ends the innermost open slice.
    pub(super) fn end(&mut self, at: Nanos, track: Track) -> io::Result<()> {
        let event = TrackEvent { kind: TrackEventType::SliceEnd.into(), ..TrackEvent::default() };
        self.event(at, track, event)
    }

    /// Writes a slice without nested slices.
    pub(super) fn slice(
        &mut self,
        span: TimeSpan,
        track: Track,
        event: TrackEvent,
    ) -> io::Result<()> {
        self.begin(span.from, track, event)?;
        self.end(span.to, track)
    }

    /// Writes an event without duration.
    pub(super) fn instant(&mut self, at: Nanos, track: Track, event: TrackEvent) -> io::Result<()> {
        self.event(at, track, TrackEvent { kind: TrackEventType::Instant.into(), ..event })
    }

    /// Sets a counter's value from `at` on.
    pub(super) fn count(&mut self, at: Nanos, track: Track, value: f64) -> io::Result<()> {
        let event = TrackEvent {
            kind: TrackEventType::Counter.into(),
            double_counter_value: Some(value),
            ..TrackEvent::default()
        };
        self.event(at, track, event)
    }
}

/// An event with a name and annotations.
pub(super) fn entry(name: &str, annotations: Annotations) -> TrackEvent {
    TrackEvent { name: name.into(), annotations, ..TrackEvent::default() }
}
