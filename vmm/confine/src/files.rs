//! Limits to files: Landlock.
//!
//! Files that are open already are not affected, nor are the standard streams.

use std::{os::fd::OwnedFd, path::PathBuf};

use kvm::host::DEV_KVM;
use landlock::{
    ABI, Access, AccessFs, AccessNet, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, Scope,
};

/// The newest version whose rights are handled. Rights that the kernel does not know are left out.
const NEWEST: ABI = ABI::V5;

/// The first version that limits signals and abstract UNIX sockets to the processes of a ruleset.
const WITH_SCOPES: ABI = ABI::V6;

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
    /// Directories in which files may be made, replaced and removed.
    pub results: Vec<PathBuf>,
}

/// Restricts the calling thread, and those that it starts, to these files; nothing may be executed,
/// no TCP connection made or accepted, no other process signalled, and no abstract UNIX socket of one connected to.
pub(crate) fn restrict(files: &Files) -> Result<(), RulesetError> {
    // Sets no_new_privs, too.
    rules(files)?.restrict_self().map(drop)
}

impl Files {
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

/// The same for a process that is to be started; None where the kernel has no Landlock.
pub fn rules_of_child(files: &Files) -> Result<Option<OwnedFd>, RulesetError> {
    rules(files).map(Into::into)
}

fn rules(files: &Files) -> Result<RulesetCreated, RulesetError> {
    let handled = Ruleset::default().handle_access(AccessFs::from_all(NEWEST))?;
    let handled = handled.handle_access(AccessNet::from_all(NEWEST))?;
    let handled = handled.scope(Scope::from_all(WITH_SCOPES))?;
    let reading = AccessFs::ReadFile | AccessFs::ReadDir;
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    let results = reading
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::RemoveFile;
    let mut rules = handled.create()?;
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
            rules = rules.add_rule(PathBeneath::new(opened, rights))?;
        }
    }
    Ok(rules)
}
