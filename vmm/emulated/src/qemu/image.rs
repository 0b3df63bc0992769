//! The emulated host's initramfs: this binary as `/init`, the modules, and the command's files.

use std::{
    collections::BTreeSet,
    env,
    fs::{self, File},
    io::{self, BufWriter, Seek},
    os::fd::OwnedFd,
    path::{Component, Path, PathBuf},
    thread,
    time::Duration,
};

use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create},
    io::Errno,
};
use thiserror::Error;

use base::{
    files::{self, FileError},
    program::is_static,
};

use super::pieces::Module;
use crate::Errand;
use boot::cpio::{Archive, CpioError};

/// The folder of the modules in the initramfs. Their names define their order.
pub const MODULES: &str = "pvticket/modules";

/// Retries of sealing the memory, and the time between them. The kernel refuses while another user holds
/// one of the pages, such as another CPU's LRU batch or compaction. It waits for 150 ms itself
/// (`memfd_wait_for_pins` in mm/memfd.c), which is too short on a busy host.
const SEAL_RETRIES: (u32, Duration) = (40, Duration::from_millis(50));

/// Reason why the initramfs cannot be made.
#[derive(Debug, Error)]
pub enum InitramfsError {
    /// This binary cannot be found.
    #[error("cannot find this program's own file")]
    OwnBinary(#[source] io::Error),
    /// This binary needs a dynamic loader, which the emulated host lacks.
    #[error("{0} is not a static binary, so it cannot start the emulated host: build it by `make`")]
    NotStatic(PathBuf),
    /// A file cannot be read.
    #[error("cannot read {path}")]
    Open { path: PathBuf, source: io::Error },
    /// A path in the emulated host is not absolute, not UTF-8, or has a `..`.
    #[error("invalid path '{0}' in the emulated host: use an absolute path without '..'")]
    Place(PathBuf),
    /// The memory cannot be allocated or sealed.
    #[error("cannot hold the emulated host's initramfs in memory")]
    Memory(#[source] io::Error),
    /// The initramfs cannot be written.
    #[error(transparent)]
    Cpio(#[from] CpioError),
}

/// The initramfs in anonymous memory, which needs no cleanup.
#[derive(Debug)]
pub struct Initramfs {
    file: File,
}

impl Initramfs {
    /// Packs this binary, the modules and the command's files.
    pub fn pack(modules: &[Module], errand: &Errand) -> Result<Self, InitramfsError> {
        let binary = env::current_exe().map_err(InitramfsError::OwnBinary)?;
        // Uses the link rather than its target, as that path goes stale when the binary is rebuilt.
        if !is_static(Path::new("/proc/self/exe")) {
            return Err(InitramfsError::NotStatic(binary));
        }
        let memory =
            memfd_create("pvticket-initramfs", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
                .map_err(|errno| InitramfsError::Memory(errno.into()))?;
        let mut packer = Packer::new(File::from(memory));
        packer.skeleton()?;
        packer.add(Path::new("/proc/self/exe"), "init")?;
        for (place, module) in modules.iter().enumerate() {
            packer.module(module, &format!("{MODULES}/{place:02}-{}.ko", module.name))?;
        }
        for (host, inside) in &errand.files_in {
            packer.add(host, &relative(inside)?)?;
        }
        for (bytes, inside) in &errand.contents_in {
            packer.contents(bytes, &relative(inside)?)?;
        }
        let file = packer.finish()?;
        // QEMU's descriptor is writable, and a restarted machine gets the same file.
        let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        let (times, pause) = SEAL_RETRIES;
        retry_while_busy(times, || fcntl_add_seals(&file, seals), || thread::sleep(pause))
            .map_err(|errno| InitramfsError::Memory(errno.into()))?;
        Ok(Self { file })
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the length in bytes.
    pub fn size(&self) -> u64 {
        self.file.metadata().map_or(0, |data| data.len())
    }
}

impl From<Initramfs> for OwnedFd {
    fn from(image: Initramfs) -> Self {
        image.file.into()
    }
}

/// Repeats a call up to `times` times while it returns `EBUSY`.
fn retry_while_busy(
    times: u32,
    mut call: impl FnMut() -> Result<(), Errno>,
    mut pause: impl FnMut(),
) -> Result<(), Errno> {
    for _ in 0..times {
        match call() {
            Err(Errno::BUSY) => pause(),
            result => return result,
        }
    }
    call()
}

/// Converts an absolute path to the form that cpio needs.
fn relative(inside: &Path) -> Result<String, InitramfsError> {
    let bad = || InitramfsError::Place(inside.into());
    let mut parts = Vec::new();
    for part in inside.components() {
        match part {
            Component::RootDir => {}
            Component::Normal(name) => parts.push(name.to_str().ok_or_else(bad)?),
            _ => return Err(bad()),
        }
    }
    if inside.is_absolute() && !parts.is_empty() { Ok(parts.join("/")) } else { Err(bad()) }
}

/// Returns a module without its signature. The kernel accepts both, but checking the signatures of these
/// modules takes a quarter of all instructions of the boot (measured).
///
/// The end of the file consists of the signature, 12 bytes whose last four are its length, and the mark
/// (include/linux/module_signature.h).
fn unsigned(module: &[u8]) -> &[u8] {
    const MARK: &[u8] = b"~Module signature appended~\n";
    let body = module.strip_suffix(MARK).and_then(|rest| {
        let (rest, length) = rest.split_last_chunk::<4>()?;
        let signature = u32::from_be_bytes(*length) as usize + 8;
        rest.get(..rest.len().checked_sub(signature)?)
    });
    body.unwrap_or(module)
}

struct Packer {
    archive: Archive<BufWriter<File>>,
    folders: BTreeSet<String>,
}

impl Packer {
    fn new(file: File) -> Self {
        let buffered = BufWriter::with_capacity(1 << 20, file);
        Self { archive: Archive::new(buffered), folders: BTreeSet::new() }
    }

    fn skeleton(&mut self) -> Result<(), InitramfsError> {
        for folder in ["dev", "proc", "sys", "tmp", "run", "root"] {
            self.folder(folder)?;
        }
        // The kernel opens it as stdin, stdout and stderr of /init.
        Ok(self.archive.character_device("dev/console", 0o600, 5, 1)?)
    }

    fn folder(&mut self, path: &str) -> Result<(), InitramfsError> {
        if !self.folders.insert(path.into()) {
            return Ok(());
        }
        Ok(self.archive.directory(path, if path == "tmp" { 0o1777 } else { 0o755 })?)
    }

    fn folders_of(&mut self, path: &str) -> Result<(), InitramfsError> {
        path.match_indices('/').try_for_each(|(slash, _)| self.folder(&path[..slash]))
    }

    fn module(&mut self, module: &Module, to: &str) -> Result<(), InitramfsError> {
        self.folders_of(to)?;
        let bytes = fs::read(&module.path)
            .map_err(|source| InitramfsError::Open { path: module.path.clone(), source })?;
        Ok(self.archive.file(to, 0o644, unsigned(&bytes))?)
    }

    fn add(&mut self, from: &Path, to: &str) -> Result<(), InitramfsError> {
        self.folders_of(to)?;
        let failed = |source| InitramfsError::Open { path: from.into(), source };
        let mut file = files::open_regular(from).map_err(|error| match error {
            FileError::Io(error) => failed(error),
            error => failed(io::Error::other(error.to_string())),
        })?;
        let data = file.metadata().map_err(failed)?;
        Ok(self.archive.file_from(to, 0o755, data.len(), &mut file)?)
    }

    fn contents(&mut self, bytes: &[u8], to: &str) -> Result<(), InitramfsError> {
        self.folders_of(to)?;
        Ok(self.archive.file(to, 0o644, bytes)?)
    }

    fn finish(self) -> Result<File, InitramfsError> {
        let buffered = self.archive.finish()?;
        let mut file =
            buffered.into_inner().map_err(|error| InitramfsError::Memory(error.into_error()))?;
        file.rewind().map_err(InitramfsError::Memory)?;
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_cut_off() {
        let signed = b"ELF body\x01\x02\x03\0\0\0\0\0\0\0\0\0\0\0\x03~Module signature appended~\n";
        assert_eq!(unsigned(signed), b"ELF body");
        assert_eq!(unsigned(b"ELF body"), b"ELF body");
        let nonsense = b"\xff\xff\xff\xff~Module signature appended~\n";
        assert_eq!(unsigned(nonsense), nonsense);
    }

    /// Regression: on a host with twenty busy threads, a command ended with "Device or resource busy".
    #[test]
    fn sealing_is_retried_while_busy() {
        for (answers, expected, pauses) in [
            (&[Ok(())][..], Ok(()), 0),
            (&[Err(Errno::BUSY), Err(Errno::BUSY), Ok(())], Ok(()), 2),
            (&[Err(Errno::BUSY), Err(Errno::PERM), Ok(())], Err(Errno::PERM), 1),
            (&[Err(Errno::BUSY); 5], Err(Errno::BUSY), 3),
        ] {
            let (mut calls, mut paused) = (answers.iter(), 0);
            let sealed = retry_while_busy(3, || *calls.next().unwrap(), || paused += 1);
            assert_eq!((sealed, paused), (expected, pauses), "{answers:?}");
        }
    }

    #[test]
    fn paths_in_the_image_are_absolute() {
        assert_eq!(relative(Path::new("/in/kernel")).unwrap(), "in/kernel");
        for bad in ["in/kernel", "/", "/in/../x", "", "."] {
            assert!(matches!(relative(Path::new(bad)), Err(InitramfsError::Place(_))), "{bad}");
        }
    }
}
