//! Hostile guests: a few instructions each, for the first VM of a schedule.

use sched::policy::POLICIES;

use super::code::{
    AP_CODE, apic, claim, forever, forever_long, real_forever, real_forever_long, real_msr,
    real_x2apic, start_second, telemetry, unless_honest,
};
use crate::{
    files::code::{
        out,
        port::{
            EVENT, EXIT, HALT, KERNEL_FACTS, KICK, KICK_AND_HALT, OUTPUT_PAGE, STDOUT_PAGE, YIELD,
            YIELD_TO,
        },
        times,
    },
    prelude::*,
};

/// All ports of the contract.
pub const CONTRACT: std::ops::Range<u16> = 0x600..0x648;
/// Ports of the keyboard controller and ACPI that can end a VM.
pub const ENDS: [u16; 4] = [0x64, 0x680, 0x681, 0x682];

/// The page frame number of a kernel's first page.
const FIRST_FRAME: u32 = 0x1000;

/// How a hostile VM ends by itself.
#[derive(Debug, Clone, Copy)]
pub enum End {
    /// Never: SIGTERM ends it.
    Runs,
    /// The VMM ends it after two seconds, because its only vCPU halts forever.
    Halts,
    /// With this exit status.
    Exits(i32),
    /// The VMM ends it with status 1 and one line with these words.
    Fails(&'static str),
}

/// A hostile guest.
#[derive(Debug)]
pub struct Guest {
    pub name: &'static str,
    pub end: End,
    /// The first vCPU's code, in 64-bit mode.
    pub first: fn() -> Vec<u8>,
    /// The second vCPU's code, in real mode; None if there is no second vCPU.
    pub second: Option<fn() -> Vec<u8>>,
}

pub const fn solo(name: &'static str, end: End, first: fn() -> Vec<u8>) -> Guest {
    Guest { name, end, first, second: None }
}

impl Guest {
    pub fn cpus(&self) -> u32 {
        1 + u32::from(self.second.is_some())
    }

