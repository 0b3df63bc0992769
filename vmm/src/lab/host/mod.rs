//! The facts of the host that a figure depends on.

mod file;
mod load;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::plan;
use crate::{
    doctor::{cpu::CpuFacts, files::Files, kvm::KvmFacts, system::SystemFacts},
    kvm::{KvmKind, host::is_emulated},
    units::CpuList,
};
pub use file::FileFacts;
pub use load::LoadWatch;

/// How long to look at what others do: twenty of the kernel's ticks.
const LOOK: Duration = Duration::from_millis(200);

/// The host, as it was when asked. What it does not tell is empty or None.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostFacts {
    /// Model name of the first CPU.
    pub cpu: String,
    /// CPUs that are on line.
    pub cpu_count: Option<usize>,
    /// `hardware`, `emulated` (a genuine KVM on a CPU whose AMD-V QEMU emulates), `software`,
    /// `absent` or `denied`.
    pub kvm: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Its preemption model, for example `PREEMPT_DYNAMIC`.
    pub preemption: Option<String>,
    /// The hypervisor that this host runs under, by its own name.
    pub hypervisor: Option<String>,
    /// CPUs this process may use.
    pub cpus_allowed: String,
    /// Do hardware threads share cores?
    pub smt: Option<bool>,
    /// The frequency governors of the chosen CPUs, each once.
    pub governors: BTreeSet<String>,
    /// How long KVM polls for a wake-up before a halted vCPU sleeps, in nanoseconds.
    pub halt_poll_ns: Option<u64>,
    /// What KVM's vendor module takes for a spinning guest, by its own names: `ple_gap` and
    /// `ple_window`, or `pause_filter_count` and `pause_filter_thresh`.
    pub pause_loop: BTreeMap<String, u64>,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    pub huge_pages: Option<String>,
    /// Current clock source.
    pub clocksource: Option<String>,
    /// All its memory, in bytes.
    pub memory: Option<u64>,
    /// Load average over 1, 5 and 15 minutes, as the kernel prints them.
    pub load_average: Vec<f64>,
    /// Share of the chosen CPUs' time that was not idle just before, steal
    /// included: what the vCPUs have to share with others.
    pub busy: Option<f64>,
    /// Share of it that the hypervisor above took.
    pub steal: Option<f64>,
    /// This program, if asked for by [`HostFacts::with_files`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binary: Option<FileFacts>,
    /// The guests' kernels, likewise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<FileFacts>,
}

impl HostFacts {
    /// Looks at this host, for a fifth of a second at what runs on `cpus`.
    pub fn gather(cpus: &CpuList) -> Self {
        let watch = LoadWatch::start(cpus);
        thread::sleep(LOOK);
        let load = watch.end();
        let allowed = plan::resolve_cpus(None).map(|cpus| cpus.to_string()).unwrap_or_default();
        let kind = KvmKind::detect();
        let facts = Self::read(&Files::host(), kind, cpus);
        let kvm = kvm_name(kind, is_emulated()).to_owned();
        Self { kvm, cpus_allowed: allowed, busy: load.busy, steal: load.steal, ..facts }
    }

    /// What files of the host say.
    fn read(files: &Files, kind: KvmKind, cpus: &CpuList) -> Self {
        let cpu = CpuFacts::read(files, cpus.cpus());
        let kvm = KvmFacts::read(files, kind);
        let system = SystemFacts::read(files);
        Self {
            cpu: cpu.model.unwrap_or_default(),
            cpu_count: Some(cpu.online).filter(|count| *count > 0),
            kvm: kvm.kind.to_owned(),
            kernel: system.kernel.unwrap_or_default(),
            preemption: system.preemption,
            hypervisor: cpu.hypervisor.or(system.hypervisor_type),
            smt: cpu.smt,
            governors: cpu.governors,
            halt_poll_ns: kvm.halt_poll_ns,
            pause_loop: kvm.pause_loop,
            huge_pages: system.transparent_huge_pages,
            clocksource: system.clocksource,
            memory: system.memory,
            load_average: load::read_average(files),
            ..Self::default()
        }
    }

