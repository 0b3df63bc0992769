//! Machine code of hostile guests. The first vCPU starts in 64-bit mode, others start in real mode.

use crate::files::code::{dx, imm32, port::STDIN_AVAIL};

/// Address of a kernel's first byte.
pub const KERNEL: u32 = 0x100_0000;
/// Start address of other vCPUs, in real mode.
pub const TRAMPOLINE: u32 = 0x8_0000;
/// Offset of the other vCPUs' code in a kernel, and its maximum size in bytes.
pub const AP_CODE: usize = 0x8000;
pub const AP_SIZE: u32 = 4096;

/// Registers of the local APIC in x2APIC mode (Intel SDM 3A, table 11-6).
pub mod apic {
    pub const EOI: u32 = 0x80b;
    /// Spurious interrupts; bit 8 enables the APIC.
    pub const SPURIOUS: u32 = 0x80f;
    pub const ON: u64 = 0x1ff;
    /// The interrupt command register: the target in the upper half.
    pub const COMMAND: u32 = 0x830;
    pub const TIMER: u32 = 0x832;
    pub const COUNT: u32 = 0x838;
    pub const DIVIDE: u32 = 0x83e;
}

/// Switches to x2APIC mode: mov ecx, IA32_APIC_BASE; rdmsr; or eax, 0x0c00; wrmsr.
pub const X2APIC: [u8; 14] = [0xb9, 0x1b, 0, 0, 0, 0x0f, 0x32, 0x0d, 0, 0x0c, 0, 0, 0x0f, 0x30];

/// [`X2APIC`] in real mode, where operands of 32 bits have a prefix.
pub fn real_x2apic() -> Vec<u8> {
    let mut code = X2APIC.to_vec();
    code.insert(0, 0x66);
    code.insert(8, 0x66);
    code
}

/// Continues in the VM whose input has a byte; any other VM spins (`pause; jmp`).
pub fn unless_honest() -> Vec<u8> {
    let mut code = dx(STDIN_AVAIL);
    // 1: in eax, dx; test eax, eax; jz 1b; cmp eax, -1; jne 3f; 2: pause; jmp 2b; 3:
    code.extend([0xed, 0x85, 0xc0, 0x74, 0xfb, 0x83, 0xf8, 0xff, 0x75, 0x04]);
    code.extend([0xf3, 0x90, 0xeb, 0xfc]);
    code
}

/// Sets RCX to the address of the telemetry lines: the page frame in ECX of CPUID 0x40000101.
pub fn telemetry() -> Vec<u8> {
    vec![0xb8, 0x01, 0x01, 0x00, 0x40, 0x0f, 0xa2, 0x48, 0xc1, 0xe1, 0x0c]
}

/// Stores a word of the telemetry at this offset: `mov dword [rcx + offset], value`.
pub fn claim(offset: u32, value: u32) -> Vec<u8> {
    [&telemetry()[..], &imm32(&[0xc7, 0x81], offset), &value.to_le_bytes()].concat()
}

/// Repeats up to 126 bytes of code.
pub fn forever(body: &[u8]) -> Vec<u8> {
    [body, &[0xeb, (254 - body.len()) as u8]].concat()
}

/// Repeats any code.
pub fn forever_long(body: &[u8]) -> Vec<u8> {
    let back = -(body.len() as i32 + 5);
    [body, &[0xe9], &back.to_le_bytes()].concat()
}

/// Repeats any code in real mode.
pub fn real_forever_long(body: &[u8]) -> Vec<u8> {
    let back = -(body.len() as i16 + 3);
    [body, &[0xe9], &back.to_le_bytes()].concat()
}

/// Repeats any code `count` times; it must preserve EBP.
pub fn rounds(count: u32, body: &[u8]) -> Vec<u8> {
    let back = -(body.len() as i32 + 8);
    // mov ebp, count; ...; dec ebp; jnz
    [&imm32(&[0xbd], count), body, &[0xff, 0xcd, 0x0f, 0x85], &back.to_le_bytes()].concat()
}

