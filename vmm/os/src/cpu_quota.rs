//! CPU quotas of this process's control groups. When a quota is used up, the process and its vCPUs are
//! throttled until the next period.

use std::{fs, path::Path};

use base::units::Nanos;

use crate::groups::{Listings, Version, group_dirs};

/// CPU time per unit of time: 1.5 is one and a half CPUs.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct CpuQuota(pub f64);

impl CpuQuota {
    /// Returns the lowest quota of all groups; None if there is no quota.
    pub fn current() -> Option<Self> {
        let Listings { groups, mounts } = Listings::current();
        lowest(&groups, &mounts, |file| fs::read_to_string(file).ok())
    }
}

/// Returns the longest time for which a quota has throttled one of these groups so far, summed over CPUs.
pub fn throttled(listed: &Listings, text: impl Fn(&Path) -> Option<String>) -> Nanos {
    let times = group_dirs("cpu", &listed.groups, &listed.mounts).filter_map(|(version, dir)| {
        let (name, unit) = match version {
            Version::One => ("throttled_time ", 1),
            Version::Two => ("throttled_usec ", 1_000),
        };
        let stat = text(&dir.join("cpu.stat"))?;
        let time =
            stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        Some(Nanos(time?.saturating_mul(unit)))
    });
    times.max().unwrap_or(Nanos::ZERO)
}

fn lowest(groups: &str, mounts: &str, text: impl Fn(&Path) -> Option<String>) -> Option<CpuQuota> {
    let quotas = group_dirs("cpu", groups, mounts).filter_map(|(version, dir)| {
        let text = |name: &str| text(&dir.join(name));
        let (quota, period) = match version {
            Version::One => (text("cpu.cfs_quota_us")?, text("cpu.cfs_period_us")?),
            Version::Two => {
                let both = text("cpu.max")?;
                let (quota, period) = both.trim().split_once(' ')?;
                (quota.to_owned(), period.to_owned())
            }
        };
        // Without a limit, `quota` is -1 or max.
        let [quota, period] = [quota, period].map(|text| text.trim().parse::<u64>().ok());
        let period = period.filter(|period| *period > 0)?;
        Some(quota? as f64 / period as f64)
    });
    quotas.min_by(f64::total_cmp).map(CpuQuota)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(files: &[(&str, &str)], file: &Path) -> Option<String> {
        let file = files.iter().find(|(name, _)| Path::new(name) == file);
        file.map(|(_, text)| format!("{text}\n"))
    }

    fn lowest_of(groups: &str, mounts: &str, files: &[(&str, &str)]) -> Option<f64> {
        lowest(groups, mounts, |file| text(files, file)).map(|CpuQuota(cpus)| cpus)
    }

    #[test]
    fn the_lowest_quota_of_all_groups_counts() {
        let mounts = "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let lowest = |files: &[(&str, &str)]| lowest_of("0::/a/b\n", mounts, files);
        assert_eq!(lowest(&[]), None);
        assert_eq!(lowest(&[("/sys/fs/cgroup/a/b/cpu.max", "max 100000")]), None);
        let both = [
            ("/sys/fs/cgroup/a/b/cpu.max", "max 100000"),
            ("/sys/fs/cgroup/a/cpu.max", "50000 100000"),
        ];
        assert_eq!(lowest(&both), Some(0.5));
        let both = [("/sys/fs/cgroup/a/b/cpu.max", "20000 100000"), both[1]];
        assert_eq!(lowest(&both), Some(0.2));
        assert_eq!(lowest(&[("/sys/fs/cgroup/a/cpu.max", "1 0")]), None);
    }

    #[test]
    fn reads_quotas_of_version_1() {
        let mounts = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n";
        let quota = |quota| {
            let files = [
                ("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", quota),
                ("/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000"),
            ];
            lowest_of("4:cpu,cpuacct:/x\n", mounts, &files)
        };
        assert_eq!((quota("-1"), quota("150000")), (None, Some(1.5)));
    }

    #[test]
    fn reads_throttled_time_in_both_versions() {
        let mounts = "32 31 0:29 / /v1 rw - cgroup cgroup rw,cpu\n30 23 0:26 / /v2 rw - cgroup2 cgroup2 rw\n";
        let listed = Listings { groups: "4:cpu:/x\n0::/a/b\n".into(), mounts: mounts.into() };
        let time = |files: &[(&str, &str)]| throttled(&listed, |file| text(files, file)).0;
        let v1 = ("/v1/x/cpu.stat", "nr_periods 10\nnr_throttled 3\nthrottled_time 2500000\n");
        let v2 = ("/v2/a/cpu.stat", "usage_usec 5\nnr_throttled 1\nthrottled_usec 7000\n");
        assert_eq!((time(&[]), time(&[v1]), time(&[v1, v2])), (0, 2_500_000, 7_000_000));
        assert_eq!(time(&[("/v2/cpu.stat", "usage_usec 5\n")]), 0, "the root has no quota");
    }
}
