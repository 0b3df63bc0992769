//! Hostile guests that use ports in ways that no real guest does.

use super::{
    code::{DIRECTORY, forever, forever_long, map_the_hole, real_forever, store},
    guests::{ENDS, End, Guest, access, solo},
};
use crate::files::code::{
    self, dx, imm32, out,
    port::{DOORBELL, EVENT, EXIT, GATE, HALT, KICK, KICK_AND_HALT},
};

/// Both serial ports: each register in each width, read and written.
pub const UARTS: Guest = solo("registers of serial ports", End::Runs, || {
    let ports =
        (0x3f8..0x400).chain(0x2f8..0x300).flat_map(|port| (0..6).map(move |which| (port, which)));
    let values = [0, 0xff, 0x80, 0x1b].into_iter().cycle();
    forever_long(
        &ports
            .zip(values)
            .flat_map(|((port, which), value)| access(port, which, value))
            .collect::<Vec<u8>>(),
    )
});

/// All events, including a benchmark's outside of any benchmark, and the gate that no other VM opens.
pub const STEPS: Guest = solo("events and the gate", End::Runs, || {
    let events = (0..10).flat_map(|event| [out(EVENT, event), access(GATE, 4, 0)].concat());
    forever_long(&events.collect::<Vec<u8>>())
});

/// Accesses to [`ENDS`], with all values that do not end the VM.
pub const POWER: Guest =
    solo("what ends no machine", End::Exits(3), || [harmless_ends(), out(EXIT, 3)].concat());

/// [`POWER`] in a loop.
pub const POWERS: Guest = solo("what never ends one", End::Runs, || forever_long(&harmless_ends()));

fn harmless_ends() -> Vec<u8> {
    let mut code = Vec::new();
    for port in ENDS {
        for value in 0..=255_u8 {
            let ends = [(0x64, 0xfe), (0x680, 0x34), (0x682, 1)].contains(&(port, value));
            if !ends {
                code.extend(dx(port));
                code.extend([0xb0, value, 0xee, 0xec]); // mov al; out dx, al; in al, dx
            }
        }
    }
    code
}

/// Strings of 2^64 - 1 bytes to a port without a device, from all mapped memory: `cld; mov esi; mov dx; or
/// rcx, -1; rep outsb`.
pub const STRING: Guest = solo("a string of 2^64 bytes", End::Runs, || {
    let body = [0xfc, 0xbe, 0, 0, 0, 1, 0x66, 0xba, 0x80, 0, 0x48, 0x83, 0xc9, 0xff, 0xf3, 0x6e];
    forever(&body)
});

/// String I/O between a hole in memory and ports: one without a device, COM1's status, and the kick port.
pub const HOLES: Guest = solo("strings of no memory", End::Runs, || {
    let mut body = Vec::new();
    for port in [0x80_u16, 0x3fd, KICK] {
        // mov edi/esi, 0x20000ff0; mov ecx, 32; mov dx: across the end of a page
        body.extend([0xbf, 0xf0, 0x0f, 0, 0x20, 0xbe, 0xf0, 0x0f, 0, 0x20]);
        body.extend(dx(port));
        // rep insb; mov ecx; rep outsb
        body.extend([0xb9, 32, 0, 0, 0, 0xf3, 0x6c, 0xb9, 32, 0, 0, 0, 0xf3, 0x6e]);
    }
    [code::MAP, &forever_long(&body)].concat()
});

/// A string of nearly 2 MiB each, into the hole from COM1's status and out of it to the contract's kick port.
pub const LONG_IN: Guest =
    solo("a long string into no memory", End::Runs, || long_string(0x3fd, [0xf3, 0x6c]));
pub const LONG_OUT: Guest =
    solo("a long string of no memory", End::Runs, || long_string(KICK, [0xf3, 0x6e]));

