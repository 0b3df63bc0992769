//! Limits to files: Landlock.
//!
//! Files that are open already are not affected, nor are the standard streams.

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

/// The newest version whose rights to files and TCP are handled (scopes: [`WITH_SCOPES`]). Rights that the kernel does not know
/// are left out.
const NEWEST: ABI = ABI::V5;

/// The first version that limits signals and abstract UNIX sockets to the processes of a ruleset.
pub(crate) const WITH_SCOPES: ABI = ABI::V6;

/// The first version that limits TCP.
pub(crate) const WITH_NET: u32 = 4;

/// What a process may still open.
#[derive(Debug, Clone, Default)]
pub struct Files {
    /// Files and directories that may be read.
    pub read: Vec<PathBuf>,
    /// Programs with their libraries: files and directories that may be read and executed.
    pub programs: Vec<PathBuf>,
    /// Devices that may be read, written and asked (ioctl).
    pub devices: Vec<PathBuf>,
    /// Pipes, devices and open files that results are written to: no directories, whose rights would hold for all
    /// that is below.
    pub results: Vec<PathBuf>,
}

/// Restricts the calling thread, and those that it starts, to these files; nothing may be executed,
/// no TCP connection made or accepted, no other process signalled, and no abstract UNIX socket of one connected to.
pub(crate) fn restrict(files: &Files) -> Result<(), RulesetError> {
    // Sets no_new_privs, too.
    rules(files)?.restrict_self().map(drop)
}

/// A pipe or a file without a name, in a file system that cannot be mounted: Landlock has no rules for them, and does not
/// restrict them.
fn is_of_no_folder(error: &RulesetError) -> bool {
    let mut causes =
        iter::successors(Some(error as &(dyn Error + 'static)), |&error| error.source());
    causes.any(|cause| {
        cause.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) == Some(libc::EBADFD)
    })
}

impl Files {
    /// Is this file one of them, by what fstat(2) says? Directories are not looked at.
    pub(crate) fn has(&self, file: &Stat) -> bool {
        let all = [&self.read, &self.programs, &self.devices, &self.results];
        all.into_iter().flatten().any(|path| {
            fs::metadata(path).is_ok_and(|data| {
                !data.is_dir() && (data.dev(), data.ino()) == (file.st_dev, file.st_ino)
            })
        })
    }

    /// What every process with guests opens: KVM, and the files of the kernel that describe this
    /// host.
    pub fn of_guests() -> Self {
        Self {
            read: ["/proc", "/sys"].map(PathBuf::from).into(),
            devices: vec![DEV_KVM.into()],
            ..Self::default()
        }
    }
}

/// Landlock rules for a process that is to be started; None where the kernel has no Landlock.
pub fn rules_of_child(files: &Files) -> Result<Option<OwnedFd>, RulesetError> {
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
            // What is not there cannot be opened.
            let Ok(opened) = PathFd::new(path) else { continue };
            let rights = if path.is_dir() { rights } else { rights & AccessFs::from_file(NEWEST) };
            // The clone is the same ruleset, in which a rule that is refused changes nothing.
            match rules.try_clone().map(|rules| rules.add_rule(PathBeneath::new(opened, rights))) {
                Ok(Err(error)) if !is_of_no_folder(&error) => return Err(error),
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

    /// Does `act` on a thread that may open these results only.
    fn confined<T: Send>(results: &[&Path], act: impl FnOnce() -> T + Send) -> T {
        let results = results.iter().copied().map(Into::into).collect();
        let files = Files { results, ..Files::default() };
        let act = || {
            restrict(&files).unwrap();
            act()
        };
        thread::scope(|scope| scope.spawn(act).join().unwrap())
    }

    /// Regression: with a result in a directory, everything below it could be read, written and removed.
    #[test]
    fn a_result_opens_itself_and_nothing_else() {
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

    /// Regression: `--stats >(cmd)` was refused, as Landlock has no rules for pipes.
    #[test]
    fn a_pipe_of_the_shell_is_written_to() {
        let (_from, to) = io::pipe().unwrap();
        let name = format!("/proc/self/fd/{}", to.as_raw_fd());
        let opened = confined(&[Path::new(&name)], || OpenOptions::new().write(true).open(&name));
        opened.unwrap();
    }
}
