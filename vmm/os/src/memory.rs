//! Memory available to this process and its children: the host's, or less if a control group limits it.

use std::{fmt, path::Path};

use rustix::{
    process::{Resource, getrlimit},
    system::sysinfo,
};

use crate::groups::{Listings, Version, group_dirs, number_in};
use base::units::ByteSize;

/// Available memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Memory and swap.
    pub size: ByteSize,
    is_limited: bool,
    /// A group that uses more than this is throttled.
    high: Option<ByteSize>,
}

/// Formats the size as a clause of a message.
impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subject = if self.is_limited { "this control group allows" } else { "this host has" };
        write!(f, "{subject} {} of memory and swap", in_mib(self.size))
    }
}

/// Rounds down to whole MiB, for messages.
pub fn in_mib(size: ByteSize) -> ByteSize {
    ByteSize::mib(size.0 >> 20)
}

impl Memory {
    /// Queries the kernel.
    pub fn current() -> Self {
        let info = sysinfo();
        let [ram, swap] =
            [info.totalram, info.totalswap].map(|units| units.saturating_mul(info.mem_unit.into()));
        let Listings { groups, mounts } = Listings::current();
        let high = high(&groups, &mounts, number_in).map(ByteSize);
        Self { high, ..Self::within(ram, swap, limit(&groups, &mounts, swap, number_in)) }
    }

    const fn within(ram: u64, swap: u64, limit: Option<u64>) -> Self {
        let host = ram.saturating_add(swap);
        match limit {
            Some(limit) if limit < host => {
                Self { size: ByteSize(limit), is_limited: true, high: None }
            }
            _ => Self { size: ByteSize(host), is_limited: false, high: None },
        }
    }

    /// Returns a host's memory of this size, without limits of a control group.
    pub const fn of_host(size: ByteSize) -> Self {
        Self { size, is_limited: false, high: None }
    }

    /// Returns a warning if processes that use `used` bytes would be killed or throttled.
    pub fn warning(self, used: ByteSize) -> Option<String> {
        match self.high {
            _ if used > self.size => Some(format!("{self}; processes that use more are killed")),
            Some(high) if used > high => Some(format!(
                "this control group is throttled above {} (memory.high)",
                in_mib(high)
            )),
            _ => None,
        }
    }

    /// Returns the probable reason why a process was killed, if pvticket did not kill it.
    pub fn kill_reason(self) -> String {
        let cpu_time =
            getrlimit(Resource::Cpu).maximum.map_or("", |_| " or of CPU time (ulimit -t)");
        format!("probably out of memory{cpu_time}: {self}")
    }
}

/// Returns the lowest limit of memory and swap, in bytes, among a process's groups, from `/proc/PID/cgroup` and
/// `/proc/PID/mountinfo` (proc(5)). `swap` is the host's; `number` reads a number from a file.
fn limit(
    groups: &str,
    mounts: &str,
    swap: u64,
    number: impl Fn(&Path) -> Option<u64>,
) -> Option<u64> {
    let dirs = group_dirs("memory", groups, mounts);
    dirs.filter_map(|(version, dir)| limit_of(version, &dir, swap, &number)).min()
}

fn limit_of(
    version: Version,
    dir: &Path,
    swap: u64,
    number: impl Fn(&Path) -> Option<u64>,
) -> Option<u64> {
    let number = |name: &str| number(&dir.join(name));
    match version {
        Version::One => {
            let memory = number("memory.limit_in_bytes")?.saturating_add(swap);
            Some(number("memory.memsw.limit_in_bytes").map_or(memory, |both| both.min(memory)))
        }
        Version::Two => {
            let swap = number("memory.swap.max").map_or(swap, |max| max.min(swap));
            Some(number("memory.max")?.saturating_add(swap))
        }
    }
}

