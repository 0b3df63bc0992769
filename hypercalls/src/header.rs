//! The contract as a C header, for the Linux patch.

use core::fmt::{self, Write};

use crate::{ABI_VERSION, MAX_VCPUS, cpuid, ports};

/// Writes the C header to `out`. `make header` stores it in
/// `hypercalls/include/pvticket_abi.h`; a test fails when the two differ.
pub fn render(out: &mut impl Write) -> fmt::Result {
    out.write_str(PREAMBLE)?;
    let [b, c, d] = cpuid::signature_registers();
    for (name, value) in [
        ("ABI_VERSION", ABI_VERSION),
        ("MAX_VCPUS", MAX_VCPUS),
        ("CPUID_BASE", cpuid::LEAF_BASE),
        ("CPUID_FEATURES", cpuid::LEAF_FEATURES),
        ("SIGNATURE_EBX", b),
        ("SIGNATURE_ECX", c),
        ("SIGNATURE_EDX", d),
        ("FEATURE_LOCK_HYPERCALLS", cpuid::FEATURE_LOCK_HYPERCALLS),
        ("FEATURE_CONSOLE", cpuid::FEATURE_CONSOLE),
        ("PORT_LOCK_SPINNING", ports::LOCK_SPINNING.into()),
        ("PORT_UNLOCK_KICK", ports::UNLOCK_KICK.into()),
        ("PORT_EXIT", ports::EXIT.into()),
        ("PORT_EVENT", ports::EVENT.into()),
        ("EVENT_COUNTERS_READ", ports::Event::CountersRead as u32),
    ] {
        writeln!(out, "#define PVTICKET_{name:<24} {value:#x}U")?;
    }
    out.write_str("\n#endif /* _PVTICKET_ABI_H */\n")
}

const PREAMBLE: &str = "\
/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Generated from the pvticket contract crate (hypercalls/) by `make header`.
 * Do not edit: change the crate. Ports are offsets from the base in EBX of
 * PVTICKET_CPUID_FEATURES.
 */
#ifndef _PVTICKET_ABI_H
#define _PVTICKET_ABI_H

";
