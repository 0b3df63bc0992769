//! The facts of the host that a figure depends on.

use std::{fs, thread, time::Duration};

use serde::Serialize;

use super::plan;
use crate::{
    kvm::{KvmKind, host::cpuinfo},
    units::CpuList,
};

/// How long to look at what others do: twenty of the kernel's ticks.
const LOOK: Duration = Duration::from_millis(200);

/// The host, as it was when asked.
#[derive(Debug, Clone, Serialize)]
pub struct HostFacts {
    /// Model name of the first CPU.
    pub cpu: String,
    /// `hardware`, `software`, `absent` or `denied`.
    pub kvm: &'static str,
    /// Release of the kernel.
    pub kernel: String,
    /// CPUs this process may use.
    pub cpus_allowed: String,
    /// Load average over 1, 5 and 15 minutes, as the kernel prints them.
    pub load_average: Vec<f64>,
    /// Share of the chosen CPUs' time that was not idle just before, steal
    /// included: what the vCPUs have to share with others.
    pub busy: Option<f64>,
}

impl HostFacts {
    /// Looks at this host, for a fifth of a second at what runs on `cpus`. What
    /// cannot be read is empty.
    pub fn gather(cpus: &CpuList) -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self {
            cpu: cpu_model(&cpuinfo()),
            kvm: kvm_name(KvmKind::detect()),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpus_allowed: plan::resolve_cpus(None).map(|cpus| cpus.to_string()).unwrap_or_default(),
            load_average: load_average(&read("/proc/loadavg")),
            busy: {
                let before = Ticks::of(&read("/proc/stat"), cpus);
                thread::sleep(LOOK);
                Ticks::of(&read("/proc/stat"), cpus).busy_since(before)
            },
        }
    }
}

const fn kvm_name(kind: KvmKind) -> &'static str {
    match kind {
        KvmKind::Hardware => "hardware",
        KvmKind::Software => "software",
        KvmKind::Absent => "absent",
        KvmKind::Denied => "denied",
    }
}

fn cpu_model(cpuinfo: &str) -> String {
    cpuinfo
        .lines()
        .find(|line| line.starts_with("model name"))
        .and_then(|line| line.split_once(':'))
        .map(|(_, model)| model.trim().to_owned())
        .unwrap_or_default()
}

fn load_average(loadavg: &str) -> Vec<f64> {
    loadavg.split_whitespace().take(3).filter_map(|figure| figure.parse().ok()).collect()
}

/// Time of some CPUs in the kernel's ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Ticks {
    idle: u64,
    all: u64,
}

impl Ticks {
    /// Adds up the lines of `cpus` in `/proc/stat` (proc(5): user, nice, system,
    /// idle, iowait, irq, softirq, steal; guest time is in user time already).
    fn of(stat: &str, cpus: &CpuList) -> Self {
        let mut ticks = Self::default();
        for line in stat.lines() {
            let mut fields = line.split_whitespace();
            let cpu = fields.next().and_then(|name| name.strip_prefix("cpu")?.parse().ok());
            if !cpu.is_some_and(|cpu| cpus.cpus().contains(&cpu)) {
                continue;
            }
            for (index, field) in fields.take(8).enumerate() {
                let time: u64 = field.parse().unwrap_or(0);
                ticks.all += time;
                if matches!(index, 3 | 4) {
                    ticks.idle += time;
                }
            }
        }
        ticks
    }

    fn busy_since(self, before: Self) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|all| *all > 0)?;
        // Idle time may go backwards by a tick (proc(5)).
        Some((all - self.idle.saturating_sub(before.idle).min(all)) as f64 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_what_the_chosen_cpus_did_not_idle() {
        let cpus = "1,3".parse().unwrap();
        let before = "cpu  9 9 9 9 9 9 9 9\ncpu0 1 1 1 1 1 1 1 1\ncpu1 10 0 10 100 0 0 0 0\n\
                      cpu3 0 0 0 50 0 0 0 0 7 7\n";
        let after = "cpu1 13 0 11 110 4 0 0 2\ncpu3 0 0 0 70 0 0 0 0 9 9\nintr 1 2 3\n";
        let (before, after) = (Ticks::of(before, &cpus), Ticks::of(after, &cpus));
        assert_eq!(before, Ticks { idle: 150, all: 170 });
        // 20 and 20 ticks; busy 3 + 1 + 2.
        assert_eq!(after.busy_since(before), Some(6.0 / 40.0));
        assert_eq!(after.busy_since(after), None);
    }

    #[test]
    fn reads_what_the_kernel_prints() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: AMD EPYC\n"), "AMD EPYC");
        assert_eq!(cpu_model(""), "");
        assert_eq!(load_average("0.35 1.50 2.00 1/99 1234\n"), [0.35, 1.5, 2.0]);
    }
}
