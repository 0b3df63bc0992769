//! The kernel, and signs that this host is itself a guest.

use serde::Serialize;

use super::files::HostFiles;

/// Facts about the system.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SystemFacts {
    /// The kernel's release.
    pub kernel: Option<String>,
    /// The preemption model as in the kernel's version line, for example `PREEMPT_DYNAMIC`.
    pub preemption: Option<String>,
    /// `/sys/hypervisor/type`, which exists under Xen.
    pub hypervisor_type: Option<String>,
    /// Share of CPU time since boot that the hypervisor gave to other VMs, in percent.
    pub steal_percent: Option<f64>,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    pub transparent_huge_pages: Option<String>,
    /// The current clock source.
    pub clocksource: Option<String>,
    /// Total memory, in bytes.
    pub memory: Option<u64>,
}

impl SystemFacts {
    /// Reads the host's system.
    pub fn read(files: &HostFiles) -> Self {
        let version = files.text("/proc/sys/kernel/version");
        let huge_pages = files.text("/sys/kernel/mm/transparent_hugepage/enabled");
        Self {
            kernel: files.word("/proc/sys/kernel/osrelease"),
            preemption: version.as_deref().and_then(preemption),
            hypervisor_type: files.word("/sys/hypervisor/type"),
            steal_percent: files.text("/proc/stat").as_deref().and_then(steal_percent),
            transparent_huge_pages: huge_pages.as_deref().and_then(bracketed),
            clocksource: files
                .word("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            memory: files.text("/proc/meminfo").as_deref().and_then(memory),
        }
    }
}

/// Returns the word of the version line that names the model, or `none` for kernels without preemption. None
/// unless the line begins with the number of the build, such as `#1`.
fn preemption(version: &str) -> Option<String> {
    let model = version.split_whitespace().find(|word| word.starts_with("PREEMPT"));
    version.starts_with('#').then(|| model.unwrap_or("none").to_owned())
}

/// The word in square brackets.
fn bracketed(choices: &str) -> Option<String> {
    let (_, rest) = choices.split_once('[')?;
    let (word, _) = rest.split_once(']')?;
    ["always", "madvise", "never"].contains(&word).then(|| word.to_owned())
}

/// `MemTotal` in bytes. The file's unit is KiB, although it prints kB (proc_meminfo(5)).
fn memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Parses the line of all CPUs: user nice system idle iowait irq softirq steal (proc_stat(5)). Later fields
/// are included in the first two.
fn steal_percent(stat: &str) -> Option<f64> {
    const STEAL: usize = 7;
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let times: Vec<u64> =
        line.split_whitespace().take(STEAL + 1).map_while(|time| time.parse().ok()).collect();
    let steal = *times.get(STEAL)?;
    let total = times.iter().try_fold(0u64, |sum, time| sum.checked_add(*time))?;
    (total > 0).then(|| (steal as f64 * 1000.0 / total as f64).round() / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::files::mock;

    #[test]
    fn system_facts_are_read() {
        let files = mock::host(
            "system",
            &[
                ("proc/sys/kernel/osrelease", "6.1.0\n"),
                ("proc/sys/kernel/version", "#1 SMP PREEMPT_DYNAMIC Debian 6.1\n"),
                ("proc/stat", "cpu  100 0 100 700 0 0 0 100 7 0\ncpu0 1 2 3\n"),
                ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ],
        );
        let system = SystemFacts::read(&files);
        assert_eq!(system.kernel.as_deref(), Some("6.1.0"));
        assert_eq!(system.preemption.as_deref(), Some("PREEMPT_DYNAMIC"));
        assert_eq!(system.steal_percent, Some(10.0));
        assert_eq!(system.transparent_huge_pages.as_deref(), Some("madvise"));
        assert_eq!((system.hypervisor_type, system.memory), (None, None));
    }

    #[test]
    fn malformed_statistics_are_unknown() {
        assert_eq!(steal_percent("cpu 1 2 3\n"), None);
        assert_eq!(steal_percent("cpu 0 0 0 0 0 0 0 0\n"), None);
        let max = u64::MAX;
        assert_eq!(steal_percent(&format!("cpu {max} {max} 0 0 0 0 0 1\n")), None);
        assert_eq!(steal_percent("intr 5\n"), None);
        assert_eq!(memory("MemTotal:       24684092 kB\n"), Some(24_684_092 << 10));
        assert_eq!(memory("MemTotal: much\n"), None);
        assert_eq!(memory("MemFree: 1 kB\n"), None);
    }
}