/// Returns the lowest number of bytes above which a group is throttled (`memory.high`, only in version 2).
fn high(groups: &str, mounts: &str, number: impl Fn(&Path) -> Option<u64>) -> Option<u64> {
    let dirs = group_dirs("memory", groups, mounts);
    dirs.filter(|(version, _)| *version == Version::Two)
        .filter_map(|(_, dir)| number(&dir.join("memory.high")))
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    const V1: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                      32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n";
    const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n\
                      22 1 8:1 / / rw - ext4 /dev/root rw\n";

    /// Reads a file's limit in bytes; `files` has MiB.
    fn number(files: &[(&str, u64)], file: &Path) -> Option<u64> {
        let file = files.iter().find(|(name, _)| Path::new(name) == file);
        file.map(|(_, mib)| mib * MIB)
    }

    fn limit_with(groups: &str, mounts: &str, files: &[(&str, u64)]) -> Option<u64> {
        limit(groups, mounts, 100 * MIB, |file| number(files, file)).map(|limit| limit / MIB)
    }

    /// Regression: a guest was allowed the memory of the host, and QEMU was killed at the limit of its group.
    #[test]
    fn the_lowest_limit_of_all_groups_counts() {
        let groups = "5:devices:/x\n4:cpu,memory:/a/b\n0::/\n";
        let lowest = |files: &[(&str, u64)]| limit_with(groups, V1, files);
        assert_eq!(lowest(&[]), None);
        assert_eq!(lowest(&[("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", 256)]), Some(356));
        let both = [
            ("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", 256),
            ("/sys/fs/cgroup/memory/a/b/memory.memsw.limit_in_bytes", 300),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", 1 << 40),
        ];
        assert_eq!(lowest(&both), Some(300));
        assert_eq!(lowest(&[("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", 64)]), Some(164));
        assert_eq!(lowest(&[("/sys/fs/cgroup/cpu/a/b/memory.limit_in_bytes", 1)]), None);
    }

    #[test]
    fn version_2_limits_swap_separately() {
        let lowest = |files: &[(&str, u64)]| limit_with("0::/user/a\n", V2, files);
        assert_eq!(lowest(&[("/sys/fs/cgroup/user/a/memory.max", 256)]), Some(356));
        let both = [
            ("/sys/fs/cgroup/user/memory.max", 256),
            ("/sys/fs/cgroup/user/memory.swap.max", 0),
            ("/sys/fs/cgroup/user/a/memory.swap.max", 10),
        ];
        assert_eq!(lowest(&both), Some(256));
        assert_eq!(lowest(&[("/sys/fs/cgroup/user/a/memory.swap.max", 0)]), None);
    }

    #[test]
    fn finds_the_group_of_a_container() {
        let mounts = "1 2 0:26 /docker/1 /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        let file = [("/sys/fs/cgroup/memory.max", 200)];
        for groups in ["0::/docker/1\n", "0::/\n", "0::/../other\n"] {
            assert_eq!(limit_with(groups, mounts, &file), Some(300), "{groups}");
        }
        let inner = [("/sys/fs/cgroup/a/memory.max", 100), file[0]];
        assert_eq!(limit_with("0::/docker/1/a\n", mounts, &inner), Some(200));
    }

    /// A group over `memory.high` is throttled, and never killed for it.
    #[test]
    fn warns_about_throttled_memory() {
        let files = [("/sys/fs/cgroup/user/memory.high", 200), ("/sys/fs/cgroup/memory.high", 300)];
        let number = |file: &Path| number(&files, file);
        assert_eq!(high("0::/user/a\n", V2, number), Some(200 * MIB));
        assert_eq!(high("4:memory:/user/a\n", V1, number), None);
        let high = Some(ByteSize(200 * MIB));
        let memory = Memory { high, ..Memory::within(1024 * MIB, 0, Some(512 * MIB)) };
        let warning = |mib| memory.warning(ByteSize::mib(mib)).unwrap_or_default();
        assert_eq!(warning(200), "");
        assert_eq!(warning(201), "this control group is throttled above 200 MiB (memory.high)");
        let killed = "this control group allows 512 MiB of memory and swap; processes that use more are killed";
        assert_eq!(warning(513), killed);
    }

    #[test]
    fn limits_above_the_host_are_ignored() {
        let sentence = |limit| Memory::within(8192 * MIB, 0, limit).to_string();
        assert_eq!(sentence(None), "this host has 8 GiB of memory and swap");
        assert_eq!(sentence(Some(1 << 60)), sentence(None));
        let limited = "this control group allows 256 MiB of memory and swap";
        assert_eq!(sentence(Some(256 * MIB + 5)), limited);
        assert!(Memory::current().size > ByteSize::mib(64));
    }
}
