//! The only place that talks to KVM, and the only one with `unsafe`.

pub mod caps;
pub mod cpus;
pub mod futex;
pub mod host;
pub mod pending;
pub mod signal;
pub mod stats;
pub mod sys;
pub mod vcpu;
pub mod vm;

pub use host::KvmKind;
pub use vcpu::{Exit, Vcpu};
pub use vm::{KvmVm, Wiring};

use std::path::PathBuf;

use thiserror::Error;
use vmm_sys_util::errno::Error as Errno;

/// A KVM operation that failed. The texts say what to do where a user can act.
#[derive(Debug, Error)]
pub enum KvmError {
    /// `/dev/kvm` is absent.
    #[error(
        "there is no {0}: load kvm_intel or kvm_amd, or run with --host emulated, which needs no KVM"
    )]
    Absent(PathBuf),
    /// `/dev/kvm` may not be opened.
    #[error("no permission to open {0}: join its group (usermod -aG kvm $USER) or run as root")]
    Denied(PathBuf),
    /// `/dev/kvm` cannot be opened for another reason.
    #[error("cannot open {0}: {1}")]
    Open(PathBuf, #[source] Errno),
    /// `/dev/kvm` opens, but knows none of KVM's calls.
    #[error(
        "{0} is no KVM device: unload and load kvm_intel or kvm_amd, or run with --host emulated"
    )]
    NotKvm(PathBuf),
    /// KVM speaks another API version than 12, the only one there has been
    /// since Linux 2.6.22 (kvm/api.rst, 4.1).
    #[error("this KVM has API version {0}; version 12 is needed")]
    ApiVersion(i32),
    /// A capability is missing.
    #[error("this KVM lacks {0}, which the machine needs")]
    Capability(&'static str),
    /// An ioctl failed.
    #[error("{0} failed: {1}")]
    Ioctl(&'static str, #[source] Errno),
    /// Fewer MSRs were taken than were offered.
    #[error("KVM refused to set MSR {0:#x}")]
    Msr(u32),
    /// The thread cannot run on the CPUs asked for.
    #[error("cannot run on the chosen CPUs: {0}")]
    Affinity(#[source] std::io::Error),
    /// An event descriptor cannot be had.
    #[error("cannot make {0}: {1}")]
    Eventfd(&'static str, #[source] std::io::Error),
    /// The signal that interrupts a vCPU cannot be set up.
    #[error("cannot set up the vCPU signal: {0}")]
    Signal(#[source] std::io::Error),
}

/// The kernel's `errno` from an ioctl named `name`.
fn ioctl(name: &'static str) -> impl FnOnce(Errno) -> KvmError {
    move |errno| KvmError::Ioctl(name, errno)
}
