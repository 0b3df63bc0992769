//! Creates control groups (cgroup v2) for the threads of vCPUs.
//!
//! They are *threaded* groups below this process's own group, where the process itself stays. Only vCPU
//! threads enter them, each by itself (`Documentation/admin-guide/cgroup-v2.rst`, "Threads").

use std::{
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
    process,
    sync::Arc,
    thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use base::{
    cgroups::{Cgroups, Group},
    text,
    units::{VcpuCount, VcpuId},
};
use study::point::Point;

/// The controller of CPU time, which can be used in threaded groups.
const CONTROLLER: &str = "cpu";

/// File of a group with the controllers of its child groups.
const CONTROLS: &str = "cgroup.subtree_control";

/// File with a group's type, and the type of threaded groups.
const TYPE: &str = "cgroup.type";
const THREADED: &str = "threaded";

/// Number of attempts to remove a group, and the pause after each. The threads of a killed worker leave
/// it a moment later; on a busy host, once each has had a time slice on a CPU.
const REMOVAL: (u32, Duration) = (500, Duration::from_millis(20));

/// Errors when creating groups.
#[derive(Debug, Error)]
pub enum CgroupError {
    /// No cgroup2 file system is mounted, or this process is in none of its groups.
    #[error("this host has no cgroup v2")]
    None,
    /// The cpu controller cannot be used below this process's group.
    #[error(
        "the control group {} has no cpu controller for child groups, only '{has}'",
        .dir.display()
    )]
    NoController {
        /// This process's group.
        dir: PathBuf,
        /// Its controllers.
        has: String,
    },
    /// A group cannot be created.
    #[error("cannot create the control group {}", .0.display())]
    Create(PathBuf, #[source] io::Error),
    /// The kernel refuses a value.
    #[error("cannot write '{value}' to {}", .file.display())]
    Write {
        /// The group's file.
        file: PathBuf,
        /// The value.
        value: String,
        /// The reason.
        #[source]
        error: io::Error,
    },
    /// The kernel accepted a value, but has a different value.
    #[error("{} has '{has}' after '{value}' was written", .file.display())]
    NotApplied {
        /// The group's file.
        file: PathBuf,
        /// The value.
        value: String,
        /// The value that the file has.
        has: String,
    },
    /// A group's file cannot be opened or read.
    #[error("cannot open {}", .0.display())]
    Open(PathBuf, #[source] io::Error),
}

/// A layout of groups, and the sizes of the VMs whose vCPUs are in them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VmGroups {
    #[serde(with = "text")]
    cgroups: Cgroups,
    vcpus: Vec<u32>,
}

impl VmGroups {
    /// Returns the groups that a point needs.
    pub fn for_point(point: &Point) -> Option<Self> {
        let cgroups = point.cgroups.clone()?;
        Some(Self { cgroups, vcpus: point.sizes().map(VcpuCount::get).collect() })
    }

    fn groups(&self) -> Vec<Group> {
        let sizes = self.vcpus.iter().filter_map(|count| VcpuCount::try_from(*count).ok());
        self.cgroups.groups(&sizes.collect::<Vec<_>>())
    }
}

/// The groups of all cells of a run; dropping it removes them.
#[derive(Debug)]
pub struct CgroupTree {
    root: PathBuf,
    /// The parent group, if its controller was enabled for this tree.
    enabled_in: Option<PathBuf>,
}

impl CgroupTree {
    /// Creates the groups in the group of this process.
    pub fn create(layouts: &[VmGroups]) -> Result<Self, CgroupError> {
        let parent = own_group()?;
        let has_controller = |list: &str| list.split_whitespace().any(|name| name == CONTROLLER);
        let has = read(&parent.join("cgroup.controllers"))?;
        if !has_controller(&has) {
            return Err(CgroupError::NoController { dir: parent, has });
        }
        let is_on = has_controller(&read(&parent.join(CONTROLS))?);
        let root = create_root(&parent)?;
        // From here on a failure removes the created groups.
        let tree = Self { root, enabled_in: (!is_on).then(|| parent.clone()) };
        create_layouts(&parent, &tree.root, layouts)?;
        Ok(tree)
    }

    /// Returns the root group, which contains the others.
    pub fn root(&self) -> &Path {
        &self.root
    }
}

impl Drop for CgroupTree {
    fn drop(&mut self) {
        let (times, pause) = REMOVAL;
        for _ in 0..times {
            match remove(&self.root) {
                Ok(()) => break,
                Err(_) => thread::sleep(pause),
            }
        }
        if let Some(parent) = &self.enabled_in {
            // Another run may use the controller by now. The kernel then refuses to disable it.
            let _ = fs::write(parent.join(CONTROLS), format!("-{CONTROLLER}"));
        }
    }
}

/// Creates the groups in the emulated host, which ends with its command. Returns the group that contains
/// them. Nothing else manages groups there, so the root group also distributes CPU time.
pub fn create_on_own_host(layouts: &[VmGroups]) -> Result<PathBuf, CgroupError> {
    let (mount, parent) = (mount_point()?, own_group()?);
    if parent != mount {
        enable_controller(&mount)?;
    }
    let root = create_root(&parent)?;
    create_layouts(&parent, &root, layouts)?;
    Ok(root)
}

fn create_root(parent: &Path) -> Result<PathBuf, CgroupError> {
    let root = parent.join(format!("pvticket-{}", process::id()));
    fs::create_dir(&root).map_err(|error| CgroupError::Create(root.clone(), error))?;
    Ok(root)
}

