//! A whole machine: [`MachineSpec`] -> [`Vm`] -> [`Running`] -> [`Report`].

mod allowance;
mod build;
pub mod console;
pub mod escape;
mod input;
mod ram;
mod run;
pub mod spec;
mod watchdog;

pub use allowance::{Allowance, Limited};
pub use build::{Vm, check_guest};
pub use console::{Console, Input, InputTarget, Loss, Outlet};
pub use run::{Report, Running};
pub use spec::{GuestSpec, MachineSpec, PvBackend};

use std::{io, path::PathBuf};

use thiserror::Error;

use crate::{
    boot::BootError,
    guest::payload::SharedError,
    kvm::KvmError,
    units::{ByteSize, VcpuId},
};

/// Why a machine could not be made or ended badly, outside the guest.
#[derive(Debug, Error)]
pub enum VmError {
    /// KVM refused something.
    #[error(transparent)]
    Kvm(#[from] KvmError),
    /// The kernel or initrd cannot be booted.
    #[error(transparent)]
    Boot(#[from] BootError),
    /// A file cannot be opened.
    #[error("cannot read {0}: {1}")]
    Open(PathBuf, #[source] io::Error),
    /// The payload's shared block.
    #[error(transparent)]
    Shared(#[from] SharedError),
    /// Guest memory cannot be had.
    #[error("cannot map {0} of guest memory: ask for less with --mem ({1})")]
    Memory(ByteSize, String),
    /// An event descriptor or thread cannot be made.
    #[error("cannot set up {0}: {1}")]
    SetUp(&'static str, #[source] io::Error),
    /// The event loop failed.
    #[error("the event loop failed: {0}")]
    EventLoop(#[source] event_manager::Error),
    /// A vCPU thread did not leave in time.
    #[error("{0} did not stop within one second; its thread may be blocked on the output")]
    Stuck(VcpuId),
}
