//! Facts about this host, established without the product.

use std::{fs::OpenOptions, io::ErrorKind};

use crate::{prelude::*, product};

/// The state of `/dev/kvm`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kvm {
    /// VT-x or AMD-V.
    Hardware,
    /// Opens on a CPU without either: ring 3 only.
    Software,
    /// No working `/dev/kvm`.
    Absent,
    /// This user may not open `/dev/kvm`.
    Denied,
}

impl Kvm {
    pub fn here() -> Self {
        match OpenOptions::new().read(true).write(true).open("/dev/kvm") {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Self::Denied,
            Err(_) => Self::Absent,
            Ok(_) if cpu_has("vmx") || cpu_has("svm") => Self::Hardware,
            Ok(_) => Self::Software,
        }
    }
}

fn cpu_has(flag: &str) -> bool {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    cpuinfo
        .lines()
        .find(|line| line.starts_with("flags"))
        .is_some_and(|line| line.split_whitespace().any(|word| word == flag))
}

/// Whether this is the emulated host, where the product is the first process.
pub fn is_emulated() -> bool {
    product::binary() == Path::new(product::IN_EMULATED_HOST)
}

/// Skips a test outside the emulated host.
pub fn need_emulated() -> anyhow::Result<()> {
    if is_emulated() { Ok(()) } else { skip("this is not an emulated host") }
}

/// Whether guest kernels run on an emulated CPU.
pub fn emulates_guests() -> bool {
    is_emulated() || Kvm::here() != Kvm::Hardware
}

/// Skips a test that needs a local KVM, hardware or software.
pub fn need_kvm() -> anyhow::Result<()> {
    match Kvm::here() {
        Kvm::Hardware | Kvm::Software => Ok(()),
        Kvm::Absent => skip("there is no /dev/kvm here"),
        Kvm::Denied => skip("/dev/kvm may not be opened by this user"),
    }
}

/// Skips a test of behaviour that only a software KVM has.
pub fn need_software_kvm() -> anyhow::Result<()> {
    need_kvm()?;
    if Kvm::here() == Kvm::Software { Ok(()) } else { skip("this host's KVM is a hardware one") }
}

/// Skips a test that changes user ids or mounts.
pub fn need_root() -> anyhow::Result<()> {
    if rustix::process::getuid().is_root() { Ok(()) } else { skip("it needs root") }
}
