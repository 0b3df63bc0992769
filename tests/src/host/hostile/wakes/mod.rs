//! Everything that can wake a vCPU, sent to a vCPU at each place where it may wait: halted in the VMM, in HLT
//! in KVM with interrupts off and on, and spinning, where a schedule parks it. Each class of thread is
//! confined to its own system calls, and a different class carries out the wakeup for each policy and
//! backend: no class may make a call of another, and no event may be lost.
//!
//! One guest goes through this matrix in one boot ([`guest`]), while the test sends signals to the process.
//! [`signals`] has the signals that end it, [`bpf`] the scheduler in the host's kernel. KVM's own call for
//! kicks is not among the events: a software KVM does not complete it (`registers::CALLS`).

pub mod bpf;
mod guest;
mod signals;

use std::fmt;

use self::guest::Counted;
use crate::{facts::need_emulated, host::schedule::has_all_policies, prelude::*, retry};

kvm::tests![
    every_event_reaches_a_vcpu_wherever_it_waits,
    every_event_under_every_policy_and_backend => Long("3 min: each policy with each backend"),
    a_signal_ends_a_process_wherever_a_vcpu_waits,
    every_signal_ends_a_process_wherever_a_vcpu_waits => Long("20 s: 192 boots"),
];

/// The test that runs in the emulated host.
pub mod emulated {
    use super::*;

    tests![
        every_event_reaches_a_vcpu_wherever_it_waits_emulated: need_emulated().and_then(|()| check(FEW_EMULATED)),
    ];
}

/// An event that the first vCPU sends to the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
enum Event {
    Nmi,
    /// INIT, followed by SIPI.
    Init,
    Ipi,
    /// By the kick port.
    Kick,
    /// An MSI.
    Doorbell,
    /// An interrupt of COM1, through the I/O APIC.
    Device,
}

impl Event {
    const ALL: [Self; 6] =
        [Self::Nmi, Self::Init, Self::Ipi, Self::Kick, Self::Doorbell, Self::Device];
}

/// A place where the second vCPU waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
enum Place {
    /// Halted in the VMM, by the port.
    Vmm,
    /// In HLT in KVM, with interrupts off.
    HltMasked,
    /// In HLT in KVM, with interrupts on.
    Hlt,
    /// In the guest. On one slot with the first vCPU, it is parked by the schedule whenever the first runs.
    Spins,
}

impl Place {
    const ALL: [Self; 4] = [Self::Vmm, Self::HltMasked, Self::Hlt, Self::Spins];
}

/// Policies that divide time, and policies that inject preemptions.
const POLICIES: [&str; 13] = [
    "host",
    "rr",
    "fair",
    "gang",
    "kick-boost",
    "directed-yield",
    "deferred",
    "deferred:look",
    "extend",
    "lhp:10,5ms",
    "lwp:10,5ms",
    "point:critical",
    "random",
];

const BACKENDS: [&str; 4] = ["vmm", "doorbell", "kvm", "off"];

/// Guests of this backend halt by the port, so their VMs have an NMI poller. A guest of another backend that
/// halts there gets its NMIs and INITs when a kick ends the halt.
const PORT_HALT_BACKEND: &str = "vmm";

/// Delayed kicks, and the backends whose kicks the VMM has to see for that.
const LATE: &str = "kick-delay:50us";
const LATE_BACKENDS: [&str; 2] = ["vmm", "doorbell"];

/// How a VM is booted.
#[derive(Debug, Clone, Copy)]
struct Case<'a> {
    policy: &'a str,
    backend: &'a str,
    is_late: bool,
}

impl<'a> Case<'a> {
    const fn on_time(policy: &'a str, backend: &'a str) -> Self {
        Self { policy, backend, is_late: false }
    }

    const fn late(policy: &'a str, backend: &'a str) -> Self {
        Self { policy, backend, is_late: true }
    }

    /// Boots a guest of two vCPUs with this code.
    fn boot(self, folder: &TempDir, code: &[u8]) -> anyhow::Result<Boot> {
        let boot = Boot::direct().kernel_code(folder, code)?.with("--cpus 2 --mem 64M");
        let boot =
            boot.option("--pv", self.backend).option("--policy", self.policy).command(["wakes"]);
        let boot = if self.is_late { boot.option("--fault", LATE) } else { boot };
        // One slot: the second vCPU is parked while the first runs.
        Ok(if self.policy == "host" { boot } else { boot.with("--slots 1 --slice 1ms") })
    }
}

impl fmt::Display for Case<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, backend {}{}",
            self.policy,
            self.backend,
            if self.is_late { ", late kicks" } else { "" }
        )
    }
}

/// A selection for `make test`, with each backend; with `vmm`, all kinds of steps that a schedule takes.
const FEW: [Case<'_>; 7] = [
    Case::on_time("host", "vmm"),
    Case::on_time("rr", "vmm"),
    Case::late("deferred", "vmm"),
    Case::on_time("kick-boost", "doorbell"),
    Case::late("directed-yield", "doorbell"),
    Case::on_time("fair", "kvm"),
    Case::on_time("rr", "off"),
];

