//! Lines about the setup of measurements: machines, guests and method.

use std::collections::BTreeSet;

use super::{
    command::start_command,
    text::{MAIL, hanging},
    utc_minutes,
};
use crate::{lists::unique, names};
use base::{host_extras::PleWindow, plural::count, sanitize::shell_quoted, units::CpuList};
use study::{
    findings::{Axis, PointStudy, RunFacts, Study},
    host_facts::{FileFacts, HostFacts},
    point::{GuestKind, HostKind, Point},
    spec,
};

/// Maximum number of guests described individually.
const MAX_GUESTS: usize = 3;

/// Describes the host of a simulation.
const SIMULATED: &str = "SIMULATED: nothing was measured on the host";

/// Maximum number of lines of the setup below an answer, including the report line.
const MAX_BRIEF: usize = 10;

/// The setup below an answer: the lines that fit, then the command that shows the rest.
pub fn brief(study: &Study) -> String {
    let mut lines = SetupLines::default();
    for run in &study.runs {
        let host = run.sessions.first().map(|session| short_machine(&session.host));
        let is_simulated = spec::is_simulated(&run.run.spec);
        let host = if is_simulated { Some(SIMULATED.to_owned()) } else { host };
        lines.add("machine", &host.unwrap_or_default());
    }
    emulated(study, &mut lines);
    schedules(study, &mut lines);
    let (seconds, repetitions) = windows(study);
    lines.add("windows", &format!("{seconds}; repetitions of each point: {repetitions}"));
    guests(study, &mut lines);
    faults(study, &mut lines);
    let list: Vec<&str> = lines.text.lines().collect();
    let (shown, end) =
        if list.len() < MAX_BRIEF { (list.len(), "") } else { (MAX_BRIEF - 2, "         ...\n") };
    let shown: String = list[..shown].iter().map(|line| format!("{line}\n")).collect();
    let sources = study.runs.iter().map(|run| &run.source).filter(|source| !source.is_empty());
    let sources: Vec<String> = sources.map(|source| shell_quoted(source)).collect();
    let hint = if sources.is_empty() {
        "with --dir DIR, `pvticket report DIR` has the rest".to_owned()
    } else {
        format!("`pvticket report {}` has the rest", sources.join(" "))
    };
    shown + end + &hanging("report   ", &hint, MAIL)
}

/// CPU, KVM and Linux of a host.
fn short_machine(host: &HostFacts) -> String {
    let HostFacts { cpu, cpu_count, kvm, kernel, .. } = host;
    let cpus = cpu_count.map(|cpus| count(cpus, "CPU").to_string());
    let kvm = (!kvm.is_empty()).then(|| format!("{kvm} KVM"));
    let kernel = (!kernel.is_empty()).then(|| format!("Linux {kernel}"));
    joined([Some(cpu.clone()), cpus, kvm, kernel], ", ")
}

/// The setup of a study, one line per part.
pub fn describe(study: &Study) -> String {
    let mut lines = SetupLines::default();
    for run in &study.runs {
        hosts(run, &mut lines);
    }
    emulated(study, &mut lines);
    guests(study, &mut lines);
    for run in &study.runs {
        run_lines(run, &mut lines);
    }
    axes(study, &mut lines);
    schedules(study, &mut lines);
    faults(study, &mut lines);
    seeds(study, &mut lines);
    let (seconds, repetitions) = windows(study);
    let text = format!(
        "{seconds}, fresh machines each time; repetitions of each point: {repetitions}, \
         neighbours in alternating order"
    );
    lines.add("windows", &text);
    lines.text
}

