//! Packets into a file.

use std::io::{self, Write};

use prost::Message;

use super::proto::{
    BY_RANK, CounterDescriptor, DebugAnnotation, FIRST, Kind, ProcessDescriptor, TracePacket,
    TrackDescriptor, TrackEvent,
};
use crate::{lab::timeline::Span, units::Nanos};

/// `Trace.packet`: field 1, with a length.
pub(super) const PACKET: u8 = 1 << 3 | 2;

/// A track of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Track {
    /// The run itself.
    Run,
    /// Of a slot.
    Slot(u32),
    /// Of a vCPU, by its index.
    Vcpu(u32),
    /// Of kicks by nobody's thread.
    Late,
    /// How many of a VM wait.
    Waiters(u32),
    /// Operations a second of a VM.
    Operations(u32),
}

impl Track {
    /// Its kind and its number, for [`Out::uuid`].
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

/// The number of the run that this `trusted_packet_sequence_id` is of.
pub(super) const fn run_of(sequence: u32) -> Option<u32> {
    sequence.checked_sub(1)
}

/// Is it [`Track::Run`] of some run?
pub(super) const fn is_run_track(uuid: u64) -> bool {
    uuid & 0xffff_ffff == Track::Run.place().0 << 24
}

/// One run's part of a file.
pub(super) struct Out<'a, W> {
    out: &'a mut W,
    /// Of the run; never zero.
    number: u32,
    bytes: Vec<u8>,
}

/// What is said of an event.
pub(super) type Annotations = Vec<DebugAnnotation>;

/// A number.
pub(super) fn number(name: &str, value: u64) -> DebugAnnotation {
    DebugAnnotation { name: name.into(), number: Some(value), text: None }
}

/// A text.
pub(super) fn text(name: &str, value: impl Into<String>) -> DebugAnnotation {
    DebugAnnotation { name: name.into(), number: None, text: Some(value.into()) }
}

impl<'a, W: Write> Out<'a, W> {
    /// Begins the part of run `number`, from zero, and names its process.
    pub(super) fn new(out: &'a mut W, number: u32, title: &str) -> io::Result<Self> {
        let mut this = Self { out, number: number + 1, bytes: Vec::new() };
        let process = ProcessDescriptor {
            pid: i32::try_from(this.number).unwrap_or(i32::MAX),
            process_name: title.into(),
        };
        let track = TrackDescriptor {
            uuid: this.process(),
            process: Some(process),
            child_ordering: BY_RANK,
            ..TrackDescriptor::default()
        };
        this.packet(TracePacket {
            flags: Some(FIRST),
            track: Some(Box::new(track)),
            ..TracePacket::default()
        })?;
        Ok(this)
    }

    fn process(&self) -> u64 {
        u64::from(self.number) << 32
    }

    fn uuid(&self, track: Track) -> u64 {
        let (kind, number) = track.place();
        self.process() | kind << 24 | u64::from(number)
    }

    /// An arrow of this run's.
    pub(super) fn flow(&self, number: usize) -> u64 {
        u64::from(self.number) << 40 | (number as u64 + 1)
    }

    fn packet(&mut self, packet: TracePacket) -> io::Result<()> {
        let packet = TracePacket { sequence: self.number, ..packet };
        self.bytes.clear();
        self.bytes.push(PACKET);
        // A Vec grows as it must.
        if packet.encode_length_delimited(&mut self.bytes).is_err() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.out.write_all(&self.bytes)
    }

    /// Names a track; those of counters have a unit.
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

    /// Begins a slice; `event` has its name and what there is to say of it.
    pub(super) fn begin(&mut self, at: Nanos, track: Track, event: TrackEvent) -> io::Result<()> {
        self.event(at, track, TrackEvent { kind: Kind::SliceBegin.into(), ..event })
    }

    /// Ends the innermost.
    pub(super) fn end(&mut self, at: Nanos, track: Track) -> io::Result<()> {
        let event = TrackEvent { kind: Kind::SliceEnd.into(), ..TrackEvent::default() };
        self.event(at, track, event)
    }

    /// A slice with nothing in it.
    pub(super) fn slice(&mut self, span: Span, track: Track, event: TrackEvent) -> io::Result<()> {
        self.begin(span.from, track, event)?;
        self.end(span.to, track)
    }

    /// Something of no length.
    pub(super) fn instant(&mut self, at: Nanos, track: Track, event: TrackEvent) -> io::Result<()> {
        self.event(at, track, TrackEvent { kind: Kind::Instant.into(), ..event })
    }

    /// A counter's value from now on.
    pub(super) fn count(&mut self, at: Nanos, track: Track, value: f64) -> io::Result<()> {
        let event = TrackEvent {
            kind: Kind::Counter.into(),
            double_counter_value: Some(value),
            ..TrackEvent::default()
        };
        self.event(at, track, event)
    }
}

/// An event of that name, with these annotations.
pub(super) fn named(name: &str, annotations: Annotations) -> TrackEvent {
    TrackEvent { name: name.into(), annotations, ..TrackEvent::default() }
}