const FEW_EMULATED: [Case<'_>; 3] =
    [Case::on_time("rr", "vmm"), Case::late("deferred", "doorbell"), Case::on_time("fair", "kvm")];

/// Each policy with each backend.
fn all_cases() -> impl Iterator<Item = Case<'static>> {
    POLICIES.into_iter().flat_map(|policy| BACKENDS.map(|backend| Case::on_time(policy, backend)))
}

fn every_event_reaches_a_vcpu_wherever_it_waits() -> anyhow::Result<()> {
    check(FEW)?;
    replays(["rr"])
}

fn every_event_under_every_policy_and_backend() -> anyhow::Result<()> {
    has_all_policies(&POLICIES)?;
    let late = all_cases().filter(|case| LATE_BACKENDS.contains(&case.backend));
    check(all_cases().chain(late.map(|case| Case { is_late: true, ..case })))?;
    replays(POLICIES.into_iter().filter(|policy| *policy != "host"))
}

fn a_signal_ends_a_process_wherever_a_vcpu_waits() -> anyhow::Result<()> {
    let places = Place::ALL.into_iter().cycle();
    signals::check(FEW.into_iter().zip(places))
}

fn every_signal_ends_a_process_wherever_a_vcpu_waits() -> anyhow::Result<()> {
    signals::check(all_cases().flat_map(|case| Place::ALL.map(|place| (case, place))))
}

fn check(cases: impl IntoIterator<Item = Case<'static>>) -> anyhow::Result<()> {
    let folder = files::scratch()?;
    for case in cases {
        let (name, code) = (case.to_string(), guest::kernel(case.backend));
        retry::row(&name, || judge(case.backend, &run_disturbed(case.boot(&folder, &code)?)?))
            .context(name)?;
    }
    Ok(())
}

/// Records the slices of each policy, and replays them. Recorded slices end halts, too, so events may arrive
/// after a wait has ended, and not every pair can be counted.
fn replays<'a>(policies: impl IntoIterator<Item = &'a str>) -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let (recording, code) = (folder.path().join("recording"), guest::kernel(PORT_HALT_BACKEND));
    let boot = |policy: &str| Case::on_time(policy, PORT_HALT_BACKEND).boot(&folder, &code);
    let replay = |policy: &str| {
        let recorded = run_disturbed(boot(policy)?.option("--record", &recording))?;
        judge(PORT_HALT_BACKEND, &recorded)?;
        let ran = run_disturbed(boot(&format!("replay:{}", recording.display()))?)?;
        expect_none_missed(&counted(&ran)?).with_context(|| ran.errors())
    };
    policies
        .into_iter()
        .try_for_each(|policy| replay(policy).context(format!("replay of {policy}")))
}

/// Runs the boot, and sends the process the signals that a terminal and a shell send.
fn run_disturbed(boot: Boot) -> anyhow::Result<RunResult> {
    let program = boot.program().env("PVTICKET_TRUST_KVM", "1").limit(120);
    let ran = program.start()?.wait_watching(disturb)?;
    ensure!(!ran.errors().contains("seccomp"), "{}", ran.show());
    ran.exits(0)
}

fn disturb(process: Pid) -> anyhow::Result<()> {
    for signal in [Signal::WINCH, Signal::URG, Signal::CHILD, Signal::TSTP, Signal::CONT] {
        // The process may have ended.
        let _ = kill_process(process, signal);
    }
    Ok(())
}

fn judge(backend: &str, ran: &RunResult) -> anyhow::Result<()> {
    let counted = counted(ran)?;
    expect_none_missed(&counted)
        .and_then(|()| is_complete(&counted))
        .with_context(|| format!("backend {backend}\n{}", ran.errors()))
}

fn counted(ran: &RunResult) -> anyhow::Result<Counted<'_>> {
    Counted::read(&ran.stdout).with_context(|| ran.show())
}

fn pairs() -> impl Iterator<Item = (Event, Place)> {
    Event::ALL.into_iter().flat_map(|event| Place::ALL.map(|place| (event, place)))
}

/// Checks that each event ended each wait that it should end.
fn expect_none_missed(counted: &Counted<'_>) -> anyhow::Result<()> {
    let missed = pairs().filter(|(event, place)| counted.missed(*event, *place) > 0);
    let missed: Vec<_> = missed
        .map(|(event, place)| {
            let (missed, answers) = (counted.missed(event, place), counted.answers(event, place));
            format!("{event:?} at {place:?} ({missed} times; {answers} were answered there)")
        })
        .collect();
    ensure!(missed.is_empty(), "waits went on after {}", missed.join(", "));
    Ok(())
}

/// Checks that each event was answered at each place. With other load the rounds may end before that; a guest
/// that loses an event loses it every time.
fn is_complete(counted: &Counted<'_>) -> anyhow::Result<()> {
    let unanswered = pairs().filter(|(event, place)| counted.answers(*event, *place) == 0);
    let unanswered: Vec<_> =
        unanswered.map(|(event, place)| format!("{event:?} at {place:?}")).collect();
    expect_usually!(unanswered.is_empty(), "never answered: {}", unanswered.join(", "));
    Ok(())
}
