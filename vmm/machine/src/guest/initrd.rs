//! The Linux guest's initrd, assembled from parts so that big files go straight from the page cache
//! into guest memory.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Read},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::Command,
};

use thiserror::Error;

use super::unpackable::{self, UnpackError};
use boot::cpio::{Archive, CpioError};

/// The guest's `/init`, a static ELF.
pub const GUEST_INIT: &[u8] = include_bytes!(env!("PVTICKET_GUEST_INIT_ELF"));

/// The Linux guest's workloads, a static ELF.
pub const GUEST_BENCH: &[u8] = include_bytes!(env!("PVTICKET_GUEST_BENCH_ELF"));

/// One part of an initrd. The loader pads each part but the last to a multiple of four bytes.
#[derive(Debug, Clone)]
pub enum InitrdSource {
    /// A whole file.
    File(PathBuf),
    /// Bytes generated here.
    Bytes(Vec<u8>),
}

/// The files that we add to a guest.
#[derive(Debug, Clone, Copy, Default)]
pub struct GuestRoot<'a> {
    /// A static busybox: the guest gets its applets and an `/init`. None leaves the root to the
    /// user's initrd.
    pub busybox: Option<&'a Path>,
    /// An archive with PostgreSQL to add, for the workload `pgbench`.
    pub guest_disk: Option<&'a Path>,
    /// The command; empty means a shell.
    pub argv: &'a [OsString],
    /// What the shell reads is not typed by a person: its terminal edits and echoes no lines.
    pub plain_lines: bool,
    /// The user's terminal type (`TERM`), for the environment.
    pub term: Option<&'a OsStr>,
}

/// Errors of an initrd.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum InitrdError {
    /// The archive of our own files cannot be written.
    #[error("initrd")]
    Archive(#[from] CpioError),
    /// A file cannot be read.
    #[error("initrd: cannot read {path}")]
    Unreadable { path: PathBuf, source: io::Error },
    /// busybox does not list its applets.
    #[error(
        "initrd: {path} --list does not list its applets: {reason}; run `pvticket setup busybox`"
    )]
    Applets { path: PathBuf, reason: String },
    /// A file that the kernel would not unpack.
    #[error(transparent)]
    Unpack(#[from] UnpackError),
}

/// The parts of the initrd: ours, if a root is given, with the guest disk, then the user's.
///
/// Ours comes first because the kernel expects archives at multiples of four bytes, and a
/// compressed one may end anywhere. Our files are in `/pvticket`, so the user's do not replace
/// them. `kernel` is to unpack them.
pub fn assemble(
    kernel: &Path,
    users: Option<&Path>,
    own: Option<GuestRoot<'_>>,
) -> Result<Vec<InitrdSource>, InitrdError> {
    let mut parts = own.map_or(Ok(Vec::new()), |root| own_parts(kernel, &root))?;
    if let Some(file) = users {
        unpackable::check(file, kernel)?;
        parts.push(InitrdSource::File(file.into()));
    }
    Ok(parts)
}

fn own_parts(kernel: &Path, root: &GuestRoot<'_>) -> Result<Vec<InitrdSource>, InitrdError> {
    let mut parts = Vec::new();
    let mut archive = Archive::new(Vec::new());
    if let Some(busybox) = root.busybox {
        let applets = applets(busybox)?;
        let size = fs::metadata(busybox).map_err(unreadable(busybox))?.len();
        parts = vec![
            InitrdSource::Bytes(skeleton().and_then(|a| a.leave_at_file(BUSYBOX, 0o755, size))?),
            InitrdSource::File(busybox.into()),
        ];
        archive.directory(OURS, 0o755)?;
        archive.file("pvticket/applets", 0o644, applets.as_bytes())?;
    } else {
        archive.directory(OURS, 0o755)?;
    }
    archive.file("pvticket/init", 0o755, GUEST_INIT)?;
    archive.file("pvticket/bench", 0o755, GUEST_BENCH)?;
    if !root.argv.is_empty() {
        let words = root.argv.iter().map(|word| word.as_bytes());
        archive.file("pvticket/argv", 0o644, &nul_terminated(words))?;
    }
    if root.plain_lines {
        archive.file("pvticket/plain-lines", 0o644, b"")?;
    }
    if let Some(term) = root.term {
        let item = [b"TERM=", term.as_bytes()].concat();
        archive.file("pvticket/env", 0o644, &nul_terminated([item.as_slice()].into_iter()))?;
    }
    parts.push(InitrdSource::Bytes(archive.finish()?));
    if let Some(disk) = root.guest_disk {
        unpackable::check(disk, kernel)?;
        parts.push(InitrdSource::File(disk.into()));
    }
    Ok(parts)
}

const OURS: &str = "pvticket";
const BUSYBOX: &str = "bin/busybox";

