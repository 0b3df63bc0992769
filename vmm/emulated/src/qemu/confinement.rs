//! The confinement of QEMU, which is the boundary around the emulated host. All software in it,
//! including its agent, may be hostile, and QEMU's TCG does not guarantee isolation.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{MachineSize, Parts, QemuError};
use confine::{Files, child_filter, child_rules};
use kvm::sys::spawn::{self, ChildLimits};

/// QEMU's own system call filter: no obsolete calls, no new privileges, no processes, no changes to
/// its threads' priorities and limits.
pub(super) const SANDBOX: &str =
    "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";

/// Address space beyond the machine's memory: translated code (1 GiB by default), stacks and heaps of
/// the threads. A machine with 9 CPUs was seen to reserve 3 GiB.
const EXTRA_ADDRESS_SPACE: u64 = 8 << 30;

/// Confines QEMU from its start, in addition to its own restrictions.
pub(super) fn confine(
    command: &mut Command,
    pieces: &Parts,
    size: MachineSize,
) -> Result<(), QemuError> {
    let files = child_rules(&files(pieces)).map_err(QemuError::Confine)?;
    let calls = child_filter().map_err(QemuError::Calls)?;
    let memory = size.memory.0.saturating_add(EXTRA_ADDRESS_SPACE);
    spawn::confine(command, ChildLimits { files, memory, calls });
    Ok(())
}

/// Locations of QEMU's libraries and firmware, which it may also execute, and further readable files.
const LIBRARIES: [&str; 3] = ["/usr", "/lib", "/lib64"];
const READ: [&str; 4] = ["/etc/ld.so.cache", "/proc", "/sys/devices/system", "/dev/urandom"];

/// Returns QEMU's limits besides our own system call filter, as human-readable lines.
pub fn limits_of_qemu() -> String {
    let (libraries, read) = (LIBRARIES.join(", "), READ.join(", "));
    format!(
        "-sandbox {SANDBOX}: no obsolete calls, no other users and groups, no programs and processes, no priorities, CPUs and \
         classes of threads\n\
         Landlock: reads and executes {libraries}, its own program and firmware; reads {read} and the kernel; writes, makes \
         and removes no file; no ioctls of devices (Linux 6.10), no TCP (6.7), no signals and abstract sockets of others (6.12)\n\
         also: no capabilities, no new privileges, no core dumps, address space for its machine and {} GiB more, no descriptors but its \
         own\n",
        EXTRA_ADDRESS_SPACE >> 30
    )
}

/// Returns the files that QEMU opens: itself with its libraries and firmware, and the kernel. The
/// initramfs is passed as an open descriptor.
fn files(pieces: &Parts) -> Files {
    let libraries = LIBRARIES.map(PathBuf::from);
    Files {
        read: READ.into_iter().map(PathBuf::from).chain([pieces.kernel.clone()]).collect(),
        programs: libraries.into_iter().chain(own_files(&pieces.qemu)).collect(),
        ..Files::default()
    }
}

/// Returns QEMU's binary and the folders of its firmware and modules: of an installation (`PREFIX/bin`), or of a build
/// folder in the source tree.
fn own_files(qemu: &Path) -> Vec<PathBuf> {
    let file = qemu.canonicalize().unwrap_or_else(|_| qemu.to_owned());
    let names = ["../share", "../lib", "pc-bios", "qemu-bundle", "../pc-bios"];
    let folders = file.parent().map(|folder| names.map(|name| folder.join(name)));
    folders.into_iter().flatten().chain([file.clone()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: QEMU could read everything in the folder above its binary's, such as `/home`.
    #[test]
    fn a_binary_in_a_home_opens_only_firmware() {
        let files = own_files(Path::new("/home/u/qemu"));
        let is_firmware = |path: &&PathBuf| {
            ["share", "lib", "pc-bios", "qemu-bundle"].iter().any(|name| path.ends_with(name))
        };
        let others: Vec<_> = files.iter().filter(|path| !is_firmware(path)).collect();
        assert_eq!(others, [Path::new("/home/u/qemu")]);
    }

    /// Regression: QEMU kept sockets and signals.
    #[test]
    fn a_confined_child_signals_nobody() {
        let kills = |calls| {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", "kill -0 $PPID"]);
            spawn::confine(&mut command, ChildLimits { files: None, memory: 1 << 30, calls });
            let ended = command.output().unwrap();
            (ended.status.success(), String::from_utf8_lossy(&ended.stderr).into_owned())
        };
        let (succeeds, stderr) = kills(child_filter().unwrap());
        assert!(!succeeds && stderr.contains("not permitted"), "{stderr}");
        assert!(kills(Vec::new()).0, "a child that is not filtered does");
    }
}
