//! Everything that can wake a vCPU, sent to one wherever it may wait: halted in the VMM, in HLT in KVM with interrupts
//! off and on, and spinning, where a schedule parks it. Each class of thread is confined to its own system calls, and
//! another one carries out the wakeup for each policy and backend: none of them may make a call that is not its own.
//!
//! One guest does all of it in one boot. Its first vCPU sends NMIs, IPIs, kicks, doorbells, interrupts of a device and,
//! in every eighth round, INIT and SIPI; its second one waits and counts what it was woken by. The test sends signals
//! to the process meanwhile.

use std::path::Path;

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::code::{
    DIRECTORY, OTHERS, TRAMPOLINE, apic, in_every_eighth, maps_the_hole, msr, pauses,
    real_forever_long, real_msr, real_out, real_pauses, real_x2apic, rounds, starts_second, store,
};
use crate::{
    expect_usually,
    facts::{is_emulated, need_kvm},
    files::{
        self,
        code::{
            SPIN, out,
            port::{DOORBELL, EXIT, HALT, KICK},
        },
    },
    host::schedule::known_policies,
    product::Boot,
    suite::skip,
    tests,
};

tests![
    every_event_reaches_a_vcpu_wherever_it_waits,
    every_event_under_every_policy_and_backend => Long("20 s: each policy with each backend"),
];

/// The test that runs in the emulated host.
pub mod emulated {
    use super::*;

    tests![every_event_reaches_a_vcpu_wherever_it_waits_there];
}

/// The policies that divide time, and those that take it away.
const POLICIES: [&str; 12] = [
    "host",
    "rr",
    "fair",
    "gang",
    "kick-boost",
    "directed-yield",
    "deferred",
    "deferred:look",
    "lhp:10,5ms",
    "lwp:10,5ms",
    "point:critical",
    "random",
];

const BACKENDS: [&str; 4] = ["vmm", "doorbell", "kvm", "off"];

/// Of each policy and each backend one, for `make test`; with `vmm` all kinds of steps that a schedule takes.
const FEW: [(&str, &str); 6] = [
    ("host", "vmm"),
    ("rr", "vmm"),
    ("deferred", "vmm"),
    ("kick-boost", "doorbell"),
    ("fair", "kvm"),
    ("rr", "off"),
];

const FEW_THERE: [(&str, &str); 3] = [("rr", "vmm"), ("deferred", "doorbell"), ("fair", "kvm")];

/// Rounds of events: some 0.3 s on a software KVM.
const ROUNDS: u32 = 300;

/// What the second vCPU counts, in words from here on. None of them may stay zero.
const COUNTS: u16 = 0x600;
const WAKES: [&str; 7] = [
    "starts",
    "ends of halts in the VMM",
    "ends of HLT with interrupts off",
    "ends of HLT with interrupts on",
    "NMIs",
    "IPIs",
    "interrupts of a device",
];

const IPI: u32 = 0x40;
const DEVICE: u32 = 0x41;

fn every_event_reaches_a_vcpu_wherever_it_waits() -> anyhow::Result<()> {
    need_kvm()?;
    check(FEW)
}

fn every_event_reaches_a_vcpu_wherever_it_waits_there() -> anyhow::Result<()> {
    if !is_emulated() {
        return skip(
            "this host's KVM runs all guests: every_event_reaches_a_vcpu_wherever_it_waits",
        );
    }
    check(FEW_THERE)
}

fn every_event_under_every_policy_and_backend() -> anyhow::Result<()> {
    need_kvm()?;
    for known in known_policies()? {
        // Models of hosts are for simulations, and a replay needs a recording.
        let is_other = known.starts_with("host") || known == "replay";
        let is_here = |policy: &&str| policy.split(':').next() == Some(known.as_str());
        ensure!(is_other || POLICIES.iter().any(is_here), "{known} is missing here");
    }
    check(POLICIES.into_iter().flat_map(|policy| BACKENDS.map(|backend| (policy, backend))))
}

