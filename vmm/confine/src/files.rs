//! File access limits, by Landlock.
//!
//! Files that are already open and the standard streams are not affected.

use std::{
    error::Error,
    fs, io, iter,
    os::{fd::OwnedFd, unix::fs::MetadataExt},
    path::PathBuf,
};

use kvm::host::DEV_KVM;
use landlock::{
    ABI, Access, AccessFs, AccessNet, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, Scope,
};
use rustix::fs::Stat;

/// The newest version whose rights to files and TCP are handled (scopes: [`WITH_SCOPES`]). Rights that the
/// kernel does not know are left out.
const NEWEST: ABI = ABI::V5;

/// The first version that restricts signals and abstract UNIX sockets to the processes of a ruleset.
pub(crate) const WITH_SCOPES: ABI = ABI::V6;

/// The first version that restricts TCP.
pub(crate) const WITH_NET: u32 = 4;

/// Files that a process may still open.
#[derive(Debug, Clone, Default)]
pub struct Files {
    /// Files and directories that may be read.
    pub read: Vec<PathBuf>,
    /// Programs with their libraries: files and directories that may be read and executed.
    pub programs: Vec<PathBuf>,
    /// Devices that may be read, written and controlled (ioctl).
    pub devices: Vec<PathBuf>,
    /// Pipes, devices and open files that results are written to. A directory is not allowed: its rights
    /// would hold for everything below it.
    pub results: Vec<PathBuf>,
}

/// Restricts the calling thread, and threads that it starts, to these files. They may execute only
/// `programs`, make no TCP connections, and reach no other process by signals or abstract UNIX sockets.
pub(crate) fn restrict(files: &Files) -> Result<(), RulesetError> {
    // Also sets no_new_privs.
    rules(files)?.restrict_self().map(drop)
}

/// Whether the error concerns a pipe or a nameless file, in a file system that cannot be mounted. Landlock
/// has no rules for such files and does not restrict them.
fn is_unmountable(error: &RulesetError) -> bool {
    let mut causes =
        iter::successors(Some(error as &(dyn Error + 'static)), |&error| error.source());
    causes.any(|cause| {
        cause.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) == Some(libc::EBADFD)
    })
}

impl Files {
    /// Whether this file is listed, by the device and inode of its fstat(2). Directories are skipped.
    pub(crate) fn contains(&self, file: &Stat) -> bool {
        let lists = [&self.read, &self.programs, &self.devices, &self.results];
        lists.into_iter().flatten().any(|path| {
            fs::metadata(path).is_ok_and(|data| {
                !data.is_dir() && (data.dev(), data.ino()) == (file.st_dev, file.st_ino)
            })
        })
    }

    /// The files that every process with guests opens: KVM, and the kernel's files that describe the host.
    pub fn for_guests() -> Self {
        Self {
            read: ["/proc", "/sys"].map(PathBuf::from).into(),
            devices: vec![DEV_KVM.into()],
            ..Self::default()
        }
    }
}

/// Creates Landlock rules for a process to be started; None if the kernel has no Landlock.
pub fn child_rules(files: &Files) -> Result<Option<OwnedFd>, RulesetError> {
    rules(files).map(Into::into)
}

fn rules(files: &Files) -> Result<RulesetCreated, RulesetError> {
    let handled = Ruleset::default().handle_access(AccessFs::from_all(NEWEST))?;
    let handled = handled.handle_access(AccessNet::from_all(NEWEST))?;
    let handled = handled.scope(Scope::from_all(WITH_SCOPES))?;
    let reading = AccessFs::ReadFile | AccessFs::ReadDir;
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    let results = AccessFs::WriteFile | AccessFs::Truncate;
    let rules = handled.create()?;
    let groups = [
        (&files.read, reading),
        (&files.programs, reading | AccessFs::Execute),
        (&files.devices, device),
        (&files.results, results),
    ];
    for (paths, rights) in groups {
        for path in paths {
            // A missing file needs no rule, as it cannot be opened.
            let Ok(opened) = PathFd::new(path) else { continue };
            let rights = if path.is_dir() { rights } else { rights & AccessFs::from_file(NEWEST) };
            // The clone is the same ruleset. A refused rule does not change it.
            match rules.try_clone().map(|rules| rules.add_rule(PathBeneath::new(opened, rights))) {
                Ok(Err(error)) if !is_unmountable(&error) => return Err(error),
                _ => {}
            }
        }
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::OpenOptions, io::ErrorKind::PermissionDenied, os::fd::AsRawFd, path::Path, thread,
    };

    use super::*;

    /// Runs `act` on a thread that may open only these results.
    fn confined<T: Send>(results: &[&Path], act: impl FnOnce() -> T + Send) -> T {
        let results = results.iter().copied().map(Into::into).collect();
        let files = Files { results, ..Files::default() };
        let act = || {
            restrict(&files).unwrap();
            act()
        };
        thread::scope(|scope| scope.spawn(act).join().unwrap())
    }

    /// Regression: with a result in a directory, everything below the directory could be read, written and
    /// removed.
    #[test]
    fn result_grants_access_to_its_file_only() {
        if kvm::sys::landlock::version() == 0 {
            eprintln!("not tested: no Landlock");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let [result, other] = ["result", "other"].map(|name| folder.path().join(name));
        [&result, &other].into_iter().for_each(|file| fs::write(file, "old").unwrap());
        let write = |file: &Path| OpenOptions::new().write(true).open(file).map(drop);
        let refused = |done: io::Result<()>| done.unwrap_err().kind() == PermissionDenied;
        confined(&[&result], || {
            write(&result).unwrap();
            assert!(refused(fs::read(&result).map(drop)));
            assert!(refused(write(&other)) && refused(fs::remove_file(&other)));
            assert!(refused(fs::write(folder.path().join("new"), "")));
            assert!(refused(fs::rename(&other, &result)));
        });
    }

    /// Regression: `--stats >(cmd)` was refused because Landlock has no rules for pipes.
    #[test]
    fn shell_pipe_can_be_written() {
        let (_from, to) = io::pipe().unwrap();
        let name = format!("/proc/self/fd/{}", to.as_raw_fd());
        let opened = confined(&[Path::new(&name)], || OpenOptions::new().write(true).open(&name));
        opened.unwrap();
    }
}
