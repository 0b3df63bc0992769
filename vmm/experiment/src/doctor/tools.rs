//! Programs of the host, and our own files in the cache.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use serde::Serialize;

use base::{
    chain::chain,
    guest_kernel::{Flavour, GuestKernel},
};
use emulated::{Parts, PartsError, QEMU, find_qemu};
use os::{artifacts, owners::untrusted_user};
use study::point::HostKernel;

/// A program that pvticket or its build uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tool {
    /// The program's name.
    pub name: &'static str,
    /// Purpose of the program.
    pub purpose: &'static str,
    /// Whether anything fails without it. Package tools only save work.
    pub needed: bool,
    /// Path, if found.
    pub path: Option<PathBuf>,
    /// The version that it prints.
    pub version: Option<String>,
}

/// A file that `pvticket setup` or `make` builds or fetches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Artifact {
    /// Description of the file.
    pub name: &'static str,
    /// Whether common use fails without it. Other files serve special uses.
    pub needed: bool,
    /// Path, if it exists.
    pub path: Option<PathBuf>,
    /// The missing part, and the command that creates it.
    pub problem: Option<String>,
}

const HOST: &str = "the emulated host";
const RUST: &str = "building pvticket";
const KERNEL: &str = "building the guest kernel";
const SETUP: &str = "setting up";

/// Name, purpose, and whether to query the version.
const TOOLS: [(&str, &str, bool); 10] = [
    (QEMU, HOST, true),
    ("cargo", RUST, true),
    ("rustc", RUST, true),
    ("gcc", KERNEL, true),
    ("make", KERNEL, false),
    ("flex", KERNEL, false),
    ("bison", KERNEL, false),
    ("bc", KERNEL, false),
    ("dpkg", SETUP, false),
    ("apt-get", SETUP, false),
];

/// Looks for all programs, querying versions in parallel.
pub(super) fn find_tools() -> Vec<Tool> {
    thread::scope(|scope| {
        TOOLS
            .map(|(name, purpose, ask)| {
                let probe = move || {
                    let path = if name == QEMU { find_qemu().ok() } else { on_path(name) };
                    let version = path.as_deref().filter(|_| ask).and_then(version);
                    Tool { name, purpose, needed: purpose != SETUP, path, version }
                };
                // Without a thread it only takes longer.
                thread::Builder::new().spawn_scoped(scope, probe).map_err(|_| probe())
            })
            .into_iter()
            .filter_map(|thread| thread.map_or_else(Some, |thread| thread.join().ok()))
            .collect()
    })
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

fn version(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then(|| first_version(&text)).flatten()
}

/// Returns the first version in the first line, without a distribution's suffix.
fn first_version(text: &str) -> Option<String> {
    let line = text.lines().next()?;
    let mut words = line.split(|c: char| c.is_whitespace() || "(),".contains(c));
    let dotted = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
    let word = words.find(dotted)?;
    Some(word.split(['-', '+', '~']).next().unwrap_or(word).to_owned())
}

/// The directory of our files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CacheFacts {
    /// Its path, if known.
    pub folder: Option<PathBuf>,
    /// Description of another user who could change its contents.
    pub stranger: Option<String>,
}

/// Inspects the directory of our files.
pub(super) fn find_cache() -> CacheFacts {
    let folder = artifacts::cache_dir().ok();
    let stranger = folder.as_deref().and_then(untrusted_user).map(|user| user.to_string());
    CacheFacts { folder, stranger }
}

/// Looks for our files in the cache.
pub(super) fn find_artifacts() -> Vec<Artifact> {
    vec![
        artifact("PV ticketlock kernel", true, artifacts::default_kernel()),
        artifact("emulated host's kernel", true, host_kernel(HostKernel::Linux6_1)),
        artifact("busybox for guests", true, artifacts::busybox()),
        artifact("its kernel 7", false, host_kernel(HostKernel::Linux7)),
        artifact(
            "stock spinlock kernel",
            false,
            artifacts::guest_kernel(GuestKernel::default(), Flavour::Stock),
        ),
        artifact("guest disk, PostgreSQL", false, artifacts::guest_disk()),
    ]
}

fn host_kernel(kernel: HostKernel) -> Result<PathBuf, PartsError> {
    Parts::find(kernel).map(|pieces| pieces.kernel)
}

fn artifact<E: std::error::Error>(
    name: &'static str,
    needed: bool,
    result: Result<PathBuf, E>,
) -> Artifact {
    let (path, problem) = match result {
        Ok(path) => (Some(path), None),
        Err(error) => (None, Some(chain(&error))),
    };
    Artifact { name, needed, path, problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_parsed_from_program_output() {
        for (text, version) in [
            ("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)\nCopyright", Some("7.2.22")),
            ("cargo 1.95.0 (f2d3ce0bd 2026-03-21)\n", Some("1.95.0")),
            ("gcc (Debian 12.2.0-14+deb12u1) 12.2.0\n", Some("12.2.0")),
            ("what?\n", None),
            ("", None),
        ] {
            assert_eq!(first_version(text).as_deref(), version, "{text}");
        }
    }
}
