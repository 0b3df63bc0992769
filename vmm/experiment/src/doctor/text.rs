//! The report as text.

use std::fmt::{self, Display, Formatter};

use super::{
    DoctorReport, Facts, GuestHost,
    confinement::ConfinementFacts,
    cpu::CpuFacts,
    sched_ext::{Obstacle, SchedExtFacts},
    system::SystemFacts,
    tools::Artifact,
    tools::CacheFacts,
    tools::Tool,
    virtualization::KvmFacts,
};
use base::{plural::count, units::CpuList};
use emulated::default_cpus;
use kvm::KvmKind;
use study::host_facts::IncrementFacts;

/// Reason why the emulated host has one CPU more than its guests use.
const RESERVED: &str = "the machine's first CPU, whose state QEMU may corrupt";

/// Width of a row's name.
const NAME: usize = 22;

impl Display for DoctorReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Facts { kvm, cpu, cpu_quota, increment, system, .. } = &self.facts;
        let Facts { confinement, sched_ext, unobserved, tools, cache, artifacts, .. } = &self.facts;
        let quota = cpu_quota.map(|quota| format!("{quota:.2} CPUs' time"));
        let quota = row("CPU quota", quota.unwrap_or_else(|| "none".to_owned()));
        section(f, "KVM", &kvm_rows(kvm))?;
        section(f, "CPU", &[cpu_rows(cpu), vec![quota, increment_row(increment)]].concat())?;
        section(f, "System", &system_rows(system, cpu))?;
        section(f, "Confinement of VMs", &confinement_rows(confinement))?;
        let no_yields = unobserved.as_ref().or(self.facts.no_yields.as_ref());
        let observer = [("observes host", unobserved.as_ref()), ("observes yields", no_yields)];
        let observed = |why: &String| format!("no: {why}");
        let rows = observer.map(|(name, why)| row(name, why.map_or("yes".into(), observed)));
        let rows = [sched_ext_rows(sched_ext), rows.into()].concat();
        section(f, "Schedulers in BPF", &rows)?;
        section(f, "Programs", &tools.iter().map(tool_row).collect::<Vec<_>>())?;
        let cached: Vec<NamedValue> =
            cache_row(cache).into_iter().chain(artifacts.iter().map(artifact_row)).collect();
        section(f, "Files of pvticket", &cached)?;
        section(f, "Where guests run", &place_rows(&self.guests))?;
        writeln!(f, "Next steps")?;
        self.next.iter().try_for_each(|step| writeln!(f, "  - {step}"))
    }
}

pub(super) type NamedValue = (String, String);

fn row(name: &str, value: impl Into<String>) -> NamedValue {
    (name.into(), value.into())
}

fn section(f: &mut Formatter<'_>, title: &str, rows: &[NamedValue]) -> fmt::Result {
    writeln!(f, "{title}")?;
    rows.iter().try_for_each(|(name, value)| writeln!(f, "  {name:<NAME$} {value}"))?;
    writeln!(f)
}

fn or_unknown(value: Option<impl Display>) -> String {
    value.map_or_else(|| "unknown".into(), |value| value.to_string())
}

