//! vCPUs: the handling of exits ([`step`]), the thread ([`thread`]), halts and kicks ([`kicks`]), and the
//! detection of vCPUs that wait forever ([`stuck`]) or whose threads do not stop ([`stop_timeout`]).

pub mod delayed_kicks;
pub mod fault;
pub mod host_view;
pub mod kicks;
pub mod lifecycle;
pub mod nmi_poller;
pub mod observed;
pub mod probe;
pub mod recorder;
pub mod scheduler;
pub mod shared;
pub mod step;
pub mod stop_timeout;
pub mod stuck;
pub mod thread;

pub use kicks::Kicks;
pub use lifecycle::Lifecycle;
pub use scheduler::{Stopped, VcpuScheduler};
pub use shared::{MachineHost, VcpuShared};
pub use thread::ThreadPlacement;

use std::{fmt, io};

use base::{chain::chain, units::VcpuId};
use kvm::{KvmError, KvmKind, exit::Suberror};
use stuck::StuckVcpu;

/// The way in which a machine ended.
#[derive(Debug)]
pub enum End {
    /// The guest reported an exit status.
    Exit(u8),
    /// Every vCPU reported status 0, or one reported this nonzero status.
    Done(u32),
    /// The guest requested a reset.
    Reset,
    /// The guest requested a reset in a kernel panic. Contains the reason; empty if unknown.
    Panicked(String),
    /// The guest powered off.
    PowerOff,
    /// All started vCPUs are halted, interrupts off.
    Halted {
        /// Whether the guest's user space requested it.
        requested: bool,
    },
    /// The machine reached its timeout. Contains a description of its vCPUs' activity.
    TimedOut(String),
    /// The host requested the end.
    Stopped,
    /// The reader of the guest's output has closed it.
    OutputClosed,
    /// The guest's output cannot be written for any other reason.
    OutputFailed(io::Error),
    /// The guest or KVM failed.
    Failed(Failure),
}

/// A failure and its location.
#[derive(Debug)]
pub struct Failure {
    /// The failed vCPU.
    pub vcpu: VcpuId,
    /// The guest's instruction pointer, if it could be read.
    pub rip: Option<u64>,
    /// The cause of the failure.
    pub cause: Cause,
}

/// The reason why a vCPU cannot continue.
#[derive(Debug)]
pub enum Cause {
    /// The guest faulted while handling a double fault.
    TripleFault,
    /// KVM cannot emulate an instruction of the guest.
    CannotEmulate(Vec<u8>),
    /// Any other internal KVM error.
    InternalError(Suberror),
    /// The processor rejected the guest state at VM entry.
    EntryRefused(u64),
    /// An exit that the VMM does not handle.
    UnknownExit(u32),
    /// A KVM ioctl failed.
    Kvm(KvmError),
    /// The vCPU's thread cannot join its control group.
    Cgroup(io::Error),
    /// The vCPU waits forever.
    Stuck(StuckVcpu, Trace),
}

/// The last events of the vCPUs, one per line, in human-readable form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace(pub String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.vcpu)?;
        if let Some(rip) = self.rip.filter(|rip| !self.is_reset(*rip)) {
            write!(f, " at {rip:#x}")?;
        }
        match &self.cause {
            Cause::TripleFault => {
                write!(f, ": triple fault; see the guest's console for the cause")
            }
            Cause::CannotEmulate(bytes) => {
                write!(f, ": this host's KVM cannot emulate the instruction")?;
                bytes.iter().try_for_each(|byte| write!(f, " {byte:02x}"))?;
                f.write_str(emulation_advice(KvmKind::detect()))
            }
            Cause::InternalError(suberror) => write!(f, ": KVM failed with {suberror}"),
            Cause::EntryRefused(reason) => {
                write!(f, ": VM entry failed (hardware reason {reason:#x})")
            }
            Cause::UnknownExit(reason) => {
                write!(f, ": unsupported KVM exit reason {reason}")
            }
            Cause::Kvm(error) => write!(f, ": {}", chain(error)),
            Cause::Cgroup(error) => write!(f, ": cannot join its control group: {error}"),
            Cause::Stuck(stuck, _) => write!(f, " {stuck}"),
        }
    }
}

impl Failure {
    /// On AMD-V, KVM resets a vCPU after a triple fault: its RIP is then the reset vector instead of the
    /// address of the fault.
    fn is_reset(&self, rip: u64) -> bool {
        const RESET_VECTOR: u64 = 0xfff0;
        matches!(self.cause, Cause::TripleFault) && rip == RESET_VECTOR
    }
}

/// Advice for an instruction that KVM cannot emulate. Software KVM fails on all of ring 0, hardware KVM
/// only on accesses to addresses without memory.
const fn emulation_advice(kind: KvmKind) -> &'static str {
    match kind {
        KvmKind::Hardware => {
            "; it accesses an address without memory, where KVM emulates plain loads and stores only"
        }
        _ => "; run it with --host emulated",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(cause: Cause, rip: u64) -> String {
        Failure { vcpu: VcpuId(0), rip: Some(rip), cause }.to_string()
    }

    #[test]
    fn formats_cause_and_location_of_a_failure() {
        assert!(message(Cause::TripleFault, 0x1000).starts_with("vCPU 0 at 0x1000: triple fault"));
        assert!(message(Cause::TripleFault, 0xfff0).starts_with("vCPU 0: triple fault"));
        let internal = message(Cause::InternalError(Suberror(3)), 0xfff0);
        assert!(internal.starts_with("vCPU 0 at 0xfff0: KVM failed"), "{internal}");
        assert!(internal.contains("suberror 3: cannot deliver"), "{internal}");
        assert!(message(Cause::InternalError(Suberror(9)), 1).contains("suberror 9: see KVM_EXIT"));
        assert!(message(Cause::CannotEmulate(vec![0xcc]), 1).contains("the instruction cc; "));
        assert!(emulation_advice(KvmKind::Software).contains("--host emulated"));
        assert!(!emulation_advice(KvmKind::Hardware).contains("--host emulated"));
    }
}
