//! Hostile guests that write model-specific registers and page tables, and make KVM's hypercalls.

use super::{
    code::{
        DIRECTORY, TRAMPOLINE, forever_long, msr, real_forever_long, real_msr, store, telemetry,
    },
    guests::{End, Guest, solo},
};
use crate::files::{
    self,
    code::{SPIN, imm32, out, port::EXIT},
};

/// KVM's own registers (virt/kvm/x86/msr.rst).
const CLOCK: u32 = 0x4b56_4d01;
const WALL_CLOCK: u32 = 0x4b56_4d00;
const STEAL_TIME: u32 = 0x4b56_4d03;

/// Makes KVM write its clocks and the guest's steal time into pages throughout the guest's memory after its
/// first 18 MiB, and to addresses without memory.
pub const CLOCKS: Guest = solo("KVM's clocks everywhere", End::Runs, || {
    // mov ebx, 18 MiB; 1: ...; add ebx, 0x11000; jnc (until it wraps) 1b
    let body = [0xbb, 0, 0, 0x20, 1];
    let mut code = Vec::new();
    for (number, flag) in [(WALL_CLOCK, 0_u8), (CLOCK, 1), (STEAL_TIME, 1)] {
        code.extend(imm32(&[0xb9], number));
        // xor edx, edx; mov eax, ebx; or eax, flag; wrmsr
        code.extend([0x31, 0xd2, 0x89, 0xd8, 0x83, 0xc8, flag, 0x0f, 0x30]);
    }
    // add ebx, 0x11000; jnc 1b
    code.extend([0x81, 0xc3, 0, 0x10, 1, 0, 0x0f, 0x83]);
    let back = -(code.len() as i32 + 4);
    forever_long(&[&body[..], &code, &back.to_le_bytes()].concat())
});

/// Random register numbers and values, including KVM's own. A handler skips faults.
pub const REGISTERS: Guest = solo("random registers", End::Exits(4), || {
    [skips_faults(), writes(&random(400)), out(EXIT, 4)].concat()
});

/// Random registers in a loop on two vCPUs, including those that control the mode, the segments and the local
/// APIC.
pub const ALL_REGISTERS: Guest = Guest {
    name: "registers of two vCPUs",
    end: End::Runs,
    first: || {
        let targets = [random(400), reserved_registers()].concat();
        [skips_faults(), forever_long(&writes(&targets))].concat()
    },
    second: Some(|| {
        // cli; xor ax, ax; mov ds, ax; mov ax, 0x7000; mov ss, ax; mov sp, 0xfff0
        let mut code =
            vec![0xfa, 0x31, 0xc0, 0x8e, 0xd8, 0xb8, 0, 0x70, 0x8e, 0xd0, 0xbc, 0xf0, 0xff];
        // Handlers of NMI (iret) and of faults (mov bp, sp; add word [bp], 2; iret: skips a wrmsr or rdmsr).
        let handlers = [0xcf, 0x89, 0xe5, 0x83, 0x46, 0, 2, 0xcf];
        // jmp over the handlers, followed by two stores: mov dword [...]
        code.extend([0xeb, handlers.len() as u8]);
        let at = TRAMPOLINE << 12 | code.len() as u32;
        code.extend(handlers);
        for (vector, handler) in [(2_u16, at), (13, at + 1)] {
            code.extend([0x66, 0xc7, 0x06]);
            code.extend((4 * vector).to_le_bytes());
            code.extend(handler.to_le_bytes());
        }
        // rdmsr of each after its write
        let numbers = random(520).split_off(400);
        let body = numbers
            .into_iter()
            .flat_map(|(number, value)| [real_msr(number, value), vec![0x0f, 0x32]].concat());
        code.extend(real_forever_long(&body.collect::<Vec<u8>>()));
        code
    }),
};

/// Numbers and values.
type Registers = Vec<(u32, u64)>;

fn random(count: usize) -> Registers {
    let noise = files::noise(16 * count);
    let register = |bytes: &[u8]| {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let number = match bytes[0] % 4 {
            0 => word(4),
            1 => 0xc000_0000 | word(4) & 0x3ff,
            2 => 0x4b56_4d00 | word(4) & 0xf,
            _ => word(4) & 0xfff,
        };
        (number, u64::from(word(8)) << 32 | u64::from(word(12)))
    };
    // The guest keeps its mode and its segments.
    let is_needed = |(number, _): &(u32, u64)| RESERVED.contains(number);
    noise.chunks_exact(16).map(register).filter(|register| !is_needed(register)).collect()
}

/// EFER, the bases of FS and GS, and IA32_APIC_BASE, through which a random value may disable the APIC for good.
const RESERVED: [u32; 4] = [0xc000_0080, 0xc000_0100, 0xc000_0101, 0x1b];