fn yes_no(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

pub(super) fn kvm_rows(kvm: &KvmFacts) -> Vec<NamedValue> {
    let kind = match kvm.detected {
        KvmKind::Hardware => "hardware: VT-x or AMD-V; every guest runs",
        KvmKind::Software => "software: ring-3 guests run natively, guest kernels do not",
        KvmKind::Absent => "none: there is no /dev/kvm",
        KvmKind::Denied => "no permission to open /dev/kvm",
    };
    let mut rows = vec![row("kind", kind)];
    if let Some(module) = &kvm.module {
        rows.push(row("module", module.as_str()));
    }
    if let Some(capabilities) = &kvm.capabilities {
        let (version, vcpus) = (capabilities.api_version, capabilities.max_vcpus);
        let features = &capabilities.features;
        let list = |state: bool| {
            let names = features.iter().filter(|(_, present)| **present == state);
            names.map(|(name, _)| *name).collect::<Vec<_>>().join(" ")
        };
        rows.push(row(
            "API",
            format!("version {version}, up to {} a machine", count(vcpus, "vCPU")),
        ));
        rows.push(row("can", list(true)));
        if features.values().any(|present| !present) {
            rows.push(row("cannot", list(false)));
        }
    }
    if let Some(nanos) = kvm.halt_poll_ns {
        let text = if nanos == 0 { "off".into() } else { format!("{} us", nanos / 1000) };
        rows.push(row("halt polling", text));
    }
    if kvm.has_vendor() {
        rows.push(row("pause-loop exiting", pause_loop(kvm)));
        rows.push(row("switches", switches(kvm)));
        rows.push(row("nested guests", or_unknown(kvm.nested.map(yes_no))));
    }
    rows
}

/// Describes whether a spinning guest exits, and the parameters that decide when.
fn pause_loop(kvm: &KvmFacts) -> String {
    let parameters = kvm.pause_loop.iter().map(|(name, value)| format!("{name} {value}"));
    let parameters: Vec<String> = parameters.collect();
    let is_on = or_unknown(kvm.pause_loop_exiting.map(yes_no));
    if parameters.is_empty() { is_on } else { format!("{is_on}: {}", parameters.join(" ")) }
}

/// The module's switches by name: APICv or AVIC, IPI virtualization, posted interrupts, paging, timer.
fn switches(kvm: &KvmFacts) -> String {
    let states = kvm.switches.iter().map(|(name, value)| format!("{name} {}", yes_no(*value)));
    let states: Vec<String> = states.collect();
    if states.is_empty() { "unknown".to_owned() } else { states.join(", ") }
}

pub(super) fn cpu_rows(cpu: &CpuFacts) -> Vec<NamedValue> {
    let list = |state: bool| {
        let names = cpu.flags.iter().filter(|(_, present)| **present == state);
        names.map(|(name, _)| *name).collect::<Vec<_>>().join(" ")
    };
    let vendor = cpu.vendor.as_deref().unwrap_or("unknown vendor");
    let smt = match cpu.smt {
        Some(true) => "on: hardware threads share cores",
        Some(false) => "off",
        None => "unknown",
    };
    let mut rows = vec![row("model", format!("{} ({vendor})", or_unknown(cpu.model.as_ref())))];
    if cpu.flags.is_empty() {
        rows.push(row("flags", "unknown"));
    } else {
        let absent_label = if cpu.flags_of_cpuid { "not in CPUID" } else { "without" };
        rows.extend([row("flags", list(true)), row(absent_label, list(false))]);
    }
    let online = cpu.online.map_or_else(|| "unknown number".to_owned(), |count| count.to_string());
    rows.push(row(
        "CPUs",
        format!("{online} online, this process may use {}", CpuList::ranges(&cpu.allowed)),
    ));
    rows.push(row("SMT", smt));
    if let Some(choice) = &cpu.by_default {
        let note = choice.note.as_deref().and_then(|note| note.strip_prefix("CPUs "));
        rows.push(row("CPUs by default", note.map_or_else(|| "all".to_owned(), str::to_owned)));
    }
    if !cpu.unknown.is_empty() {
        rows.push(row("topology", format!("unknown: {}", cpu.unknown.join(", "))));
    }
    if cpu.spared > 0 {
        rows.push(row("kept free of guests", format!("{RESERVED}: its CPU 1 is CPU 0 here")));
    }
    if !cpu.governors.is_empty() {
        let governors: Vec<&str> = cpu.governors.iter().map(String::as_str).collect();
        rows.push(row("frequency governor", governors.join(", ")));
    }
    rows
}

fn increment_row(increment: &IncrementFacts) -> NamedValue {
    let IncrementFacts { picos, p99, two_lines } = *increment;
    let mut text = format!("{:.2} ns; p99 of batches {p99:.2} times", picos as f64 / 1e3);
    if let Some(times) = two_lines {
        text += &format!(", two lines {times:.2} times one");
    }
    if !increment.is_steady() {
        text += ": two speeds, or other work on the CPU; figures without contention depend on it";
    }
    row("work of a payload", text)
}

pub(super) fn system_rows(system: &SystemFacts, cpu: &CpuFacts) -> Vec<NamedValue> {
    let mut rows = vec![
        row(
            "kernel",
            format!(
                "{}, preemption {}",
                or_unknown(system.kernel.as_ref()),
                or_unknown(system.preemption.as_ref())
            ),
        ),
        row("clock source", or_unknown(system.clocksource.as_ref())),
        row("huge pages", or_unknown(system.transparent_huge_pages.as_ref())),
    ];
    if let Some(hypervisor) = cpu.hypervisor.as_ref().or(system.hypervisor_type.as_ref()) {
        rows.push(row("runs under", format!("{hypervisor}: this host is a VM itself")));
    }
    if let Some(steal) = system.steal_percent {
        rows.push(row("stolen CPU time", format!("{steal} % since boot")));
    }
    rows
}

fn confinement_rows(facts: &ConfinementFacts) -> Vec<NamedValue> {
    let landlock = match facts.landlock {
        0 => "not limited".into(),
        version => format!("limited by Landlock, version {version}"),
    };
    let mut rows = vec![
        row("system calls", if facts.seccomp { "filtered by thread" } else { "not filtered" }),
        row("files", landlock),
    ];
    rows.extend(facts.missing.iter().map(|part| row("this kernel lacks", *part)));
    rows
}

pub(super) fn sched_ext_rows(facts: &SchedExtFacts) -> Vec<NamedValue> {
    let loaded = match (facts.state.as_deref(), &facts.scheduler) {
        (None, _) => or_unknown(
            facts
                .supported
                .map(|has| if has { "yes; its state is unknown" } else { "not in this kernel" }),
        ),
        (Some("disabled"), _) => "yes; none is loaded".into(),
        (Some(state), None) => format!("yes; {state}"),
        (Some(state), Some(name)) => format!("yes; {state}: {name}"),
    };
    let usable = match facts.obstacles().as_slice() {
        [] => "yes",
        [Obstacle::Unknown] => "unknown: see below",
        _ => "no: see below",
    };
    vec![
        row("sched_ext", loaded),
        row("types (BTF)", or_unknown(facts.btf.map(yes_no))),
        row("may be loaded", or_unknown(facts.allowed.map(yes_no))),
        row("usable", usable),
    ]
}

fn tool_row(tool: &Tool) -> NamedValue {
    let text = match (&tool.path, &tool.version) {
        (None, _) => format!("not found ({})", tool.purpose),
        (Some(path), None) => path.display().to_string(),
        (Some(path), Some(version)) => format!("{version:<10} {}", path.display()),
    };
    row(tool.name, text)
}

fn cache_row(cache: &CacheFacts) -> Option<NamedValue> {
    let folder = cache.folder.as_ref()?.display();
    let note = cache.stranger.as_ref().map_or_else(String::new, |reason| format!("; {reason}"));
    Some(row("cache", format!("{folder}{note}")))
}

fn artifact_row(artifact: &Artifact) -> NamedValue {
    let place = artifact.path.as_ref().map(|path| path.display().to_string());
    row(artifact.name, place.unwrap_or_else(|| "missing".into()))
}

fn place_rows(guests: &[GuestHost]) -> Vec<NamedValue> {
    let mut rows: Vec<NamedValue> = guests.iter().map(guest_row).collect();
    if guests.iter().any(|guest| guest.host == "emulated") {
        let cpus = default_cpus();
        rows.push(row(
            "emulated CPUs",
            format!("{cpus} for guests; one more is kept free of them: {RESERVED}"),
        ));
    }
    rows
}

fn guest_row(guest: &GuestHost) -> NamedValue {
    let ready = if guest.missing.is_empty() { "" } else { "; not yet: see below" };
    row(guest.guest, format!("{:<9} {}{ready}", guest.host, guest.why))
}
