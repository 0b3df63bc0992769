//! Guest kernels that the user names, checked before anything starts, wherever they will be booted.

use std::{
    fs::{self, File},
    io::Read,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
};

use crate::Usage;
use base::{
    files::{self, FileError},
    sanitize,
    units::{ByteSize, VcpuCount},
};
use machine::{
    guest::linux,
    vm::{self, GuestSpec, MachineSpec, VmError},
};
use os::artifacts::cache_dir;

/// Returns the absolute path of the kernel that this option names: a file, the kernel in a build directory, or the kernel
/// in a Debian package. Fails unless it is a readable regular file.
pub fn resolve(file: &Path, option: &str) -> Result<PathBuf, Usage> {
    let refused =
        |error: &dyn std::fmt::Display| Usage(format!("{option} {}: {error}", file.display()));
    match files::open_regular(file) {
        Ok(opened) if is_package(&opened) => in_package(file).map_err(|error| refused(&error)),
        Ok(_) => fs::canonicalize(file).map_err(|error| refused(&error)),
        Err(FileError::Directory) => in_folder(file).map_err(|error| refused(&error)),
        Err(problem) => Err(refused(&problem)),
    }
}

/// Finds the kernel in a build directory.
fn in_folder(folder: &Path) -> Result<PathBuf, String> {
    const NAMES: [&str; 4] = ["arch/x86/boot/bzImage", "bzImage", "vmlinuz", "vmlinux"];
    match files::first_existing(NAMES.map(|name| folder.join(name))) {
        Ok(Some(file)) => fs::canonicalize(&file).map_err(|error| error.to_string()),
        Ok(None) => Err(format!("it is a directory without a kernel ({})", NAMES.join(", "))),
        Err((file, error)) => {
            Err(format!("it is a directory, and {} in it: {error}", file.display()))
        }
    }
}

/// Whether a file is an archive of ar, and hence a Debian package.
fn is_package(mut file: &File) -> bool {
    let mut start = [0; 8];
    file.read_exact(&mut start).is_ok() && &start == b"!<arch>\n"
}

/// Extracts the kernel from a Debian package to the cache, named by size and time of the package.
fn in_package(package: &Path) -> Result<PathBuf, String> {
    const EXTRACT: &str = "dpkg-deb --fsys-tarfile \"$1\" |
        tar xO --wildcards './boot/vmlinuz*' './usr/lib/modules/*/vmlinuz' >\"$2\" 2>/dev/null
        [ -s \"$2\" ]";
    let cannot = |error: &dyn std::fmt::Display| format!("cannot unpack it: {error}");
    let data = fs::metadata(package).map_err(|error| cannot(&error))?;
    let folder = cache_dir().map_err(|error| cannot(&error))?.join("unpacked");
    let name = package.file_stem().unwrap_or_default().to_string_lossy();
    let kernel = folder.join(format!("{name}-{}-{}", data.len(), data.mtime()));
    if files::is_file(&kernel).unwrap_or(false) {
        return Ok(kernel);
    }
    fs::create_dir_all(&folder).map_err(|error| cannot(&error))?;
    let partial = tempfile::NamedTempFile::new_in(&folder).map_err(|error| cannot(&error))?;
    let script =
        Command::new("sh").args(["-c", EXTRACT, "sh"]).arg(package).arg(partial.path()).output();
    let done = script.map_err(|error| cannot(&error))?;
    if !done.status.success() {
        let reason = String::from_utf8_lossy(&done.stderr);
        let reason = reason.lines().next().map_or("no /boot/vmlinuz in it".into(), sanitize::line);
        return Err(cannot(&reason));
    }
    partial.persist(&kernel).map_err(|error| cannot(&error.error))?;
    Ok(kernel)
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
    fn directory_stands_for_its_kernel() {
        let folder = TempDir::new().unwrap();
        let found = || resolve(folder.path(), "--kernel").map_err(|error| error.0);
        assert!(found().unwrap_err().contains("directory without a kernel"));
        let built = folder.path().join("vmlinux");
        // A file that cannot be inspected, not even by root.
        std::os::unix::fs::symlink("vmlinux", &built).unwrap();
        assert!(found().unwrap_err().contains("vmlinux in it: Too many levels"));
        fs::remove_file(&built).unwrap();
        fs::write(&built, "kernel").unwrap();
        assert_eq!(found(), Ok(fs::canonicalize(&built).unwrap()));
        let missing = resolve(Path::new("/no/such"), "--guest-kernel").unwrap_err().0;
        assert!(missing.starts_with("--guest-kernel /no/such: No such file"), "{missing}");
    }

    #[test]
    fn package_without_a_kernel_is_refused() {
        let folder = TempDir::new().unwrap();
        let package = folder.path().join("empty.deb");
        fs::write(&package, "!<arch>\n").unwrap();
        let error = resolve(&package, "--guest-kernel").unwrap_err().0;
        assert!(error.contains("empty.deb: cannot unpack it: "), "{error}");
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
