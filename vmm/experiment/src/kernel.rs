//! Guest kernels that the user names, checked before anything starts, wherever they will be booted.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::Usage;
use base::{
    files::{self, FileError},
    units::{ByteSize, VcpuCount},
};
use machine::{
    guest::linux,
    vm::{self, GuestSpec, MachineSpec, VmError},
};

/// Returns the absolute path of the file that this option names. Fails unless it is a readable regular file.
pub fn resolve(file: &Path, option: &str) -> Result<PathBuf, Usage> {
    let refused =
        |error: &dyn std::fmt::Display| Usage(format!("{option} {}: {error}", file.display()));
    match files::open_regular(file) {
        Ok(_) => fs::canonicalize(file).map_err(|error| refused(&error)),
        Err(FileError::Directory) => Err(refused(&in_folder(file))),
        Err(problem) => Err(refused(&problem)),
    }
}

/// Describes what to do with a directory, which may be a build directory.
fn in_folder(folder: &Path) -> String {
    const NAMES: [&str; 4] = ["vmlinux", "arch/x86/boot/bzImage", "bzImage", "vmlinuz"];
    match files::first_existing(NAMES.map(|name| folder.join(name))) {
        Ok(Some(file)) => format!("it is a directory: name the kernel in it, {}", file.display()),
        Ok(None) => FileError::Directory.to_string(),
        Err((file, error)) => format!("it is a directory, and {} in it: {error}", file.display()),
    }
}

/// Checks that a guest with this much memory can boot this kernel.
pub fn check(kernel: &Path, memory: ByteSize) -> Result<(), VmError> {
    let guest = GuestSpec::Linux {
        kernel: kernel.into(),
        initrd: Vec::new(),
        cmdline: linux::bare_cmdline(""),
    };
    vm::check_guest(&MachineSpec::new(VcpuCount::ONE, memory, guest))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use base::chain::chain;

    #[test]
    fn directory_error_names_its_kernel() {
        let folder = TempDir::new().unwrap();
        let error = || resolve(folder.path(), "--kernel").unwrap_err().0;
        assert!(error().ends_with(": it is a directory"), "{}", error());
        let built = folder.path().join("vmlinux");
        // A file that cannot be inspected, not even by root.
        std::os::unix::fs::symlink("vmlinux", &built).unwrap();
        assert!(error().contains("vmlinux in it: Too many levels"), "{}", error());
        fs::remove_file(&built).unwrap();
        fs::write(&built, "kernel").unwrap();
        assert!(error().ends_with(&built.display().to_string()), "{}", error());
        assert!(resolve(&built, "--kernel").is_ok());
        let missing = resolve(Path::new("/no/such"), "--stock-kernel").unwrap_err().0;
        assert!(missing.starts_with("--stock-kernel /no/such: No such file"), "{missing}");
    }

    #[test]
    fn unbootable_kernel_is_rejected_with_a_reason() {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("vmlinux.xz");
        fs::write(&file, b"\xfd7zXZ\0and more").unwrap();
        let error = chain(&check(&file, ByteSize::mib(64)).unwrap_err());
        assert!(error.contains("vmlinux.xz: ") && error.contains("compressed with xz"), "{error}");
        fs::write(&file, boot::test_fixtures::vmlinux()).unwrap();
        assert!(check(&file, ByteSize::mib(64)).is_ok());
        assert!(chain(&check(&file, ByteSize::mib(16)).unwrap_err()).contains("--mem"));
    }
}
