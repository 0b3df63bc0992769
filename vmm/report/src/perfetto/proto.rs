//! The Perfetto messages in our traces. Names and numbers are from
//! `protos/perfetto/trace/perfetto_trace.proto` in Perfetto's repository. In an end-to-end test,
//! Perfetto's trace processor reads the files.

use prost::{Enumeration, Message};

/// `TracePacket`. A trace is packets, each as field 1 (`Trace.packet`).
#[derive(Clone, PartialEq, Message)]
pub(super) struct TracePacket {
    /// Nanoseconds of the trace clock.
    #[prost(uint64, optional, tag = "8")]
    pub(super) timestamp: Option<u64>,
    /// `trusted_packet_sequence_id`.
    #[prost(uint32, tag = "10")]
    pub(super) sequence: u32,
    /// `sequence_flags`.
    #[prost(uint32, optional, tag = "13")]
    pub(super) flags: Option<u32>,
    #[prost(message, optional, boxed, tag = "11")]
    pub(super) event: Option<Box<TrackEvent>>,
    #[prost(message, optional, boxed, tag = "60")]
    pub(super) track: Option<Box<TrackDescriptor>>,
}

/// `SEQ_INCREMENTAL_STATE_CLEARED`: the first packet of a sequence.
pub(super) const FIRST: u32 = 1;

/// `TrackDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TrackDescriptor {
    #[prost(uint64, tag = "1")]
    pub(super) uuid: u64,
    #[prost(uint64, tag = "5")]
    pub(super) parent_uuid: u64,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(message, optional, tag = "3")]
    pub(super) process: Option<ProcessDescriptor>,
    #[prost(message, optional, tag = "8")]
    pub(super) counter: Option<CounterDescriptor>,
    /// Order of its children; 3: by their rank.
    #[prost(int32, tag = "11")]
    pub(super) child_ordering: i32,
    #[prost(int32, tag = "12")]
    pub(super) sibling_order_rank: i32,
}

/// `TrackDescriptor.ChildTracksOrdering.EXPLICIT`.
pub(super) const BY_RANK: i32 = 3;

/// `ProcessDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ProcessDescriptor {
    #[prost(int32, tag = "1")]
    pub(super) pid: i32,
    #[prost(string, tag = "6")]
    pub(super) process_name: String,
}

/// `CounterDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct CounterDescriptor {
    #[prost(string, tag = "6")]
    pub(super) unit_name: String,
}

/// `TrackEvent`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TrackEvent {
    #[prost(enumeration = "TrackEventType", tag = "9")]
    pub(super) kind: i32,
    #[prost(uint64, tag = "11")]
    pub(super) track_uuid: u64,
    #[prost(string, repeated, tag = "22")]
    pub(super) categories: Vec<String>,
    #[prost(string, tag = "23")]
    pub(super) name: String,
    #[prost(int64, optional, tag = "30")]
    pub(super) counter_value: Option<i64>,
    #[prost(double, optional, tag = "44")]
    pub(super) double_counter_value: Option<f64>,
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    pub(super) flow_ids: Vec<u64>,
    #[prost(fixed64, repeated, packed = "false", tag = "48")]
    pub(super) terminating_flow_ids: Vec<u64>,
    #[prost(message, repeated, tag = "4")]
    pub(super) annotations: Vec<DebugAnnotation>,
}

/// `TrackEvent.Type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(super) enum TrackEventType {
    Unspecified = 0,
    SliceBegin = 1,
    SliceEnd = 2,
    Instant = 3,
    Counter = 4,
}

/// `DebugAnnotation`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct DebugAnnotation {
    #[prost(string, tag = "10")]
    pub(super) name: String,
    #[prost(uint64, optional, tag = "3")]
    pub(super) number: Option<u64>,
    #[prost(string, optional, tag = "6")]
    pub(super) text: Option<String>,
}
