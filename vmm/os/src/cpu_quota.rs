//! How much CPU time the control groups of this process allow it: a process over its quota is stopped until the next
//! period, and its vCPUs with it.

use std::{fmt, fs, path::Path};

use crate::groups::{Listed, Version, group_dirs};

/// CPUs' worth of time, for example 1.5.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct CpuQuota(pub f64);

impl CpuQuota {
    /// The least quota of all groups; None: there is none.
    pub fn here() -> Option<Self> {
        let Listed { groups, mounts } = Listed::own();
        least(&groups, &mounts, |file| fs::read_to_string(file).ok())
    }

    /// What a run on so many CPUs is to be told.
    pub fn concern(self, cpus: usize) -> Option<String> {
        (self.0 < cpus as f64).then(|| {
            format!(
                "this control group allows {self} CPUs' time, less than the {cpus} of the run: its vCPUs are stopped in \
                 between, and get less than the figures say"
            )
        })
    }
}

impl fmt::Display for CpuQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2}", self.0)
    }
}

fn least(groups: &str, mounts: &str, text: impl Fn(&Path) -> Option<String>) -> Option<CpuQuota> {
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
        // Without a quota it is -1, or max.
        let [quota, period] = [quota, period].map(|text| text.trim().parse::<u64>().ok());
        let period = period.filter(|period| *period > 0)?;
        Some(quota? as f64 / period as f64)
    });
    quotas.min_by(f64::total_cmp).map(CpuQuota)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn least_of(groups: &str, mounts: &str, files: &[(&str, &str)]) -> Option<f64> {
        let text = |file: &Path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == file);
            found.map(|(_, text)| format!("{text}\n"))
        };
        least(groups, mounts, text).map(|CpuQuota(cpus)| cpus)
    }

    #[test]
    fn the_least_quota_of_all_groups_counts() {
        let mounts = "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let least = |files: &[(&str, &str)]| least_of("0::/a/b\n", mounts, files);
        assert_eq!(least(&[]), None);
        assert_eq!(least(&[("/sys/fs/cgroup/a/b/cpu.max", "max 100000")]), None);
        let both = [
            ("/sys/fs/cgroup/a/b/cpu.max", "max 100000"),
            ("/sys/fs/cgroup/a/cpu.max", "50000 100000"),
        ];
        assert_eq!(least(&both), Some(0.5));
        let both = [("/sys/fs/cgroup/a/b/cpu.max", "20000 100000"), both[1]];
        assert_eq!(least(&both), Some(0.2));
        assert_eq!(least(&[("/sys/fs/cgroup/a/cpu.max", "1 0")]), None);
    }

    #[test]
    fn version_1_has_its_own_files() {
        let mounts = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n";
        let quota = |quota| {
            let files = [
                ("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", quota),
                ("/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000"),
            ];
            least_of("4:cpu,cpuacct:/x\n", mounts, &files)
        };
        assert_eq!((quota("-1"), quota("150000")), (None, Some(1.5)));
    }

    #[test]
    fn a_quota_below_the_cpus_of_a_run_is_told() {
        assert_eq!(CpuQuota(2.0).concern(2), None);
        let told = CpuQuota(0.5).concern(2).unwrap_or_default();
        assert!(
            told.starts_with("this control group allows 0.50 CPUs' time, less than the 2 "),
            "{told}"
        );
    }
}