/// Returns [`RESERVED`] with values of all kinds.
fn reserved_registers() -> Registers {
    let values = [
        0,
        1,
        0xd01,
        0xfee0_0d00,
        0xfee0_0100,
        0xffff_8000_0000_0000,
        0x8000_0000_0000_0000,
        u64::MAX,
    ];
    RESERVED.into_iter().flat_map(|number| values.map(|value| (number, value))).collect()
}

/// Writes each register and reads it back.
fn writes(registers: &[(u32, u64)]) -> Vec<u8> {
    let write_and_read = |(number, value): &(u32, u64)| {
        // mov ecx, number; rdmsr
        let read = [imm32(&[0xb9], *number), vec![0x0f, 0x32]].concat();
        [skipping(&msr(*number, *value)), skipping(&read)].concat()
    };
    registers.iter().flat_map(write_and_read).collect()
}

/// Makes hypercalls with any number and any arguments, by either vendor's instruction. (A software KVM did
/// not complete the first hypercall.)
pub const CALLS: Guest = solo("calls of KVM", End::Runs, || {
    let mut code = Vec::new();
    for number in (0..16_u32).chain([0x7fff_ffff, u32::MAX]) {
        for argument in [0_u32, 1, 2, 128, DIRECTORY, u32::MAX] {
            for call in [0xd9_u8, 0xc1] {
                // mov eax; mov ebx, ecx, edx, esi; vmmcall or vmcall
                let arguments =
                    [0xbb, 0xb9, 0xba, 0xbe].map(|register| imm32(&[register], argument));
                let call = [imm32(&[0xb8], number), arguments.concat(), vec![0x0f, 0x01, call]];
                code.extend(skipping(&call.concat()));
            }
        }
    }
    [skips_faults(), forever_long(&code)].concat()
});

/// Page tables in the telemetry: words that the VMM writes and reads there translate addresses.
pub const TABLES: Guest = solo("page tables in the telemetry", End::Runs, || {
    // The lines' first word is the entry that maps the first GiB: mov eax, [0xa000]; mov [rcx], eax
    let mut code = telemetry();
    code.extend([0x8b, 0x04, 0x25, 0, 0xa0, 0, 0, 0x89, 0x01]);
    // The uppermost table points to it: or ecx, 0x27; mov [0x9000], ecx; mov rax, cr3; mov cr3, rax
    code.extend([0x83, 0xc9, 0x27, 0x89, 0x0c, 0x25, 0, 0x90, 0, 0, 0x0f, 0x20, 0xd8]);
    code.extend([0x0f, 0x22, 0xd8]);
    code.extend(SPIN);
    code
});

/// Address of the interrupt descriptor table.
const DESCRIPTORS: u32 = DIRECTORY + 0x1000;

/// Sets up a handler of all exceptions that continues at R15 with an empty stack.
fn skips_faults() -> Vec<u8> {
    // The handler: mov esp, 0x9000; jmp r15
    let handler = [0xbc, 0, 0x90, 0, 0, 0x41, 0xff, 0xe7];
    // jmp over it; lea rax, [rip - its length - 7]
    let mut code = vec![0xeb, handler.len() as u8];
    code.extend(handler);
    code.extend([0x48, 0x8d, 0x05]);
    code.extend((-(handler.len() as i32 + 7)).to_le_bytes());
    // movzx ebx, ax; or ebx, 0x100000 (the code's selector); and eax, 0xffff0000; or eax, 0x8e00 (an interrupt gate)
    code.extend([0x0f, 0xb7, 0xd8, 0x81, 0xcb, 0, 0, 0x10, 0]);
    code.extend([0x25, 0, 0, 0xff, 0xff, 0x0d, 0, 0x8e, 0, 0]);
    // mov edi, DESCRIPTORS; mov ecx, 32; 1: mov [rdi], ebx; mov [rdi + 4], eax; add edi, 16; dec ecx; jnz 1b
    code.extend(imm32(&[0xbf], DESCRIPTORS));
    code.extend([0xb9, 32, 0, 0, 0, 0x89, 0x1f, 0x89, 0x47, 0x04, 0x83, 0xc7, 0x10]);
    code.extend([0xff, 0xc9, 0x75, 0xf4]);
    // The table's size and address behind it: mov word [...], 511; lidt [...]
    code.extend(imm32(&[0x66, 0xc7, 0x04, 0x25], DESCRIPTORS + 0x1000));
    code.extend(511_u16.to_le_bytes());
    code.extend(store(DESCRIPTORS + 0x1002, DESCRIPTORS));
    code.extend(imm32(&[0x0f, 0x01, 0x1c, 0x25], DESCRIPTORS + 0x1000));
    code
}

/// `lea r15, end`, then this code, which may fault.
fn skipping(body: &[u8]) -> Vec<u8> {
    [&imm32(&[0x4c, 0x8d, 0x3d], body.len() as u32)[..], body].concat()
}