fn long_string(port: u16, string: [u8; 2]) -> Vec<u8> {
    // mov edi, 512 MiB; mov esi, edi; mov ecx, 2 MiB - 64; mov dx; cld; rep
    let moves = [0xbf, 0, 0, 0, 0x20, 0x89, 0xfe, 0xb9, 0xc0, 0xff, 0x1f, 0];
    let body = [&moves[..], &dx(port), &[0xfc], &string].concat();
    [code::MAP, &forever(&body)].concat()
}

/// Chains of kicks and halts with invalid vCPU ids; the second vCPU wakes the first from its halts.
pub const CHAINS: Guest = Guest {
    name: "kicks of nobody",
    end: End::Runs,
    first: || {
        let ids = [2_u32, 3, 127, 128, 0x7fff, 0x8000, 0xffff];
        let invalid_ids = ids.into_iter().chain([1 << 31, u32::MAX]);
        let mut body: Vec<u8> =
            invalid_ids.flat_map(|id| [out(KICK, id), out(DOORBELL, id)].concat()).collect();
        body.extend(ids.into_iter().flat_map(|id| out(KICK_AND_HALT, id << 16 | 7)));
        body.extend([out(HALT, u32::MAX), out(KICK_AND_HALT, 0)].concat());
        forever_long(&body)
    },
    second: Some(|| real_forever(KICK, 0)),
};

/// Loads and stores in the fourth GiB, where devices are: through nearly all of it in steps of 64 KiB, at each
/// register of the I/O APIC and the local APIC, and in the pages that KVM reserves on Intel CPUs.
pub const WINDOW: Guest = solo("all of the hole", End::Runs, || {
    let mut code = map_the_hole();
    // mov edi, DIRECTORY; mov eax, 0xc0000083; mov ecx, 512; 1: mov [rdi], eax; add rdi, 8; add eax, 2 MiB; loop 1b
    code.extend(imm32(&[0xbf], DIRECTORY));
    code.extend([0xb8, 0x83, 0, 0, 0xc0, 0xb9, 0, 2, 0, 0]);
    code.extend([0x89, 0x07, 0x48, 0x83, 0xc7, 0x08, 0x05, 0, 0, 0x20, 0, 0xff, 0xc9, 0x75, 0xf1]);
    let mut body = Vec::new();
    for (start, step, count) in [
        (0xc000_0000_u32, 0x1_0000_u32, 0x3ff0_u32),
        (0xfec0_0000, 0x10, 0x40),
        (0xfee0_0000, 0x10, 0x100),
        (0xfffb_c000, 0x40, 0x100),
    ] {
        // mov edi; mov ecx
        body.extend([imm32(&[0xbf], start), imm32(&[0xb9], count)].concat());
        // 1: mov eax, [rdi]; mov [rdi], eax; mov [rdi + 1], ax; add edi, step; dec ecx; jnz 1b
        body.extend([0x8b, 0x07, 0x89, 0x07, 0x66, 0x89, 0x47, 0x01]);
        body.extend(imm32(&[0x81, 0xc7], step));
        body.extend([0xff, 0xc9, 0x75, 0xee]);
    }
    [code, forever_long(&body)].concat()
});

/// Loads and stores across the end of the VM's memory: each is partly in memory.
pub const EDGE: Guest = solo("the end of memory", End::Runs, || {
    // The last 2 MiB of 512 MiB, in addition to the mapping of code::MAP.
    let mut code = code::MAP.to_vec();
    code.extend(store(0xb000 + 255 * 8, 0x1fe0_0083));
    let mut body = vec![0xb8, 0xfd, 0xff, 0xff, 0x1f]; // mov eax, 0x1ffffffd
    // mov rcx, [rax]; mov [rax], rcx; mov ecx, [rax + 1]; mov [rax + 1], ecx; mov [rax + 2], cx
    body.extend([0x48, 0x8b, 0x08, 0x48, 0x89, 0x08, 0x8b, 0x48, 0x01, 0x89, 0x48, 0x01]);
    body.extend([0x66, 0x89, 0x48, 0x02]);
    [code, forever(&body)].concat()
});