/// Lines that begin with a label, without duplicates.
#[derive(Default)]
struct SetupLines {
    text: String,
    seen: BTreeSet<(&'static str, String)>,
    last: &'static str,
}

impl SetupLines {
    fn add(&mut self, label: &'static str, text: &str) {
        if text.is_empty() || !self.seen.insert((label, text.to_owned())) {
            return;
        }
        let shown_label = if self.last == label { "" } else { label };
        self.last = label;
        self.text += &hanging(&format!("{shown_label:<9}"), text, MAIL);
    }
}

/// Joins the nonempty texts.
fn joined<const N: usize>(parts: [Option<String>; N], between: &str) -> String {
    parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(between)
}

fn hosts(run: &RunFacts, lines: &mut SetupLines) {
    if spec::is_simulated(&run.run.spec) {
        lines.add("machine", &format!("{SIMULATED} below"));
    }
    for part in [machine, kernel] {
        for session in &run.sessions {
            let (label, text) = part(&session.host);
            let node = session.host.node.as_ref().map(|node| format!("{node}: "));
            lines.add(label, &format!("{}{text}", node.unwrap_or_default()));
        }
    }
    for session in &run.sessions {
        let Some(FileFacts { sha256, version, .. }) = &session.host.binary else { continue };
        let version = version.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
        lines.add("binary", &format!("pvticket{version}, SHA-256 {sha256}..."));
    }
}

fn machine(host: &HostFacts) -> (&'static str, String) {
    let cpus = host.cpu_count.map(|cpus| count(cpus, "CPU").to_string());
    let smt = host.smt.map(|on| if on { "SMT" } else { "no SMT" }.to_owned());
    let quota = host.cpu_quota.map(|cpus| format!("a quota of {cpus:.2} CPUs' time"));
    let microcode = host.microcode.as_ref().map(|value| format!("microcode {value}"));
    let memory =
        host.memory.map(|bytes| format!("{:.1} GiB", bytes as f64 / f64::from(1u32 << 30)));
    let kvm = (!host.kvm.is_empty()).then(|| format!("{} KVM", host.kvm));
    let under = host.hypervisor.as_ref().map(|name| format!("running under {name}"));
    let increment = host.increment.map(|increment| {
        let unsteady = if increment.is_steady() { "" } else { ", not steady" };
        format!(
            "an increment takes {:.2} ns (p99 {:.2} times{unsteady})",
            increment.picos as f64 / 1e3,
            increment.p99
        )
    });
    let cpu = Some(host.cpu.clone());
    ("machine", joined([cpu, cpus, quota, smt, microcode, memory, kvm, under, increment], ", "))
}

fn kernel(host: &HostFacts) -> (&'static str, String) {
    let governors: Vec<&str> = host.governors.iter().map(String::as_str).collect();
    let ple: Vec<String> =
        host.pause_loop.iter().map(|(name, value)| format!("{name} {value}")).collect();
    let on_off =
        |(name, is_on): (&String, &bool)| format!("{name} {}", if *is_on { "on" } else { "off" });
    let switches: Vec<String> = host.kvm_switches.iter().map(on_off).collect();
    let preemption = host.preemption.clone();
    let parts = [
        Some(joined([Some(format!("Linux {}", host.kernel)), preemption], " ")),
        host.clocksource.as_ref().map(|value| format!("clock source {value}")),
        host.huge_pages.as_ref().map(|value| format!("huge pages {value}")),
        host.halt_poll_ns.map(|value| format!("halt_poll_ns {value}")),
        Some(ple.join(", ")),
        Some(switches.join(", ")),
        (!governors.is_empty()).then(|| format!("governor {}", governors.join(", "))),
        host.confinement.as_ref().map(|value| format!("machines confined: {value}")),
    ];
    ("kernel", if host.kernel.is_empty() { String::new() } else { joined(parts, "; ") })
}

fn emulated(study: &Study, lines: &mut SetupLines) {
    let is_emulated = |point: &&PointStudy| point.point.host == HostKind::Emulated;
    let mut points = study.points.iter().filter(is_emulated).peekable();
    if points.peek().is_none() {
        return;
    }
    for run in &study.runs {
        let named = run.sessions.iter().flat_map(|session| &session.host.host_kernels);
        let named: Vec<String> =
            named.map(|file| format!("{} ({})", file.name, identity(file))).collect();
        let kernels =
            if named.is_empty() { run.run.host_kernel.to_string() } else { named.join(", ") };
        lines.add("", &format!("cells of the emulated host: QEMU, AMD-V, Linux {kernels}"));
    }
    if points.any(|point| point.point.ple == Some(PleWindow::DEFAULT)) {
        lines.add("", "with PLE on each PAUSE exits: QEMU's CPU has no filter");
    }
}

fn guests(study: &Study, lines: &mut SetupLines) {
    let guests = unique(study.points.iter().map(|point| guest(&point.point)));
    for guest in guests.iter().take(MAX_GUESTS) {
        lines.add("guest", guest);
    }
    if let Some(more) = guests.len().checked_sub(MAX_GUESTS).filter(|more| *more > 0) {
        lines.add("guest", &format!("and {more} more"));
    }
    for file in
        study.runs.iter().flat_map(|run| &run.sessions).flat_map(|session| &session.host.kernels)
    {
        let parts = ["kernel".to_owned(), file.name.clone(), identity(file)].map(Some);
        lines.add("guest", &joined(parts, " "));
    }
}

/// A kernel's version, preemption model and hash.
fn identity(file: &FileFacts) -> String {
    let FileFacts { sha256, version, preemption, .. } = file;
    let version = version.as_deref().unwrap_or("of unknown version");
    let preemption = preemption.as_ref().map(|model| format!(", {model}")).unwrap_or_default();
    format!("{version}{preemption}, SHA-256 {sha256}...")
}

fn run_lines(run: &RunFacts, lines: &mut SetupLines) {
    let facts = &run.run;
    let only: String = facts.only.iter().map(|only| format!(", --only {only}")).collect();
    let at = utc_minutes(facts.at_ms);
    let name = super::name(run);
    let (done, cells) = (run.done, facts.cells);
    let place = if run.source.is_empty() { String::new() } else { format!(" ({})", run.source) };
    lines.add("spec", &format!("{name}{only}: {done} of {}, {at}{place}", count(cells, "cell")));
    if let Some(command) = start_command(run) {
        lines.add("", &command);
    }
}

/// Values of the varying axes, in the syntax of a spec.
fn axes(study: &Study, lines: &mut SetupLines) {
    for axis in &study.varying {
        let Some(key) = axis.key().filter(|_| *axis != Axis::Policy) else { continue };
        let values = unique(study.points.iter().map(|point| axis.value(&point.point)));
        lines.add("axes", &format!("{key}: {}", values.join(", ")));
    }
}

fn schedules(study: &Study, lines: &mut SetupLines) {
    let schedule = |point: &Point| {
        if point.policy.is_host() {
            "host (the host's scheduler)".to_owned()
        } else {
            format!("{}, slices of {}", point.schedule_name(), point.slice)
        }
    };
    let policies = unique(study.points.iter().map(|point| schedule(&point.point)));
    lines.add("policy", &policies.join("; "));
    let numbers = |number: fn(&Point) -> u32| {
        let numbers: BTreeSet<_> = study.points.iter().map(|point| number(&point.point)).collect();
        names::listed(&numbers)
    };
    let (vcpus, slots) = (numbers(Point::all_vcpus), numbers(|point| point.slots));
    for run in &study.runs {
        let (cpus, jobs) = (CpuList::ranges(&run.run.cpus), run.run.jobs);
        lines.add("policy", &format!("vCPUs: {vcpus}, on {slots} of CPUs {cpus}, jobs {jobs}"));
    }
}

/// Host extras and faults of the points.
fn faults(study: &Study, lines: &mut SetupLines) {
    for point in study.points.iter().map(|point| &point.point) {
        lines.add("host", &point.host_extras().join(", "));
        lines.add("faults", &point.fault.map_or_else(String::new, |fault| fault.to_string()));
    }
}

fn seeds(study: &Study, lines: &mut SetupLines) {
    let order: BTreeSet<u64> = study.runs.iter().map(|run| run.run.seed).collect();
    let seeds = study
        .points
        .iter()
        .flat_map(|point| &point.repetitions)
        .map(|repetition| repetition.key.seed);
    let [order, seeds] = [order, seeds.collect()].map(|seeds: BTreeSet<u64>| names::listed(&seeds));
    let seeds = if seeds.is_empty() { "none".to_owned() } else { seeds };
    lines.add("seeds", &format!("order of the cells {order}; schedules and faults {seeds}"));
}

/// Lengths of the windows, and repetitions of each point.
fn windows(study: &Study) -> (String, String) {
    let seconds = unique(study.points.iter().map(|point| point.point.duration.as_secs_f64()));
    let seconds: Vec<String> = seconds.iter().map(f64::to_string).collect();
    let warm_up = study.runs.first().and_then(|run| spec::method_of(&run.run.spec));
    let warm_up = warm_up
        .map(|run| format!(" after a warm-up of {} s", run.warm_up.as_secs_f64()))
        .unwrap_or_default();
    let counts = || study.points.iter().map(|point| point.repetitions.len());
    let (min, max) = (counts().min().unwrap_or(0), counts().max().unwrap_or(0));
    let counts = if min == max { max.to_string() } else { format!("{min} to {max}") };
    if study.points.iter().all(|study| study.point.program().is_some()) {
        return ("a run of the program".to_owned(), counts);
    }
    (format!("{} s{warm_up}", names::listed(&seconds)), counts)
}

/// Describes the guest and its work.
fn guest(point: &Point) -> String {
    let Point {
        guest, guest_kernel, workload, lock_count, critical, think, spin_threshold, ..
    } = point;
    let locks =
        if *lock_count == 1 { "one lock".into() } else { format!("one of {lock_count} locks") };
    let linux =
        if guest_kernel.is_unnamed() { "Linux".into() } else { format!("Linux {guest_kernel}") };
    let work = match (guest, workload.as_str()) {
        (GuestKind::Payload, "switch") => {
            return "ring-3 payload: each vCPU writes the time repeatedly; an operation is a switch to \
                    another vCPU"
                .into();
        }
        (GuestKind::Payload, workload) => {
            let what = match workload {
                "hot-line" => ", the last vCPU only reads",
                "mixed" => ", all families in turn",
                _ => "",
            };
            format!("ring-3 payload{what}: {critical} increments under {locks}, {think} outside it")
        }
        (GuestKind::Linux, "lock") => format!(
            "{linux}, one thread per vCPU: {critical} increments under one spin_lock, {think} outside it"
        ),
        (GuestKind::Linux, _) if point.program().is_some() => {
            format!("{linux}: {}", point.workload_name())
        }
        (GuestKind::Linux, name) => format!("{linux}: bench {name}"),
        (GuestKind::Sim, _) => format!(
            "the lock library's sources: work of {critical} increments under {locks}, {think} outside it, \
             on simulated machine {}",
            point.machine
        ),
    };
    format!("{work}; PV ticketlocks halt after {}", count(*spin_threshold, "spin iteration"))
}