/// The root of a guest whose only program is busybox. Mount points are created by our init.
fn skeleton() -> Result<Archive<Vec<u8>>, CpioError> {
    let mut archive = Archive::new(Vec::new());
    archive.symlink("init", "pvticket/init")?;
    for directory in ["bin", "usr", "etc"] {
        archive.directory(directory, 0o755)?;
    }
    for (link, target) in [("sbin", "bin"), ("usr/bin", "../bin"), ("usr/sbin", "../bin")] {
        archive.symlink(link, target)?;
    }
    archive.file("etc/passwd", 0o644, b"root:x:0:0:root:/:/bin/sh\n")?;
    archive.file("etc/group", 0o644, b"root:x:0:\n")?;
    Ok(archive)
}

fn nul_terminated<'a>(words: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    words.flat_map(|word| word.iter().copied().chain([0])).collect()
}

fn unreadable(path: &Path) -> impl Fn(io::Error) -> InitrdError + '_ {
    move |source| InitrdError::Unreadable { path: path.into(), source }
}

/// The names of busybox's applets, one per line: from the file `applets` that `pvticket setup busybox` puts
/// next to it, or else from busybox itself.
fn applets(busybox: &Path) -> Result<String, InitrdError> {
    let list = busybox.with_file_name("applets");
    if let Ok(mut file) = File::open(&list) {
        let mut names = String::new();
        file.read_to_string(&mut names).map_err(unreadable(&list))?;
        return Ok(names);
    }
    let failed = |reason| InitrdError::Applets { path: busybox.into(), reason };
    let output =
        Command::new(busybox).arg("--list").output().map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(output.status.to_string()));
    }
    String::from_utf8(output.stdout).map_err(|error| failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use boot::test_fixtures::newc_names as names;

    fn flatten(parts: &[InitrdSource]) -> Vec<u8> {
        let mut all = Vec::new();
        for part in parts {
            match part {
                InitrdSource::Bytes(bytes) => all.extend(bytes),
                InitrdSource::File(file) => all.extend(fs::read(file).expect("read")),
            }
            all.resize(all.len().next_multiple_of(4), 0);
        }
        all
    }

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("pvticket-initrd-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("scratch directory");
        dir.join(name)
    }

    #[test]
    fn all_parts_together_are_one_archive() {
        let busybox = scratch("busybox");
        fs::write(&busybox, [7; 1001]).expect("write");
        fs::write(busybox.with_file_name("applets"), "sh\nls\n").expect("write");
        let root = GuestRoot {
            busybox: Some(&busybox),
            guest_disk: None,
            argv: &["sh".into(), "-c".into(), "exit 7".into()],
            plain_lines: true,
            term: Some(OsStr::new("vt100")),
        };
        let names =
            names(&flatten(&assemble(Path::new("vmlinux"), None, Some(root)).expect("assemble")));
        let ours = ["init", "bench", "applets", "argv", "plain-lines"];
        let ours = ours.map(|name| format!("pvticket/{name}"));
        for name in ["init", "bin/busybox"].into_iter().chain(ours.iter().map(String::as_str)) {
            assert!(names.iter().any(|known| known == name), "{name} is not in {names:?}");
        }
    }

    #[test]
    fn beside_the_users_initrd_only_our_directory_is_added() {
        let users = scratch("users.cpio");
        let archive = Archive::new(Vec::new()).finish().expect("archive");
        fs::write(&users, archive).expect("write");
        let root = GuestRoot { argv: &["true".into()], ..GuestRoot::default() };
        let parts = assemble(Path::new("vmlinux"), Some(&users), Some(root)).expect("assemble");
        assert!(matches!(&parts[1], InitrdSource::File(file) if *file == users));
        let names = names(&flatten(&parts[..1]));
        assert_eq!(names, ["pvticket", "pvticket/init", "pvticket/bench", "pvticket/argv"]);
    }

    #[test]
    fn the_guest_disk_comes_after_the_root_that_it_adds_to() {
        let disk = scratch("disk.cpio");
        let mut archive = Archive::new(Vec::new());
        archive.directory("var", 0o755).expect("directory");
        fs::write(&disk, archive.finish().expect("archive")).expect("write");
        let users = scratch("users-disk.cpio");
        fs::write(&users, Archive::new(Vec::new()).finish().expect("archive")).expect("write");
        let root = GuestRoot { guest_disk: Some(&disk), ..GuestRoot::default() };
        let parts = assemble(Path::new("vmlinux"), Some(&users), Some(root)).expect("assemble");
        let files: Vec<_> = parts
            .iter()
            .filter_map(|part| match part {
                InitrdSource::File(file) => Some(file.clone()),
                InitrdSource::Bytes(_) => None,
            })
            .collect();
        assert_eq!(files, [disk, users]);
        let names = names(&flatten(&parts[..1]));
        assert_eq!(names, ["pvticket", "pvticket/init", "pvticket/bench"]);
    }

    #[test]
    fn words_keep_their_bytes() {
        assert_eq!(nul_terminated([&b"a"[..], b"", b"\xff "].into_iter()), b"a\0\0\xff \0");
    }
}
