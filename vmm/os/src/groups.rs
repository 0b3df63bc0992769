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
pub struct Listed {
    /// Groups of the process.
    pub groups: String,
    /// Mounts that are visible to the process.
    pub mounts: String,
}

impl Listed {
    /// Reads the listings of this process; empty if they cannot be read.
    pub fn own() -> Self {
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
    let all = mounts.lines().filter_map(move |line| Hierarchy::mounted(line, controller, groups));
    all.flat_map(|hierarchy| {
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
    fn mounted(line: &str, controller: &str, groups: &str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let (root, mount) = (left.next()?, PathBuf::from(left.next()?));
        let mut right = right.split(' ');
        let (kind, options) = (right.next()?, right.nth(1)?);
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
        let own = groups.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            is_listed(controllers).then_some(path)
        })?;
        // In a container, the mount may be the process's group itself, under the name that it has outside.
        let below = Path::new(own).strip_prefix(root).unwrap_or(Path::new(""));
        let group = mount.join(below);
        Some(Self { version, mount, group })
    }

    fn dirs(&self) -> impl Iterator<Item = PathBuf> {
        let above = self.group.ancestors().take_while(|dir| dir.starts_with(&self.mount));
        above.map(Path::to_owned)
    }
}
