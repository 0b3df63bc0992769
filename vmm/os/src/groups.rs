//! Control groups of this process, in both versions of the interface.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Version of a hierarchy's interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// One or several controllers (Documentation/admin-guide/cgroup-v1).
    One,
    /// All controllers (Documentation/admin-guide/cgroup-v2.rst).
    Two,
}

/// Listings of a process: the contents of `/proc/PID/cgroup` and `/proc/PID/mountinfo` (proc(5)).
#[derive(Debug)]
pub struct Listings {
    /// Groups of the process.
    pub groups: String,
    /// Mounts that are visible to the process.
    pub mounts: String,
}

impl Listings {
    /// Reads the listings of this process; empty if they cannot be read.
    pub fn current() -> Self {
        let [groups, mounts] = ["cgroup", "mountinfo"]
            .map(|name| fs::read_to_string(Path::new("/proc/self").join(name)).unwrap_or_default());
        Self { groups, mounts }
    }
}

/// Reads a file that contains a single number. None if there is no limit (`max`, or -1), or on errors.
pub fn number_in(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Returns the directories of a process's groups with `controller`, and of their ancestors: the limits of all
/// apply.
pub fn group_dirs(
    controller: &str,
    groups: &str,
    mounts: &str,
) -> impl Iterator<Item = (Version, PathBuf)> {
    let mounted = mounts.lines().filter_map(move |line| Hierarchy::parse(line, controller, groups));
    mounted.flat_map(|hierarchy| {
        let version = hierarchy.version;
        hierarchy.dirs().map(|dir| (version, dir)).collect::<Vec<_>>()
    })
}

#[derive(Debug)]
struct Hierarchy {
    version: Version,
    mount: PathBuf,
    /// Directory of the process's group.
    group: PathBuf,
}

impl Hierarchy {
    /// Returns the hierarchy described by a line of `mountinfo`, if it has this controller.
    fn parse(line: &str, controller: &str, groups: &str) -> Option<Self> {
        let (front, back) = line.split_once(" - ")?;
        let mut front = front.split(' ').skip(3);
        let (root, mount) = (front.next()?, PathBuf::from(front.next()?));
        let mut back = back.split(' ');
        let (kind, options) = (back.next()?, back.nth(1)?);
        let version = match kind {
            "cgroup2" => Version::Two,
            "cgroup" if options.split(',').any(|option| option == controller) => Version::One,
            _ => return None,
        };
        // number:controllers:path
        let is_listed = |controllers: &str| match version {
            Version::One => controllers.split(',').any(|name| name == controller),
            Version::Two => controllers.is_empty(),
        };
        let path_of_group = groups.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            is_listed(controllers).then_some(path)
        })?;
        // In a container, the mount may be the process's group itself, under its name outside the container.
        let below = Path::new(path_of_group).strip_prefix(root).unwrap_or(Path::new(""));
        let group = mount.join(below);
        Some(Self { version, mount, group })
    }

    fn dirs(&self) -> impl Iterator<Item = PathBuf> {
        let above = self.group.ancestors().take_while(|dir| dir.starts_with(&self.mount));
        above.map(Path::to_owned)
    }
}
