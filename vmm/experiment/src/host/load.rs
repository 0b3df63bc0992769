//! Measures how busy CPUs are, from the kernel's CPU times.

use crate::doctor::files::HostFiles;
use base::units::CpuList;
use kvm::cpus;
use study::store::record::Load;

/// Measures the load of CPUs over an interval.
#[derive(Debug)]
pub struct LoadWatch {
    cpus: CpuList,
    before: Option<CpuTicks>,
    average: Option<f64>,
}

impl LoadWatch {
    /// Starts the interval.
    pub fn start(cpus: &CpuList) -> Self {
        let files = HostFiles::host();
        Self {
            cpus: cpus.clone(),
            before: CpuTicks::read(&files, cpus),
            average: read_average(&files).first().copied(),
        }
    }

    /// Ends the interval. Values are None if the kernel does not provide them, or if the interval is
    /// shorter than its ticks can resolve.
    pub fn end(self) -> Load {
        let after = CpuTicks::read(&HostFiles::host(), &self.cpus);
        self.load(after)
    }

    fn load(self, after: Option<CpuTicks>) -> Load {
        let since = self.before.zip(after).and_then(|(before, after)| after.since(before));
        Load {
            average: self.average,
            busy: since.map(|since| since.busy),
            steal: since.map(|since| since.steal),
            ..Load::default()
        }
    }
}

/// Returns the load average over 1, 5 and 15 minutes; empty where it cannot be read.
pub(super) fn read_average(files: &HostFiles) -> Vec<f64> {
    files.text("/proc/loadavg").as_deref().map(load_average).unwrap_or_default()
}

fn load_average(loadavg: &str) -> Vec<f64> {
    let figure = |text: &str| text.parse().ok().filter(|figure: &f64| figure.is_finite());
    let averages: Vec<f64> = loadavg.split_whitespace().take(3).map_while(figure).collect();
    if averages.len() == 3 { averages } else { Vec::new() }
}

/// Times of CPUs in the kernel's ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct CpuTicks {
    idle: u64,
    steal: u64,
    total: u64,
}

/// Shares of the CPUs' time in an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Shares {
    /// Time that is not idle, including steal.
    busy: f64,
    /// Steal, taken by the hypervisor.
    steal: f64,
}

impl CpuTicks {
    fn read(files: &HostFiles, cpus: &CpuList) -> Option<Self> {
        Some(Self::parse(&files.text("/proc/stat")?, cpus))
    }

    /// Adds up the lines of the `chosen` CPUs in `/proc/stat` (proc(5): user, nice, system, idle,
    /// iowait, irq, softirq, steal; guest time is included in user time).
    fn parse(stat: &str, chosen: &CpuList) -> Self {
        let mut ticks = Self::default();
        for line in stat.lines() {
            let mut fields = line.split_whitespace();
            let cpu = fields.next().and_then(|name| name.strip_prefix("cpu")?.parse().ok());
            if !cpu.and_then(cpus::from_kernel).is_some_and(|cpu| chosen.cpus().contains(&cpu)) {
                continue;
            }
            for (index, field) in fields.take(8).enumerate() {
                let time: u64 = field.parse().unwrap_or(0);
                ticks.total = ticks.total.saturating_add(time);
                match index {
                    3 | 4 => ticks.idle = ticks.idle.saturating_add(time),
                    7 => ticks.steal = ticks.steal.saturating_add(time),
                    _ => {}
                }
            }
        }
        ticks
    }

    fn since(self, before: Self) -> Option<Shares> {
        let total = self.total.checked_sub(before.total).filter(|total| *total > 0)?;
        // Idle time may go backwards by a tick (proc(5)).
        let spent = |now: u64, then: u64| now.saturating_sub(then).min(total);
        let share = |ticks: u64| ticks as f64 / total as f64;
        Some(Shares {
            busy: share(total - spent(self.idle, before.idle)),
            steal: share(spent(self.steal, before.steal)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "cpu  9 9 9 9 9 9 9 9\ncpu0 1 1 1 1 1 1 1 1\ncpu1 10 0 10 100 0 0 0 0\n\
        cpu3 0 0 0 50 0 0 0 0 7 7\n";
    const AFTER: &str = "cpu1 13 0 11 110 4 0 0 2\ncpu3 0 0 0 70 0 0 0 0 9 9\nintr 1 2 3\n";

    #[test]
    fn busy_share_excludes_idle_ticks() {
        let cpus = "1,3".parse().unwrap();
        let (before, after) = (CpuTicks::parse(BEFORE, &cpus), CpuTicks::parse(AFTER, &cpus));
        assert_eq!(before, CpuTicks { idle: 150, steal: 0, total: 170 });
        // 20 and 20 ticks; busy 3 + 1 + 2, of which 2 were stolen.
        let shares = Shares { busy: 6.0 / 40.0, steal: 2.0 / 40.0 };
        assert_eq!(after.since(before), Some(shares));
        assert_eq!(after.since(after), None);
        assert_eq!(before.since(after), None, "a counter went backwards");
    }

    #[test]
    fn missing_readings_leave_load_unknown() {
        let cpus: CpuList = "1,3".parse().unwrap();
        let watch = |before| LoadWatch { cpus: cpus.clone(), before, average: Some(0.5) };
        let (before, after) = (CpuTicks::parse(BEFORE, &cpus), CpuTicks::parse(AFTER, &cpus));
        let load = watch(Some(before)).load(Some(after));
        assert_eq!(
            load,
            Load { average: Some(0.5), busy: Some(0.15), steal: Some(0.05), ..Load::default() }
        );
        let nothing = Load { average: Some(0.5), ..Load::default() };
        assert_eq!(watch(None).load(Some(after)), nothing);
        assert_eq!(watch(Some(before)).load(None), nothing);
    }

    #[test]
    fn load_averages_are_parsed() {
        assert_eq!(load_average("0.35 1.50 2.00 1/99 1234\n"), [0.35, 1.5, 2.0]);
        for odd in ["", "0.35", "0.35 nan 2.00", "much 1.5 2.0"] {
            assert!(load_average(odd).is_empty(), "{odd}");
        }
    }
}
