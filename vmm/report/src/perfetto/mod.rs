//! Timelines as Perfetto traces, for `ui.perfetto.dev`, its trace processor, and `pvticket trace`, which
//! reads them back.
//!
//! A file has one or more runs in sequence. Each run is a process with a number that is unique in the file,
//! so that runs share no tracks, packet sequences or flows. A run has
//!
//! * one track with a slice for the entire run, which carries its account, and below it the measured window;
//! * one track per slot: the vCPU of each time slice;
//! * one track per vCPU: `running` (within it `spinning`), `preempted (LHP)`, `(LWP)` and so on (within a
//!   holder's: `holding`), `halted`, `woken` (kicked, without a slot yet); instants for kicks, `LHP`, `LWP`
//!   and `queued`; an arrow from each kick that ended a halt to the resulting time slice;
//! * counters: the known waiters of each VM, and operations per second (of a Linux guest: locks taken).

mod annotate;
mod digest;
mod draw;
mod proto;
mod read;
mod resume;
#[cfg(test)]
mod tests;
mod write;

pub use digest::{Digest, HandoffTimes, LockPreemption, RunDigest, Sum, digest};
pub use draw::write;
pub use read::TraceError;
pub use resume::length_of_wanted;

/// Category of the slice for an entire run; identifies traces of pvticket.
const CATEGORY: &str = "pvticket";
/// Names of slices and instants.
mod name {
    pub(super) const RUNNING: &str = "running";
    pub(super) const SPINNING: &str = "spinning";
    pub(super) const HOLDING: &str = "holding";
    pub(super) const HALTED: &str = "halted";
    pub(super) const IDLE: &str = "halted in KVM";
    pub(super) const WOKEN: &str = "woken";
    pub(super) const YIELDED: &str = "yielded";
    pub(super) const KICK: &str = "kick";
    pub(super) const LHP: &str = "LHP";
    pub(super) const LWP: &str = "LWP";
    pub(super) const QUEUED: &str = "queued";
    pub(super) const MEASURED: &str = "measured";
    pub(super) const RESUMED: &str = "goes on";
}
/// Names of annotations, most of them for `digest`.
mod key {
    pub(super) const TO: &str = "to";
    pub(super) const RELEASE_TO_KICK: &str = "release_to_kick_ns";
    pub(super) const KICK_TO_GRANT: &str = "kick_to_grant_ns";
    pub(super) const GRANT_TO_GUEST: &str = "grant_to_guest_ns";
    pub(super) const KICK_TO_RUN: &str = "kick_to_run_ns";
    pub(super) const OFF: &str = "off_ns";
    pub(super) const OTHERS_SPUN: &str = "others_spun_ns";
    pub(super) const LOCK: &str = "lock";
    pub(super) const WHY: &str = "why";
    pub(super) const KIND: &str = "kind";
    pub(super) const LENGTH: &str = "length_ns";
    pub(super) const NOTE: &str = "note";
    pub(super) const LOST: &str = "lost";
}
