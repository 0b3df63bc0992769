//! The driver: enforces the scheduler core's decisions on real vCPU threads.
//!
//! There is no scheduler thread. A thread whose slice ends queries the core, wakes the next vCPU's
//! thread (on the same CPU, so the switch costs one futex handoff) and sleeps. The thread's own
//! timer ends the slice. Its signal is blocked outside `KVM_RUN`, so a signal that arrives early
//! ends the next entry at once and is not lost. The preemption is handled only when `KVM_RUN`
//! returns because it was interrupted, since KVM has then completed any pending port access.
//!
//! The state that lets a thread enter its guest is changed under the core's lock, so that no grant
//! can be applied late. Threads are woken after the lock is released, because a thread woken on the
//! waker's CPU may run at once.

mod account;
mod capture;
mod delay;
mod idle_watcher;
#[cfg(feature = "bpf")]
mod in_kernel;
mod published;
mod sched_report;
mod stats;
mod steal_time;
mod steps;
mod telemetry;
mod user_driver;
mod vcpu_thread;
mod vm_scheduler;

pub use account::{Account, AccountDelta};
pub use capture::{Meter, TraceData};
#[cfg(feature = "bpf")]
pub use in_kernel::{BpfDriver, BpfDriverError, BpfReport, Observer, fault as bpf_fault};
pub use sched_report::{ExtensionReport, Latency, SchedReport};
pub use stats::Histograms;
pub use telemetry::{LineUpkeep, TelemetryView, Translate};
pub use user_driver::{Blocked, Driver, ScheduleSpec};

#[cfg(test)]
mod published_tests;
#[cfg(test)]
mod tests;