fn check<'a>(cases: impl IntoIterator<Item = (&'a str, &'a str)>) -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let kernel = files::put(&folder, "vmlinux", &files::vmlinux(&kernel()))?;
    for (policy, backend) in cases {
        wake(&folder, &kernel, policy, backend)
            .with_context(|| format!("{policy}, backend {backend}"))?;
    }
    Ok(())
}

/// Boots the guest, and sends the process what a terminal and a shell send it.
fn wake(folder: &TempDir, kernel: &Path, policy: &str, backend: &str) -> anyhow::Result<()> {
    let initrd = files::put(folder, "initrd", &files::cpio(&[]))?;
    let boot = Boot::direct().kernel(kernel).initrd(initrd).cpus(2).mem("64M").pv(backend);
    let boot = boot.policy(policy).command(["wakes"]);
    // One slot: what the second vCPU does between two turns of the first is spent parked.
    let boot = if policy == "host" { boot } else { boot.slots(1).slice("1ms") };
    let running = boot.program().env("PVTICKET_TRUST_KVM", "1").start()?;
    let ran = running.wait_watching(disturb)?;
    let status = ran.status()?;
    ensure!(!ran.errors().contains("seccomp"), "{}", ran.show());
    ensure!(
        usize::try_from(status).is_ok_and(|status| status < 1 << WAKES.len()),
        "{}",
        ran.show()
    );
    let missing = WAKES.iter().enumerate().filter(|(bit, _)| status >> bit & 1 == 1);
    let missing: Vec<&str> = missing.map(|(_, what)| *what).collect();
    expect_usually!(missing.is_empty(), "no {}\n{}", missing.join(", no "), ran.show());
    Ok(())
}

fn disturb(process: Pid) -> anyhow::Result<()> {
    for signal in [Signal::WINCH, Signal::URG, Signal::CHILD, Signal::TSTP, Signal::CONT] {
        // It may have ended.
        let _ = kill_process(process, signal);
    }
    Ok(())
}

fn kernel() -> Vec<u8> {
    let mut code = [starts_second(), msr(apic::SPURIOUS, apic::ON), routes_com1()].concat();
    code.extend(pauses(2_000));
    code.extend(rounds(ROUNDS, &events()));
    code.extend(ends_with_what_is_missing());
    code.resize(OTHERS.max(code.len()), 0);
    code.extend(second());
    code
}

/// All events, in one round.
fn events() -> Vec<u8> {
    let to_second = |command: u32| msr(apic::COMMAND, 1 << 32 | u64::from(command));
    // A byte on COM1 interrupts once it is sent, if the last interrupt was looked at: mov dx, 0x3fa; in al, dx;
    // mov dx, 0x3f8; mov al, '.'; out dx, al
    let device = vec![0x66, 0xba, 0xfa, 0x03, 0xec, 0x66, 0xba, 0xf8, 0x03, 0xb0, b'.', 0xee];
    let all = [to_second(0x4400), to_second(0x4000 | IPI), out(KICK, 1), out(DOORBELL, 1), device];
    let mut code: Vec<u8> =
        all.into_iter().flat_map(|event| [event, pauses(50)].concat()).collect();
    let start = to_second(0x4600 | TRAMPOLINE >> 12);
    code.extend(in_every_eighth(&[to_second(0x4500), start, pauses(500)].concat()));
    code
}

/// Has COM1 interrupt the second vCPU through the I/O APIC.
fn routes_com1() -> Vec<u8> {
    let mut code = maps_the_hole();
    // The 2 MiB at the I/O APIC (boot/layout.rs).
    code.extend(store(DIRECTORY + 0xfb0, 0xfec0_0083));
    code.extend([0xbf, 0, 0, 0xc0, 0xfe]); // mov edi, 0xfec00000
    // The two halves of the entry of pin 4 (82093AA, 3.2.4).
    for (index, value) in [(0x19_u32, 1_u32 << 24), (0x18, DEVICE)] {
        code.extend([0xc7, 0x07]); // mov dword [rdi]
        code.extend(index.to_le_bytes());
        code.extend([0xc7, 0x47, 0x10]); // mov dword [rdi + 16]
        code.extend(value.to_le_bytes());
    }
    // It interrupts when it has sent: mov dx, 0x3f9; mov al, 2; out dx, al
    code.extend([0x66, 0xba, 0xf9, 0x03, 0xb0, 2, 0xee]);
    code
}

