//! Machines: [`MachineSpec`] -> [`Vm`] -> [`Running`] -> [`Report`].

pub mod abandoned;
mod build;
pub mod console;
mod input;
mod loaded;
mod monitoring;
mod output_limit;
mod ram;
mod run;
pub mod schedule;
pub mod spec;
mod typed_eof;
mod watchdog;
mod watcher;

pub use build::{Vm, check_guest};
pub use console::{Console, FdOutput, InputOwner, InputSource, InputTarget, OnWriteError};
pub use monitoring::{LockMonitoring, Purpose};
pub use output_limit::{LimitedOutput, OutputLimit};
pub use run::{Report, Running, Stopper};
pub use schedule::{Observer, Schedule, ScheduleError, ScheduleResult};
pub use spec::{GuestSpec, MachineSpec};
pub use watcher::WatcherSpec;

use std::{io, path::PathBuf};

use thiserror::Error;

use crate::{guest::payload::SharedError, vcpu::stop_timeout::TimeUsage};
use base::units::{ByteSize, VcpuId};
use boot::{BootError, ImageError};
use kvm::KvmError;

/// A machine could not be built, or failed outside the guest.
#[derive(Debug, Error)]
pub enum VmError {
    /// KVM refused an operation.
    #[error(transparent)]
    Kvm(#[from] KvmError),
    /// The kernel cannot be booted.
    #[error("kernel {0}")]
    Kernel(PathBuf, #[source] ImageError),
    /// The guest cannot be loaded for another reason.
    #[error(transparent)]
    Boot(#[from] BootError),
    /// A file cannot be opened.
    #[error("cannot read {0}")]
    Open(PathBuf, #[source] io::Error),
    /// The payload's shared memory block is outside guest memory.
    #[error(transparent)]
    Shared(#[from] SharedError),
    /// Guest memory cannot be allocated.
    #[error("cannot map {0} of guest memory: reduce --mem ({1})")]
    Memory(ByteSize, String),
    /// A descriptor, thread or shared memory cannot be set up.
    #[error("cannot set up {0}")]
    SetUp(&'static str, #[source] io::Error),
    /// The schedule cannot be started, or its results cannot be read.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The event loop failed.
    #[error("the event loop failed")]
    EventLoop(#[source] event_manager::Error),
    /// A vCPU thread did not stop in time.
    #[error("{0} did not stop {1}")]
    Stuck(VcpuId, TimeUsage),
    /// A vCPU thread of an earlier machine still has not stopped.
    #[error("{0} of an earlier machine still runs and would disturb a measurement")]
    Abandoned(VcpuId),
}