/// `mov esi, count; 1: pause; dec esi; jnz 1b`
pub fn pauses(count: u32) -> Vec<u8> {
    [&imm32(&[0xbe], count)[..], &[0xf3, 0x90, 0xff, 0xce, 0x75, 0xfa]].concat()
}

/// Writes a model-specific register: mov ecx; mov edx; mov eax; wrmsr.
pub fn msr(number: u32, value: u64) -> Vec<u8> {
    let (high, low) = ((value >> 32) as u32, value as u32);
    [imm32(&[0xb9], number), imm32(&[0xba], high), imm32(&[0xb8], low), vec![0x0f, 0x30]].concat()
}

/// [`msr`] in real mode.
pub fn real_msr(number: u32, value: u64) -> Vec<u8> {
    let words = [(0xb9, number), (0xba, (value >> 32) as u32), (0xb8, value as u32)];
    let moves = words.map(|(register, word)| imm32(&[0x66, register], word));
    [moves.concat(), vec![0x0f, 0x30]].concat()
}

/// In real mode: `mov dx, port; mov eax, value; out dx, eax`
pub fn real_out(port: u16, value: u32) -> Vec<u8> {
    [&[0xba], &port.to_le_bytes()[..], &imm32(&[0x66, 0xb8], value), &[0x66, 0xef]].concat()
}

/// In real mode: `mov dx, port; mov eax, value; out dx, eax; jmp` to the `out`.
pub fn real_forever(port: u16, value: u32) -> Vec<u8> {
    [real_out(port, value), vec![0xeb, 0xfc]].concat()
}

/// `mov dword [address], value`, for addresses below 2 GiB.
pub fn store(address: u32, value: u32) -> Vec<u8> {
    [&imm32(&[0xc7, 0x04, 0x25], address)[..], &value.to_le_bytes()].concat()
}

/// Copies the code at [`AP_CODE`] to the start address of the second vCPU, and starts that vCPU by INIT and
/// SIPI through the x2APIC (Intel SDM 3A, 11.12).
pub fn start_second() -> Vec<u8> {
    // mov esi; mov edi; mov ecx; rep movsb
    let (from, to) = (imm32(&[0xbe], KERNEL + AP_CODE as u32), imm32(&[0xbf], TRAMPOLINE));
    let copies = [from, to, imm32(&[0xb9], AP_SIZE), vec![0xf3, 0xa4]].concat();
    [copies, X2APIC.to_vec(), init_sipi()].concat()
}

/// Sends INIT and SIPI to all other vCPUs.
pub fn init_sipi() -> Vec<u8> {
    let commands = [0xc_4500, 0xc_4600 | u64::from(TRAMPOLINE >> 12)];
    commands.into_iter().flat_map(|command| msr(apic::COMMAND, command)).collect()
}

/// Maps the fourth GiB by the page directory at [`DIRECTORY`], whose entries are all zero.
pub fn map_the_hole() -> Vec<u8> {
    // The fourth entry of the page directory pointers (boot/layout.rs).
    store(0xa018, DIRECTORY | 0x27)
}

/// Maps the I/O APIC, and sets RDI to its address.
pub fn map_the_io_apic() -> Vec<u8> {
    // The 2 MiB at its address (boot/layout.rs); mov edi, 0xfec00000
    [map_the_hole(), store(DIRECTORY + 0xfb0, 0xfec0_0083), imm32(&[0xbf], 0xfec0_0000)].concat()
}

/// Writes a register of the I/O APIC: `mov dword [rdi], index; mov dword [rdi + 16], value`.
pub fn io_apic(index: u32, value: u32) -> Vec<u8> {
    let value = value.to_le_bytes();
    [&imm32(&[0xc7, 0x07], index)[..], &[0xc7, 0x47, 0x10], &value].concat()
}

/// A page of a kernel's memory, after its code.
pub const DIRECTORY: u32 = KERNEL + 0x9_0000;
