//! Files that `make` builds or fetches: the cache directory and the paths in it.

use std::{
    env,
    ffi::OsString,
    fs::File,
    io::{self, ErrorKind},
    path::PathBuf,
};

use base::{
    files,
    guest_kernel::{Flavour, GuestKernel},
    program::is_static,
};
use thiserror::Error;

/// A missing or unreadable file. Each message names a remedy.
#[derive(Debug, Error)]
pub enum ArtifactError {
    /// Neither a cache directory nor a home directory is known.
    #[error("no directory for the cache: set HOME, XDG_CACHE_HOME or PVTICKET_CACHE")]
    NoCache,
    /// The file or its directory cannot be accessed.
    #[error("cannot access {0}: set PVTICKET_CACHE to a directory that you may read")]
    Unreadable(PathBuf, #[source] io::Error),
    /// A guest kernel that `pvticket setup` has not built.
    #[error(
        "no kernel of Linux {kernel} with {} at {path}: run `pvticket setup {}`",
        flavour.locks(), kernel.setup_part(*flavour)
    )]
    GuestKernel {
        /// The requested Linux version.
        kernel: GuestKernel,
        /// The requested spinlocks.
        flavour: Flavour,
        /// Expected path of its `vmlinux`.
        path: PathBuf,
    },
    /// `pvticket setup busybox` has not run.
    #[error("no static busybox at {0}: run `pvticket setup busybox`")]
    Busybox(PathBuf),
    /// `pvticket setup guest-disk` has not run.
    #[error("no guest disk with PostgreSQL at {0}: run `pvticket setup guest-disk`")]
    GuestDisk(PathBuf),
}

/// Returns the directory of all built and fetched files: `$PVTICKET_CACHE`, or else
/// `pvticket` in `$XDG_CACHE_HOME` or in `~/.cache`.
pub fn cache_dir() -> Result<PathBuf, ArtifactError> {
    cache_dir_from(|name| env::var_os(name))
}

fn cache_dir_from(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, ArtifactError> {
    let path = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    path("PVTICKET_CACHE")
        .or_else(|| path("XDG_CACHE_HOME").map(|dir| dir.join("pvticket")))
        .or_else(|| path("HOME").map(|home| home.join(".cache/pvticket")))
        .ok_or(ArtifactError::NoCache)
}

fn cached(
    name: &str,
    missing: impl FnOnce(PathBuf) -> ArtifactError,
) -> Result<PathBuf, ArtifactError> {
    let file = cache_dir()?.join(name);
    match files::is_file(&file) {
        Ok(true) => Ok(file),
        Ok(false) => Err(missing(file)),
        Err(error) => Err(ArtifactError::Unreadable(file, error)),
    }
}

/// Returns the ELF `vmlinux` of a guest kernel built by `pvticket setup`.
pub fn guest_kernel(kernel: GuestKernel, flavour: Flavour) -> Result<PathBuf, ArtifactError> {
    let missing = |path| ArtifactError::GuestKernel { kernel, flavour, path };
    cached(&kernel.file(flavour), missing)
}

/// Returns the guest kernel with PV ticketlocks that is booted by default.
pub fn default_kernel() -> Result<PathBuf, ArtifactError> {
    guest_kernel(GuestKernel::default(), Flavour::Ticket)
}

/// Returns a static busybox for the guest: from the cache, or else the system's if static.
pub fn busybox() -> Result<PathBuf, ArtifactError> {
    let cached = cache_dir()?.join("busybox/busybox");
    let places = [cached.clone(), "/usr/bin/busybox".into(), "/bin/busybox".into()];
    if let Some(busybox) = places.into_iter().find(|file| is_static(file)) {
        return Ok(busybox);
    }
    match File::open(&cached) {
        Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Err(ArtifactError::Unreadable(cached, error))
        }
        _ => Err(ArtifactError::Busybox(cached)),
    }
}

/// Path of the guest disk in the cache.
pub const GUEST_DISK: &str = "guest-disk/current/root.cpio";

/// Returns the path of the guest's root with PostgreSQL, a cpio archive from `setup guest-disk`.
pub fn guest_disk() -> Result<PathBuf, ArtifactError> {
    cached(GUEST_DISK, ArtifactError::GuestDisk)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(set: &[(&str, &str)]) -> Option<PathBuf> {
        cache_dir_from(|name| {
            set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
        })
        .ok()
    }

    #[test]
    fn cache_directory_follows_the_environment() {
        let variables = [("PVTICKET_CACHE", "/p"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(cache(&variables), Some("/p".into()));
        assert_eq!(cache(&variables[1..]), Some("/x/pvticket".into()));
        assert_eq!(cache(&variables[2..]), Some("/h/.cache/pvticket".into()));
        assert_eq!(cache(&[("PVTICKET_CACHE", ""), ("HOME", "/h")]), cache(&variables[2..]));
        assert_eq!(cache(&[]), None);
    }
}