/// Ends the machine with a bit for each of [`WAKES`] that was not counted.
fn ends_with_what_is_missing() -> Vec<u8> {
    let mut code = vec![0x31, 0xc0, 0x31, 0xc9]; // xor eax, eax; xor ecx, ecx
    // 1: cmp dword [rcx * 4 + COUNTS], 1; rcr eax, 1; inc ecx; cmp ecx, 7; jne 1b
    code.extend([0x83, 0x3c, 0x8d]);
    code.extend(u32::from(COUNTS).to_le_bytes());
    code.extend([1, 0xd1, 0xd8, 0xff, 0xc1, 0x83, 0xf9, WAKES.len() as u8, 0x75, 0xef]);
    code.extend([0xc1, 0xe8, 32 - WAKES.len() as u8]); // shr eax
    code.extend([0x66, 0xba]);
    code.extend(EXIT.to_le_bytes());
    code.push(0xef);
    code.extend(SPIN);
    code
}

/// Where the handlers of the second vCPU are, from the beginning of its code.
#[derive(Clone, Copy, Default)]
struct Handlers {
    nmi: usize,
    ipi: usize,
    device: usize,
}

/// What the second vCPU executes, in real mode.
fn second() -> Vec<u8> {
    let length = waits(Handlers::default()).len();
    let nmi = [count(4), vec![0xcf]].concat();
    let (ipi, device) = (handler(5), handler(6));
    let at =
        Handlers { nmi: length, ipi: length + nmi.len(), device: length + nmi.len() + ipi.len() };
    [waits(at), nmi, ipi, device].concat()
}

/// Sets itself up, and waits in one way after the other.
fn waits(at: Handlers) -> Vec<u8> {
    // An entry of the table of real mode: offset and segment.
    let entry = |offset: usize| (TRAMPOLINE << 12 | offset as u32).to_le_bytes();
    // cli; mov ax, 0x7000; mov ss, ax; mov sp, 0xfff0
    let mut code = vec![0xfa, 0xb8, 0, 0x70, 0x8e, 0xd0, 0xbc, 0xf0, 0xff];
    // xor ax, ax; mov ds, ax; mov es, ax; xor di, di; mov cx, 256; mov eax, ...; rep stosd
    code.extend([0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xc0, 0x31, 0xff, 0xb9, 0, 1, 0x66, 0xb8]);
    code.extend(entry(at.ipi));
    code.extend([0xf3, 0x66, 0xab]);
    for (vector, handler) in [(2, at.nmi), (DEVICE as u16, at.device)] {
        code.extend([0x66, 0xc7, 0x06]); // mov dword [...]
        code.extend((vector * 4).to_le_bytes());
        code.extend(entry(handler));
    }
    code.extend(count(0));
    code.extend(real_x2apic());
    code.extend(real_msr(apic::SPURIOUS, apic::ON));
    let mut body = [real_out(HALT, 1), count(1)].concat();
    body.push(0xf4); // hlt
    body.extend(count(2));
    body.extend([0xfb, 0xf4, 0xfa]); // sti; hlt; cli
    body.extend(count(3));
    body.extend(real_pauses(1_000));
    code.extend(real_forever_long(&body));
    code
}

/// In real mode: `inc dword [...]`
fn count(index: u16) -> Vec<u8> {
    let [low, high] = (COUNTS + 4 * index).to_le_bytes();
    vec![0x66, 0xff, 0x06, low, high]
}

/// Counts an interrupt, and tells the local APIC: pushes and pops EAX, ECX and EDX around it.
fn handler(index: u16) -> Vec<u8> {
    let mut code = vec![0x66, 0x50, 0x66, 0x51, 0x66, 0x52];
    code.extend(real_msr(apic::EOI, 0));
    code.extend(count(index));
    code.extend([0x66, 0x5a, 0x66, 0x59, 0x66, 0x58, 0xcf]);
    code
}
