//! The confinement of QEMU, which is the boundary around the emulated host: whatever runs in there
//! may be hostile, its agent included, and QEMU's TCG promises no isolation.

use std::{path::PathBuf, process::Command};

use super::{MachineError, Pieces, Size};
use confine::{Files, rules_of_child};
use kvm::sys::spawn::{self, Cell};

/// QEMU's own filter of system calls: no obsolete ones, no new privileges, no processes, no changes
/// to its threads' priorities and limits.
pub(super) const SANDBOX: &str =
    "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";

/// Address space beyond the machine's memory: the translated code (1 GiB by default), stacks and
/// heaps of its threads. A machine with 9 CPUs was seen to reserve 3 GiB.
const MEMORY: u64 = 8 << 30;

/// Confines QEMU, beyond what it does itself once it has started.
pub(super) fn confine(
    command: &mut Command,
    pieces: &Pieces,
    size: Size,
) -> Result<(), MachineError> {
    let files = rules_of_child(&files(pieces)).map_err(MachineError::Confine)?;
    let memory = size.memory.0.saturating_add(MEMORY);
    spawn::confine(command, Cell { files, memory });
    Ok(())
}

/// What QEMU opens: itself with its libraries and firmware, and the kernel. The initramfs comes as an
/// open descriptor.
fn files(pieces: &Pieces) -> Files {
    let libraries = ["/usr", "/lib", "/lib64"].map(PathBuf::from);
    // With a QEMU of `pvticket setup host`: the folder that has its `bin` and `share`.
    let own = pieces.qemu.canonicalize().ok();
    let own = own.and_then(|file| Some(file.parent()?.parent()?.to_owned()));
    let named = ["/etc/ld.so.cache", "/proc", "/sys/devices/system", "/dev/urandom"];
    Files {
        read: named.into_iter().map(PathBuf::from).chain([pieces.kernel.clone()]).collect(),
        programs: libraries.into_iter().chain([pieces.qemu.clone()]).chain(own).collect(),
        ..Files::default()
    }
}
