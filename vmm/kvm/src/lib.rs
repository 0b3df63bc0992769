//! The only crate that uses KVM. In the VMM, only this crate and `vmm/bpf` (libbpf) contain `unsafe`.

mod affinity;
pub mod caps;
pub mod cpu_avoidance;
pub mod cpus;
pub mod exit;
mod exit_pages;
pub mod futex;
pub mod host;
pub mod pending;
mod requests;
pub mod signal;
pub mod start_class;
pub mod stats;
pub mod sys;
pub mod vcpu;
pub mod vm;

pub use exit::Exit;
pub use host::KvmKind;
pub use vcpu::Vcpu;
pub use vm::{KvmVm, Wiring};

use std::path::PathBuf;

use thiserror::Error;
use vmm_sys_util::errno::Error as Errno;

/// An error of a KVM operation. The message suggests a remedy where the user has one.
#[derive(Debug, Error)]
pub enum KvmError {
    /// `/dev/kvm` is absent.
    #[error(
        "{0} does not exist: load kvm_intel or kvm_amd, or run with --host emulated, which needs no KVM"
    )]
    Absent(PathBuf),
    /// `/dev/kvm` may not be opened.
    #[error("no permission to open {0}: join its group (usermod -aG kvm $USER) or run as root")]
    Denied(PathBuf),
    /// `/dev/kvm` cannot be opened for another reason.
    #[error("cannot open {0}")]
    Open(PathBuf, #[source] Errno),
    /// `/dev/kvm` opens, but does not support KVM's ioctls.
    #[error("{0} is not a KVM device: reload kvm_intel or kvm_amd, or run with --host emulated")]
    NotKvm(PathBuf),
    /// KVM has an API version other than 12, the only version since Linux 2.6.22 (kvm/api.rst, 4.1).
    #[error("KVM API version {0} is not supported; version 12 is required")]
    ApiVersion(i32),
    /// A capability is missing.
    #[error("this KVM does not support {0}, which the VM requires")]
    Capability(&'static str),
    /// An ioctl failed.
    #[error("{0} failed")]
    Ioctl(&'static str, #[source] Errno),
    /// KVM refuses to run the VM any further after a state that it cannot handle (`kvm_vm_dead`,
    /// include/linux/kvm_host.h).
    #[error("KVM refuses to run the VM any further; see the host's kernel log")]
    VmDead,
    /// The exit record of a vCPU cannot be mapped.
    #[error("cannot map the exit record of a vCPU")]
    ExitPages(#[source] std::io::Error),
    /// An invalid exit record: its data lies outside its pages, or it is mapped at address zero.
    #[error("invalid exit record from KVM: its data is outside its pages")]
    ExitRecord,
    /// KVM accepted only some of the MSRs passed to it; contains the index of the first rejected MSR.
    #[error("KVM rejected MSR {0:#x}")]
    Msr(u32),
    /// The thread cannot be restricted to the requested CPUs.
    #[error("cannot run on the chosen CPUs")]
    Affinity(#[source] std::io::Error),
    /// An event descriptor cannot be created.
    #[error("cannot create {0}")]
    Eventfd(&'static str, #[source] std::io::Error),
    /// The signal that interrupts a vCPU cannot be set up.
    #[error("cannot set up the vCPU signal")]
    Signal(#[source] std::io::Error),
}

impl KvmError {
    /// Returns the error for a vCPU that KVM persistently refuses to run (EAGAIN). Newer kernels create a
    /// thread when a VM first runs, which counts against this process's limits (kvm_mmu_post_init_vm in
    /// arch/x86/kvm/mmu/mmu.c).
    pub fn run_refused() -> Self {
        Self::Ioctl("KVM_RUN", Errno::new(libc::EAGAIN))
    }
}

/// Wraps the kernel's `errno` of the ioctl `name`.
fn ioctl(name: &'static str) -> impl FnOnce(Errno) -> KvmError {
    move |errno| KvmError::Ioctl(name, errno)
}
