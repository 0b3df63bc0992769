//! Samples the host before, after and within a window, under every policy.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use base::units::{CpuList, Nanos};
use kvm::{cpus, signal, sys::clock};
use os::{
    cpu_quota,
    groups::{Listings, Version, group_dirs},
};
use study::{
    host_window::{HostMoment, HostWindow},
    point::Point,
};

/// Interval at which a cell's thread checks its machines.
pub const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// CPUs that are online (Documentation/admin-guide/cputopology.rst).
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// Watches the host around the windows of a cell.
#[derive(Debug)]
pub struct HostWatch<'a> {
    cpus: &'a CpuList,
    /// Whether this thread is kept off the cell's CPUs, so that its affinity does not count.
    off_cell_cpus: bool,
    begin: Option<HostMoment>,
    end: HostMoment,
    /// Time of the last sample, if a window was open then.
    last: Option<Instant>,
    pause: Duration,
}

impl<'a> HostWatch<'a> {
    /// Creates a watch for a cell of this point on these CPUs.
    pub fn new(point: &Point, cpus: &'a CpuList) -> Self {
        let off_cell_cpus = !point.policy.is_host() && !point.driver.is_user();
        Self { off_cell_cpus, ..Self::for_emulated(cpus) }
    }

    /// Creates a watch for this host, with these CPUs, below an emulated host.
    pub fn for_emulated(cpus: &'a CpuList) -> Self {
        let end = HostMoment::default();
        Self { cpus, off_cell_cpus: false, begin: None, end, last: None, pause: Duration::ZERO }
    }

    /// Samples the host. To be called when a window begins, every [`POLL_INTERVAL`] while it is open, and after it.
    pub fn sample(&mut self, is_open: bool) {
        let now = Instant::now();
        let last = self.last.take();
        let gap = last.map_or(Duration::ZERO, |last| now - last);
        self.pause = self.pause.max(gap.saturating_sub(POLL_INTERVAL));
        if is_open {
            self.last = Some(now);
            self.begin = self.begin.or_else(|| Some(self.moment()));
        } else if last.is_some() {
            self.end = self.moment();
        }
    }

    /// Returns the host's state around the windows that have ended; None if no sample found an open window.
    pub fn window(&self) -> Option<HostWindow> {
        let pause = Nanos(u64::try_from(self.pause.as_nanos()).unwrap_or(u64::MAX));
        self.begin.map(|before| HostWindow { before, after: self.end, pause })
    }

    /// Returns the current state of the host.
    pub fn moment(&self) -> HostMoment {
        let text = |file: &Path| fs::read_to_string(file).ok();
        let listed = Listings::current();
        let allowed = (!self.off_cell_cpus).then(signal::allowed_cpus);
        let can_use = |cpu: &usize| allowed.as_ref().is_none_or(|allowed| allowed.contains(cpu));
        let usable = usable(&listed, text);
        let is_usable = |cpu: &&usize| {
            can_use(cpu) && usable.iter().all(|list| list.cpus().contains(&cpus::to_kernel(**cpu)))
        };
        HostMoment {
            cpus: self.cpus.cpus().iter().filter(is_usable).count() as u32,
            throttled: cpu_quota::throttled(&listed, text),
            suspended: suspended(),
        }
    }
}

/// Returns the kernel's lists of the online CPUs and of the CPUs in this process's cpusets.
fn usable(listed: &Listings, text: impl Fn(&Path) -> Option<String>) -> Vec<CpuList> {
    let sets = group_dirs("cpuset", &listed.groups, &listed.mounts).map(|(version, dir)| {
        dir.join(match version {
            Version::One => "cpuset.effective_cpus",
            Version::Two => "cpuset.cpus.effective",
        })
    });
    let files = [ONLINE.into()].into_iter().chain(sets);
    // A file that cannot be read, or lists more CPUs than this program supports, limits nothing.
    files.filter_map(|file| text(&file)?.parse().ok()).collect()
}

/// Returns the suspended time since boot, which CLOCK_MONOTONIC does not count (clock_gettime(2)).
pub fn suspended() -> Nanos {
    let monotonic = clock::monotonic();
    clock::since_boot().since(monotonic)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In both cgroup versions and at each level, a group has no more CPUs than its ancestors.
    #[test]
    fn cpusets_and_hotplug_limit_cpus() {
        let version_1 = "32 31 0:29 / /v1 rw,relatime - cgroup cgroup rw,cpuset\n";
        let version_2 = "30 23 0:26 / /v2 rw - cgroup2 cgroup2 rw\n";
        let listed = Listings {
            groups: "4:cpuset:/x\n0::/a/b\n".into(),
            mounts: format!("{version_1}{version_2}"),
        };
        let count = |files: &[(&str, &str)]| {
            let text = |file: &Path| {
                let entry = files.iter().find(|(name, _)| Path::new(name) == file);
                entry.map(|(_, text)| format!("{text}\n"))
            };
            let lists = usable(&listed, text);
            (0..4).filter(|cpu| lists.iter().all(|list| list.cpus().contains(cpu))).count()
        };
        assert_eq!(count(&[]), 4, "nothing is known to limit them");
        assert_eq!(count(&[(ONLINE, "0-3")]), 4);
        assert_eq!(count(&[(ONLINE, "0,2-3")]), 3);
        assert_eq!(count(&[(ONLINE, "0-3"), ("/v1/x/cpuset.effective_cpus", "1")]), 1);
        assert_eq!(count(&[(ONLINE, "0-3"), ("/v2/a/b/cpuset.cpus.effective", "0-1")]), 2);
        assert_eq!(count(&[("/v2/a/cpuset.cpus.effective", "3"), (ONLINE, "0-3")]), 1);
        assert_eq!(count(&[("/v1/x/cpuset.effective_cpus", "")]), 4, "an empty file");
    }

    #[test]
    fn samples_span_the_window() {
        let point = study::testing::experiment().points.remove(0);
        let cpus = CpuList::new(&signal::allowed_cpus()).unwrap();
        let mut watch = HostWatch::new(&point, &cpus);
        watch.sample(false);
        assert_eq!(watch.window(), None);
        [true, true, false, false].into_iter().for_each(|is_open| watch.sample(is_open));
        let HostWindow { before, after, .. } = watch.window().unwrap();
        let count = cpus.cpus().len() as u32;
        assert_eq!((before.cpus, after.cpus), (count, count));
        assert!(before.suspended.since(after.suspended) < Nanos::millis(10), "{before:?}");
    }
}
