//! Gathers the facts about the host that figures depend on.

pub mod around;
pub mod cgroups;
mod file;
pub mod hop;
mod load;

use std::{path::Path, thread, time::Duration};

use crate::doctor::{
    confinement::ConfinementFacts,
    cpu::CpuFacts,
    files::HostFiles,
    increment,
    system::SystemFacts,
    topology::{Choice, CpuRequest, Topology},
    virtualization::KvmFacts,
};
use base::units::CpuList;
pub use file::{binary_facts, kernel_facts};
use kvm::{KvmKind, host::is_emulated, signal};
pub use load::LoadWatch;
use os::cpu_quota::CpuQuota;
use study::{
    host_facts::{FileFacts, HostFacts},
    plan::{PlanError, check_cpus},
};

/// Time for which the load of other processes is sampled: twenty ticks of `/proc/stat`.
const LOAD_SAMPLE: Duration = Duration::from_millis(200);

/// Returns the locations of the CPUs that this process may use.
pub fn topology() -> Topology {
    Topology::read(&HostFiles::host(), &signal::allowed_cpus())
}

/// Returns the named CPUs, which this process must be allowed to use, or a choice of its allowed CPUs.
pub fn resolve_cpus(
    topology: &Topology,
    option: Option<&CpuList>,
    request: CpuRequest,
) -> Result<Choice, PlanError> {
    match option {
        None => topology.choose(request).map_err(|_| PlanError::Allowed),
        Some(option) => {
            let allowed = CpuList::new(&topology.cpus()).map_err(|_| PlanError::Allowed)?;
            check_cpus(option, &allowed)?;
            Ok(Choice { cpus: option.clone(), note: None })
        }
    }
}

/// Returns all CPUs that this process may use.
pub fn allowed_cpus() -> Result<CpuList, PlanError> {
    CpuList::new(&signal::allowed_cpus()).map_err(|_| PlanError::Allowed)
}

/// Gathers the facts of this host. Samples the load of `cpus` for a fifth of a second.
pub fn gather_facts(cpus: &CpuList) -> HostFacts {
    let watch = LoadWatch::start(cpus);
    thread::sleep(LOAD_SAMPLE);
    let load = watch.end();
    let allowed = allowed_cpus();
    let kind = KvmKind::detect();
    let facts = read(&HostFiles::host(), kind, cpus);
    let kvm = kvm_name(kind, is_emulated()).to_owned();
    let confinement = Some(ConfinementFacts::summary());
    HostFacts {
        kvm,
        confinement,
        increment: Some(increment::measure()),
        cpus_allowed: allowed.map(|cpus| cpus.to_string()).unwrap_or_default(),
        cpu_quota: CpuQuota::current().map(|quota| quota.0),
        busy: load.busy,
        steal: load.steal,
        ..facts
    }
}

/// Reads the facts in the host's files.
fn read(files: &HostFiles, kind: KvmKind, cpus: &CpuList) -> HostFacts {
    let cpu = CpuFacts::read(files, cpus.cpus());
    let kvm = KvmFacts::read(files, kind);
    let system = SystemFacts::read(files);
    HostFacts {
        cpu: cpu.model.unwrap_or_default(),
        microcode: cpu.microcode,
        cpu_count: cpu.online,
        kvm: kvm.kind.to_owned(),
        kernel: system.kernel.unwrap_or_default(),
        preemption: system.preemption,
        hypervisor: cpu.hypervisor.or(system.hypervisor_type),
        smt: cpu.smt,
        governors: cpu.governors,
        halt_poll_ns: kvm.halt_poll_ns,
        pause_loop: kvm.pause_loop,
        kvm_switches: kvm.switches,
        huge_pages: system.transparent_huge_pages,
        clocksource: system.clocksource,
        memory: system.memory,
        load_average: load::read_average(files),
        ..HostFacts::default()
    }
}