/// Creates the groups of each layout below `root`, which is in the group `parent`.
fn create_layouts(parent: &Path, root: &Path, layouts: &[VmGroups]) -> Result<(), CgroupError> {
    // The type comes first: a group with processes can distribute CPU time only to threaded groups.
    write(&root.join(TYPE), THREADED)?;
    enable_controller(parent)?;
    enable_controller(root)?;
    for (number, groups) in layouts.iter().enumerate() {
        let dir = root.join(number.to_string());
        create_group(&dir)?;
        enable_controller(&dir)?;
        for group in groups.groups() {
            let group_dir = dir.join(&group.path);
            create_group(&group_dir)?;
            group.values.iter().try_for_each(|(file, value)| set(&group_dir.join(file), value))?;
            if group.is_parent {
                enable_controller(&group_dir)?;
            }
        }
    }
    Ok(())
}

/// Groups, each with an open file through which threads enter it. The kernel checks the rights that the
/// process had when it opened the file, so a worker opens them before it is confined.
#[derive(Debug)]
pub struct OpenGroups(Vec<(VmGroups, Vec<ThreadFiles>)>);

/// The `cgroup.threads` file of each vCPU of a VM, by which its thread enters its group; empty if the
/// threads stay in the process's group.
pub type ThreadFiles = Vec<Arc<File>>;

impl OpenGroups {
    /// Opens the groups that were created for `layouts`, in the same order.
    pub fn open(root: &Path, layouts: &[VmGroups]) -> Result<Self, CgroupError> {
        let open = |(number, groups): (usize, &VmGroups)| {
            let dir = root.join(number.to_string());
            let vms = groups.vcpus.iter().enumerate();
            let open_vm = |(vm, vcpus): (usize, &u32)| {
                (0..*vcpus)
                    .map(|id| groups.thread_file(&dir, vm, id))
                    .collect::<Result<ThreadFiles, _>>()
            };
            Ok((groups.clone(), vms.map(open_vm).collect::<Result<_, _>>()?))
        };
        layouts.iter().enumerate().map(open).collect::<Result<_, _>>().map(Self)
    }

    /// Returns the files of a point's VMs; None if they were not created.
    pub fn files(&self, point: &Point) -> Option<&[ThreadFiles]> {
        let groups = VmGroups::for_point(point)?;
        let entry = self.0.iter().find(|(entry, _)| *entry == groups);
        entry.map(|(_, files)| files.as_slice())
    }
}

impl VmGroups {
    fn thread_file(&self, dir: &Path, vm: usize, vcpu: u32) -> Result<Arc<File>, CgroupError> {
        let file = dir.join(self.cgroups.path(vm, VcpuId(vcpu))).join("cgroup.threads");
        let opened = OpenOptions::new().write(true).open(&file);
        opened.map(Arc::new).map_err(|error| CgroupError::Open(file, error))
    }
}

/// Returns the mount point of cgroup2.
fn mount_point() -> Result<PathBuf, CgroupError> {
    let mounts = read(Path::new("/proc/self/mounts"))?;
    let parse_line = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let (at, kind) = (words.next()?, words.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(at))
    };
    mounts.lines().find_map(parse_line).ok_or(CgroupError::None)
}

fn own_group() -> Result<PathBuf, CgroupError> {
    let groups = read(Path::new("/proc/self/cgroup"))?;
    group_in(&groups, &mount_point()?).ok_or(CgroupError::None)
}

/// Returns the v2 group in the text of `/proc/PID/cgroup`, with cgroup2 mounted at `mount`.
fn group_in(groups: &str, mount: &Path) -> Option<PathBuf> {
    match groups.lines().find_map(|line| line.strip_prefix("0::/"))? {
        "" => Some(mount.to_owned()),
        name => Some(mount.join(name)),
    }
}

fn create_group(dir: &Path) -> Result<(), CgroupError> {
    fs::create_dir(dir).map_err(|error| CgroupError::Create(dir.into(), error))?;
    write(&dir.join(TYPE), THREADED)
}

/// Enables the controller in the child groups.
fn enable_controller(dir: &Path) -> Result<(), CgroupError> {
    write(&dir.join(CONTROLS), &format!("+{CONTROLLER}"))
}

/// Writes a value and reads it back.
fn set(file: &Path, value: &str) -> Result<(), CgroupError> {
    write(file, value)?;
    let has = read(file)?;
    if has == value {
        Ok(())
    } else {
        Err(CgroupError::NotApplied { file: file.into(), value: value.into(), has })
    }
}

fn write(file: &Path, value: &str) -> Result<(), CgroupError> {
    let failed = |error| CgroupError::Write { file: file.into(), value: value.into(), error };
    fs::write(file, value).map_err(failed)
}

fn read(file: &Path) -> Result<String, CgroupError> {
    let text = fs::read_to_string(file).map_err(|error| CgroupError::Open(file.into(), error))?;
    Ok(text.trim_end().to_owned())
}

/// Removes a group and its child groups.
fn remove(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    fs::remove_dir(dir)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn own_group_is_cgroup_v2() {
        let group = |text| group_in(text, Path::new("/g")).map(|path| path.display().to_string());
        assert_eq!(group("3:cpuset:/x\n0::/").as_deref(), Some("/g"));
        assert_eq!(group("0::/user.slice/a.scope").as_deref(), Some("/g/user.slice/a.scope"));
        assert_eq!(group("1:cpu:/x"), None);
    }

    /// An ordinary file accepts every value, unlike the kernel.
    #[test]
    fn value_that_was_not_applied_is_an_error() {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("cpu.weight");
        set(&file, "100").unwrap();
        let error = set(&file, "100\n").unwrap_err();
        assert!(matches!(error, CgroupError::NotApplied { .. }), "{error}");
        let error = set(&folder.path().join("no/cpu.max"), "1 2").unwrap_err();
        assert!(error.to_string().starts_with("cannot write '1 2' to "), "{error}");
    }
}