    /// With this program and these kernels of guests, read whole for their hashes. A kernel that
    /// cannot be read is left out.
    #[must_use]
    pub fn with_files<'a>(self, kernels: impl IntoIterator<Item = &'a Path>) -> Self {
        Self {
            binary: FileFacts::of_binary(),
            kernels: kernels.into_iter().filter_map(FileFacts::of_kernel).collect(),
            ..self
        }
    }
}

/// As [`HostFacts::kvm`] has it. Seen: figures of the emulated host, where an exit costs twenty times
/// what it costs elsewhere, stood under the heading "hardware KVM".
fn kvm_name(kind: KvmKind, is_emulated: bool) -> &'static str {
    match kind {
        KvmKind::Hardware if is_emulated => "emulated",
        other => other.name(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::files::made_up;

    #[test]
    fn an_emulated_cpu_is_no_hardware() {
        assert_eq!(kvm_name(KvmKind::Hardware, true), "emulated");
        assert_eq!(kvm_name(KvmKind::Hardware, false), "hardware");
        assert_eq!(kvm_name(KvmKind::Absent, true), "absent");
    }

    #[test]
    fn what_the_host_says_is_taken_over() {
        let governor = |cpu| format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
        let (first, second) = (governor(0), governor(1));
        let host = [
            ("proc/cpuinfo", "processor\t: 0\nmodel name\t: AMD EPYC\nprocessor\t: 1\n"),
            ("proc/sys/kernel/osrelease", "6.1.0\n"),
            ("proc/meminfo", "MemTotal:       1024 kB\nMemFree: 12 kB\n"),
            ("proc/loadavg", "0.35 1.50 2.00 1/99 1234\n"),
            ("sys/devices/system/cpu/smt/active", "1\n"),
            (&first, "schedutil\n"),
            (&second, "performance\n"),
            ("sys/module/kvm/parameters/halt_poll_ns", "200000\n"),
            ("sys/module/kvm_intel/parameters/ple_gap", "128\n"),
            ("sys/module/kvm_intel/parameters/ple_window", "4096\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
        ];
        let files = made_up::host("facts", &host);
        let facts = HostFacts::read(&files, KvmKind::Denied, &CpuList::of(1));
        let windows = [("ple_gap", 128), ("ple_window", 4096)];
        let expected = HostFacts {
            cpu: "AMD EPYC".into(),
            cpu_count: Some(2),
            kvm: "denied".into(),
            kernel: "6.1.0".into(),
            smt: Some(true),
            governors: ["performance".to_owned()].into(),
            halt_poll_ns: Some(200_000),
            pause_loop: windows.map(|(name, value)| (name.to_owned(), value)).into(),
            huge_pages: Some("madvise".into()),
            clocksource: Some("tsc".into()),
            memory: Some(1 << 20),
            load_average: vec![0.35, 1.5, 2.0],
            ..HostFacts::default()
        };
        assert_eq!(facts, expected);
        let both = CpuFacts::read(&files, &[0, 1]).governors;
        assert_eq!(both, ["performance", "schedutil"].map(str::to_owned).into());
    }

    #[test]
    fn what_the_host_does_not_say_is_unknown() {
        let facts = HostFacts::read(&made_up::host("mute", &[]), KvmKind::Absent, &CpuList::of(0));
        assert_eq!(facts, HostFacts { kvm: "absent".into(), ..HostFacts::default() });
    }

    #[test]
    fn they_come_back_from_a_store() {
        let facts = HostFacts::gather(&CpuList::of(0)).with_files([Path::new("/nowhere")]);
        let text = serde_json::to_string(&facts).unwrap();
        assert_eq!(serde_json::from_str::<HostFacts>(&text).unwrap(), facts);
        // Lines of before there was more to say.
        let old = r#"{"cpu":"A","kvm":"absent","kernel":"6","cpus_allowed":"0","load_average":[],
            "busy":null}"#;
        assert_eq!(serde_json::from_str::<HostFacts>(old).unwrap().cpu, "A");
    }
}