/// Adds this program and these kernels of guests and emulated hosts to `facts`. They are read completely for their
/// hashes. A kernel that cannot be read is left out.
pub fn with_files<'a>(
    facts: HostFacts,
    kernels: impl IntoIterator<Item = (String, &'a Path)>,
    host_kernels: impl IntoIterator<Item = (String, &'a Path)>,
) -> HostFacts {
    let named = |(name, path)| Some(FileFacts { name, ..kernel_facts(path)? });
    HostFacts {
        binary: binary_facts(),
        kernels: kernels.into_iter().filter_map(named).collect(),
        host_kernels: host_kernels.into_iter().filter_map(named).collect(),
        ..facts
    }
}

/// Returns the value of [`HostFacts::kvm`]. Once, figures of the emulated host, where an exit costs twenty
/// times as much as elsewhere, were headed "hardware KVM".
fn kvm_name(kind: KvmKind, is_emulated: bool) -> &'static str {
    match kind {
        KvmKind::Hardware if is_emulated => "emulated",
        kind => kind.name(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::files::mock;

    #[test]
    fn emulated_cpu_is_not_hardware_kvm() {
        assert_eq!(kvm_name(KvmKind::Hardware, true), "emulated");
        assert_eq!(kvm_name(KvmKind::Hardware, false), "hardware");
        assert_eq!(kvm_name(KvmKind::Absent, true), "absent");
    }

    #[test]
    fn facts_are_read_from_host_files() {
        let governor = |cpu| format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
        let (first, second) = (governor(0), governor(1));
        let host = [
            (
                "proc/cpuinfo",
                "processor\t: 0\nmodel name\t: AMD EPYC\nmicrocode\t: 0x1000065\nprocessor\t: 1\n",
            ),
            ("proc/sys/kernel/osrelease", "6.1.0\n"),
            ("proc/meminfo", "MemTotal:       1024 kB\nMemFree: 12 kB\n"),
            ("proc/loadavg", "0.35 1.50 2.00 1/99 1234\n"),
            ("sys/devices/system/cpu/smt/active", "1\n"),
            (&first, "schedutil\n"),
            (&second, "performance\n"),
            ("sys/module/kvm/parameters/halt_poll_ns", "200000\n"),
            ("sys/module/kvm_intel/parameters/ple_gap", "128\n"),
            ("sys/module/kvm_intel/parameters/ple_window", "4096\n"),
            ("sys/module/kvm_intel/parameters/enable_ipiv", "N\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
        ];
        let files = mock::host("facts", &host);
        let facts = read(&files, KvmKind::Denied, &CpuList::single(1));
        let windows = [("ple_gap", 128), ("ple_window", 4096)];
        let expected = HostFacts {
            cpu: "AMD EPYC".into(),
            microcode: Some("0x1000065".into()),
            cpu_count: Some(2),
            kvm: "denied".into(),
            kernel: "6.1.0".into(),
            smt: Some(true),
            governors: ["performance".to_owned()].into(),
            halt_poll_ns: Some(200_000),
            pause_loop: windows.map(|(name, value)| (name.to_owned(), value)).into(),
            kvm_switches: [("enable_ipiv".to_owned(), false)].into(),
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
    fn missing_files_leave_facts_unknown() {
        let facts = read(&mock::host("mute", &[]), KvmKind::Absent, &CpuList::single(0));
        assert_eq!(facts, HostFacts { kvm: "absent".into(), ..HostFacts::default() });
    }

    #[test]
    fn facts_round_trip_through_json() {
        let facts = with_files(
            gather_facts(&CpuList::single(0)),
            [("6.1".into(), Path::new("/nowhere"))],
            [],
        );
        let text = serde_json::to_string(&facts).unwrap();
        assert_eq!(serde_json::from_str::<HostFacts>(&text).unwrap(), facts);
        // A line from before more fields were added.
        let old = r#"{"cpu":"A","kvm":"absent","kernel":"6","cpus_allowed":"0","load_average":[],
            "busy":null}"#;
        assert_eq!(serde_json::from_str::<HostFacts>(old).unwrap().cpu, "A");
    }
}