    /// Builds the code of a kernel that runs the guest in the VM with input, and spins in any other.
    pub fn code(&self) -> Vec<u8> {
        let mut code = unless_honest();
        if self.second.is_some() {
            code.extend(start_second());
        }
        code.extend((self.first)());
        if let Some(second) = self.second {
            code.resize(AP_CODE.max(code.len()), 0);
            code.extend(second());
        }
        code
    }
}

pub const HOLDER: Guest =
    solo("claims to hold a lock", End::Runs, || [claim(0, u32::MAX), spin()].concat());
pub const WAITER: Guest = solo("claims to await a lock", End::Runs, || {
    // It spins with ticket 1 for a lock without tickets.
    [claim(8, 0xd_0001), claim(4, 0x1_0002), spin()].concat()
});
pub const SCRIBBLER: Guest = solo("scribbles over its telemetry", End::Runs, || {
    // Stores the time stamp counter to each word in turn: rdtsc; mov [rcx + rbx * 4], eax; inc ebx; and ebx, 31
    let body = [0x0f, 0x31, 0x89, 0x04, 0x99, 0xff, 0xc3, 0x83, 0xe3, 0x1f];
    [telemetry(), vec![0x31, 0xdb], forever(&body)].concat()
});
pub const YIELDER: Guest = solo("yields all the time", End::Runs, || forever(&out(YIELD, 0)));
pub const GIVER: Guest = Guest {
    name: "vCPUs give their slices away",
    end: End::Runs,
    first: || forever(&[out(YIELD_TO, 1), out(YIELD_TO, 0)].concat()),
    second: Some(|| real_forever(YIELD_TO, 0)),
};
pub const KICKER: Guest = Guest {
    name: "all vCPUs kick",
    end: End::Runs,
    first: || forever(&out(KICK, 1)),
    second: Some(|| real_forever(KICK, 0)),
};
pub const PASSER: Guest = Guest {
    name: "vCPUs pass a slot on",
    end: End::Runs,
    first: || {
        [claim(0, u32::MAX), claim(128, u32::MAX), forever(&out(KICK_AND_HALT, 1 << 16))].concat()
    },
    second: Some(|| real_forever(KICK_AND_HALT, 0)),
};
pub const PARKER: Guest =
    solo("halts for a lock", End::Halts, || [claim(4, 0x1_0003), forever(&out(HALT, 1))].concat());
pub const NMI: Guest = Guest {
    name: "NMIs to a CPU that halts",
    // The guest has no handler for NMIs.
    end: End::Fails("triple fault"),
    first: || forever(&out(HALT, 1)),
    second: Some(real_nmis),
};
pub const SLEEPER: Guest = solo("HLT, interrupts off", End::Halts, || vec![0xfa, 0xf4, 0xeb, 0xfd]);
pub const SPINNER: Guest = solo("spins", End::Runs, spin);
pub const MMIO: Guest = solo("stores to no device", End::Runs, || {
    // mov eax, 0x20000ffd; mov rcx, [rax] (across the end of a page); mov [rax], rcx; mov [rax], cl; mov [rax
    // + 3], cx
    let body = [0x48, 0x8b, 0x08, 0x48, 0x89, 0x08, 0x88, 0x08, 0x66, 0x89, 0x48, 0x03];
    [code::MAP, &[0xb8, 0xfd, 0x0f, 0x00, 0x20], &forever(&body)].concat()
});
pub const EVENTS: Guest = solo("events", End::Runs, || forever(&out(EVENT, 0x7fff_ffff)));
pub const PORTS: Guest = solo("random ports", End::Runs, || forever_long(&random_ports(2_000)));
pub const CONTRACT_PORTS: Guest =
    solo("misuse of the contract", End::Exits(7), || [misuse(), out(EXIT, 7)].concat());
pub const SERIAL: Guest = solo("output, COM1", End::Runs, || code::FLOOD.to_vec());
pub const PAGES: Guest = solo("output, pages", End::Runs, || {
    [out(OUTPUT_PAGE, FIRST_FRAME), forever(&out(STDOUT_PAGE, 4096))].concat()
});
pub const MODIFIER: Guest = solo("modifies its code", End::Exits(5), modifies_itself);
pub const TRIPLE: Guest = solo("triple fault", End::Fails("triple fault"), || {
    // An empty IDT on the stack: push 0; push 0; lidt [rsp]; ud2
    vec![0x6a, 0, 0x6a, 0, 0x0f, 0x01, 0x1c, 0x24, 0x0f, 0x0b]
});
pub const RESET: Guest =
    solo("reset", End::Fails("the guest reset"), || vec![0xb0, 0xfe, 0xe6, 0x64, 0xeb, 0xfe]);
pub const STRANGE: Guest = solo("FXSAVE to no device", End::Fails("cannot emulate"), || {
    // mov eax, 0x20000000; fxsave [rax]
    [code::MAP, &[0xb8, 0, 0, 0, 0x20, 0x0f, 0xae, 0x00, 0xeb, 0xfe]].concat()
});

/// Guests that lie to policies: claims, kicks, halts, yields and slices given away.
const LIARS: [&Guest; 9] =
    [&HOLDER, &WAITER, &SCRIBBLER, &YIELDER, &GIVER, &KICKER, &PASSER, &PARKER, &SPINNER];

/// Returns each liar under each policy that promises shares, with each set of arguments (`SLICE`: the slice).
pub fn lies() -> impl Iterator<Item = (&'static Guest, &'static str)> {
    let policies = POLICIES.iter().filter_map(|policy| policy.shares.ok()).flatten();
    policies.flat_map(|policy| LIARS.map(|guest| (guest, *policy)))
}

fn spin() -> Vec<u8> {
    code::SPIN.to_vec()
}

/// In real mode: sends NMIs to all other vCPUs, through the x2APIC, in a loop.
fn real_nmis() -> Vec<u8> {
    let nmi = [real_msr(apic::COMMAND, 0xc_4400), vec![0xf3, 0x90]].concat();
    [real_x2apic(), real_forever_long(&nmi)].concat()
}

/// Reads and writes of random ports in random widths, except [`CONTRACT`] and [`ENDS`].
fn random_ports(count: usize) -> Vec<u8> {
    let noise = files::noise(4 * count);
    let accesses = noise.chunks_exact(4).filter_map(|bytes| {
        let port = u16::from_le_bytes([bytes[0], bytes[1]]);
        if CONTRACT.contains(&port) || ENDS.contains(&port) {
            return None;
        }
        Some(access(port, bytes[2], u32::from(bytes[3]) * 0x0101_0101))
    });
    accesses.flatten().collect()
}

/// `mov dx, port; mov eax, value`, and one of six accesses: in and out of 8, 16 and 32 bits.
pub fn access(port: u16, which: u8, value: u32) -> Vec<u8> {
    let mut code = out(port, value);
    code.pop();
    match which % 6 {
        0 => code.push(0xec),
        1 => code.push(0xee),
        2 => code.extend([0x66, 0xed]),
        3 => code.extend([0x66, 0xef]),
        4 => code.push(0xed),
        _ => code.push(0xef),
    }
    code
}

/// Accesses every port of the contract in every width, except the ports that halt the vCPU or end the VM;
/// then vCPU ids and pages that do not exist, and string I/O.
fn misuse() -> Vec<u8> {
    let mut code = Vec::new();
    let harmless = CONTRACT.filter(|port| ![HALT, EXIT, EXIT + 4, KICK_AND_HALT].contains(port));
    for port in harmless {
        for which in 0..6 {
            code.extend(access(port, which, u32::MAX));
        }
    }
    for id in [128, 1 << 31, u32::MAX] {
        code.extend([out(KICK, id), out(YIELD_TO, id)].concat());
    }
    for frame in [0xf_ffff, u32::MAX, 1 << 18] {
        code.extend(out(KERNEL_FACTS, frame));
        code.extend(out(OUTPUT_PAGE, frame));
        for bytes in [0, 4096, 4097, u32::MAX] {
            code.extend(out(STDOUT_PAGE, bytes));
        }
    }
    // mov ecx, 64; mov esi, 0x1000000; rep outsb; mov ecx, 64; mov edi, 0x1004000; rep insd: at the last port
    code.extend([0xb9, 64, 0, 0, 0, 0xbe, 0, 0, 0, 0x01, 0xf3, 0x6e]);
    code.extend([0xb9, 64, 0, 0, 0, 0xbf, 0, 0x40, 0, 0x01, 0xf3, 0x6d]);
    code
}

/// Executes code that it has just written, 10 000 times. Exits with 5, or with 9 if it executed stale code.
fn modifies_itself() -> Vec<u8> {
    // lea rdi, [rip + 3]: the immediate of the `mov al`; mov [rdi], cl; mov al, 0; cmp al, cl; je,
    // over the exit with 9
    let mut body = vec![0x48, 0x8d, 0x3d, 0x03, 0, 0, 0, 0x88, 0x0f, 0xb0, 0x00, 0x38, 0xc8];
    let exit = out(EXIT, 9);
    body.extend([0x74, exit.len() as u8]);
    body.extend(exit);
    [times(10_000, &body), out(EXIT, 5)].concat()
}
