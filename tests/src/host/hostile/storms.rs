//! Hostile guests that send interrupts to themselves and to each other.

use super::{
    code::{
        apic, forever_long, init_sipi, io_apic, map_the_io_apic, msr, real_forever_long, real_msr,
        real_out, real_x2apic,
    },
    guests::{End, Guest, solo},
};
use crate::files::code::{SPIN, dx, port::HALT};

/// Vectors that are sent in turn.
const VECTORS: std::ops::Range<u32> = 0x20..0x30;

pub const IPIS: Guest = Guest {
    name: "IPIs of all vectors",
    end: End::Runs,
    first: || {
        let commands =
            VECTORS.flat_map(|vector| [0xc_4000 | vector, 0x4_4000 | vector, 0x8_4000 | vector]);
        let sent = commands.flat_map(|command| msr(apic::COMMAND, command.into()));
        [msr(apic::SPURIOUS, apic::ON), forever_long(&sent.collect::<Vec<u8>>())].concat()
    },
    second: Some(|| {
        let sent = VECTORS.flat_map(|vector| real_msr(apic::COMMAND, (0xc_4000 | vector).into()));
        let body: Vec<u8> = sent.collect();
        [real_x2apic(), real_msr(apic::SPURIOUS, apic::ON), real_forever_long(&body)].concat()
    }),
};

pub const STARTS: Guest = Guest {
    name: "INIT and SIPI",
    end: End::Runs,
    first: || {
        // Also with another SIPI vector, and so another start address: the vCPU runs on through zeros.
        let at_zeros = msr(apic::COMMAND, 0xc_4670);
        forever_long(
            &[init_sipi(), init_sipi(), msr(apic::COMMAND, 0xc_4500), at_zeros, init_sipi()]
                .concat(),
        )
    },
    second: Some(|| [real_out(HALT, 1), SPIN.to_vec()].concat()),
};

pub const TIMERS: Guest = Guest {
    name: "timers of the local APIC",
    end: End::Runs,
    first: || {
        // Periodic, one-shot, and by the TSC deadline, which has long passed.
        let modes = [2 << 16 | 0x30, 0x31, 4 << 16 | 0x32].map(|mode| {
            [
                msr(apic::TIMER, mode),
                msr(apic::DIVIDE, 0xb),
                msr(apic::COUNT, 1),
                msr(TSC_DEADLINE, 1),
            ]
            .concat()
        });
        [msr(apic::SPURIOUS, apic::ON), forever_long(&modes.concat())].concat()
    },
    second: Some(|| {
        let mut code =
            [real_x2apic(), real_msr(apic::SPURIOUS, apic::ON), real_msr(apic::DIVIDE, 0xb)]
                .concat();
        let periodic = [real_msr(apic::TIMER, 2 << 16 | 0x30), real_msr(apic::COUNT, 1)].concat();
        code.extend(real_forever_long(&periodic));
        code
    }),
};

/// The timer of a PC (8254) in all its modes, with the smallest and largest counts. Its interrupt goes to all
/// pins of the I/O APIC that it may have.
pub const TIMER: Guest = solo("timer of a PC", End::Runs, || {
    let mut body = Vec::new();
    for mode in 0..6_u8 {
        for channel in 0..3_u8 {
            // Low byte, high byte, and a read-back.
            for (port, value) in [
                (0x43, channel << 6 | 0x30 | mode << 1),
                (0x40 + u16::from(channel), mode & 1),
                (0x40 + u16::from(channel), 0),
                (0x43, 0xc2 | 2 << channel),
                (0x61, 3),
            ] {
                body.extend(dx(port));
                body.extend([0xb0, value, 0xee, 0xec]); // mov al; out dx, al; in al, dx
            }
        }
    }
    [route_pin(0), route_pin(2), forever_long(&body)].concat()
});

/// Entries of the I/O APIC for each delivery mode that ends no VM, for existing and missing lines, with
/// interrupts of COM1. NMIs are left out: the guest has no handler, and the first would end it.
pub const ROUTES: Guest = solo("routes of the I/O APIC", End::Runs, || {
    routes((0..8).filter(|mode| ![MODE_SMI, MODE_NMI, MODE_INIT].contains(mode)))
});

/// COM1's interrupt resets its vCPU, which restarts at the reset vector, where there is no memory.
pub const INIT: Guest = solo("INIT by the I/O APIC", End::Fails("0xfff0"), || routes([MODE_INIT]));

/// COM1's interrupt enters system management mode, for which no handler is set up: KVM gives up the VM (EIO,
/// Linux 7.3), or has it execute the memory there (Linux 6.1). A software KVM drops it.
pub const SMI: Guest = solo("SMI by the I/O APIC", End::Fails("vCPU 0"), || routes([MODE_SMI]));

/// Delivery modes of the I/O APIC (82093AA, 3.2.4).
const MODE_SMI: u32 = 2;
const MODE_NMI: u32 = 4;
const MODE_INIT: u32 = 5;

fn routes(modes: impl IntoIterator<Item = u32>) -> Vec<u8> {
    let mut body = Vec::new();
    for mode in modes {
        for pin in [0_u32, 2, 4, 23, 24, 119] {
            body.extend(io_apic(0x11 + 2 * pin, 0xff00_0000 | mode << 24));
            body.extend(io_apic(0x10 + 2 * pin, mode << 8 | (mode & 1) << 15 | 0x41));
        }
        // mov dx, 0x3f9; mov al, 2; out dx, al: interrupts after each byte; mov dx, 0x3fa; in al, dx: acks it
        body.extend([0x66, 0xba, 0xf9, 0x03, 0xb0, 2, 0xee, 0x66, 0xba, 0xfa, 0x03, 0xec]);
        body.extend([0x66, 0xba, 0xf8, 0x03, 0xee]); // mov dx, 0x3f8; out dx, al
    }
    [map_the_io_apic(), forever_long(&body)].concat()
}

const TSC_DEADLINE: u32 = 0x6e0;

/// Routes this line of the I/O APIC to the first vCPU.
fn route_pin(pin: u32) -> Vec<u8> {
    [map_the_io_apic(), io_apic(0x11 + 2 * pin, 0), io_apic(0x10 + 2 * pin, 0x50)].concat()
}
