//! Timelines as Perfetto traces, for `ui.perfetto.dev`, its trace processor, and `pvticket trace`,
//! which reads them again.
//!
//! A file holds one or more runs, one after the other. Each is a process, whose number tells its
//! tracks, packet sequence and flows from those of other runs. A run is
//!
//! * one track with one slice from its beginning to its end, which carries its account; below it
//!   what was measured;
//! * one track per slot: which vCPU had it, turn by turn;
//! * one track per vCPU: `running` (within it `spinning`), `preempted (LHP)`, `(LWP)` and so on
//!   (within a holder's: `holding`), `halted`, `woken` (kicked, not yet on a slot); instants for
//!   kicks, `LHP`, `LWP` and `queued`; an arrow from each kick that ended a halt to the turn that it led to;
//! * counters: the vCPUs of each VM that are known to wait, and operations (of a Linux guest: locks
//!   taken) per second.

mod annotate;
mod digest;
mod draw;
mod proto;
mod read;
mod resume;
#[cfg(test)]
mod tests;
mod write;

pub use digest::{Digest, Lateness, Off, RunDigest, Sum, digest};
pub use draw::write;
pub use read::TraceError;
pub use resume::length_of_wanted;

/// Category of the slice that is a whole run; identifies traces of pvticket.
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
    pub(super) const GOES_ON: &str = "goes on";
}
/// Names of the annotations that `digest` reads.
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
