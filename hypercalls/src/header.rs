//! The contract as a C header, for the Linux patch.

use core::fmt::{self, Write};

use core::mem::offset_of;

use crate::{
    ABI_VERSION, MAX_VCPUS, cpuid, ports,
    telemetry::{
        Line, MACHINE, MAX_NAMED, MachineWords, Point, QUEUED_BEHIND, QUEUED_HEAD, QUEUED_JOINING,
        QUEUED_LOCK, QUEUED_PENDING, QUEUED_PV_HEAD, Wait,
    },
};

/// Writes the C header to `out`. `make header` stores it in
/// `hypercalls/include/pvticket_abi.h`; a test fails if the two differ.
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
        ("FEATURE_TELEMETRY", cpuid::FEATURE_TELEMETRY),
        ("FEATURE_DOORBELL", cpuid::FEATURE_DOORBELL),
        ("FEATURE_WINDOW", cpuid::FEATURE_WINDOW),
        ("FEATURE_PANIC", cpuid::FEATURE_PANIC),
        ("FEATURE_YIELD_TO", cpuid::FEATURE_YIELD_TO),
        ("FEATURE_MACHINE_WORDS", cpuid::FEATURE_MACHINE_WORDS),
        ("FEATURE_SLICE_END", cpuid::FEATURE_SLICE_END),
        ("PORT_LOCK_SPINNING", ports::LOCK_SPINNING.into()),
        ("PORT_UNLOCK_KICK", ports::UNLOCK_KICK.into()),
        ("PORT_PREEMPT_POINT", ports::PREEMPT_POINT.into()),
        ("PORT_YIELD", ports::YIELD.into()),
        ("PORT_SPUN_OUT", ports::SPUN_OUT.into()),
        ("PORT_DOORBELL", ports::DOORBELL.into()),
        ("PORT_KICK_AND_HALT", ports::KICK_AND_HALT.into()),
        ("PORT_GATE", ports::GATE.into()),
        ("PORT_YIELD_TO", ports::YIELD_TO.into()),
        ("PORT_EXIT", ports::EXIT.into()),
        ("PORT_EVENT", ports::EVENT.into()),
        ("EVENT_COUNTERS_READ", ports::GuestEvent::CountersRead as u32),
        ("EVENT_BENCH_READY", ports::GuestEvent::BenchReady as u32),
        ("EVENT_WINDOW_BEGINS", ports::GuestEvent::WindowBegins as u32),
        ("EVENT_WINDOW_ENDS", ports::GuestEvent::WindowEnds as u32),
        ("EVENT_PANICKED", ports::GuestEvent::Panicked as u32),
        ("LINE_SIZE", size_of::<Line>() as u32),
        ("LINE_HELD", offset_of!(Line, held) as u32),
        ("LINE_WAIT", offset_of!(Line, wait) as u32),
        ("LINE_WAIT_LOCK", offset_of!(Line, wait_lock) as u32),
        ("LINE_WAIT_SINCE", offset_of!(Line, wait_since) as u32),
        ("LINE_HELD_LOCK", offset_of!(Line, held_lock) as u32),
        ("LINE_HELD_TICKET", offset_of!(Line, held_ticket) as u32),
        ("LINE_RELEASED_AT", offset_of!(Line, released_at) as u32),
        ("LINE_YIELD_WANTED", offset_of!(Line, yield_wanted) as u32),
        ("LINE_POINTS", offset_of!(Line, points) as u32),
        ("LINE_SPIN_LOOKS", offset_of!(Line, spin_limit) as u32),
        ("LINE_OFF_CPU", offset_of!(Line, off_cpu) as u32),
        ("LINE_RESUMED_AT", offset_of!(Line, resumed_at) as u32),
        ("LINE_TAKEN", offset_of!(Line, taken) as u32),
        ("LINE_QUEUE_NODE", offset_of!(Line, queue_node) as u32),
        ("LINE_SLICE_END", offset_of!(Line, slice_end) as u32),
        ("LINE_NAMED", MAX_NAMED as u32),
        ("MACHINE", MACHINE as u32),
        ("MACHINE_CRITICAL_OFF", offset_of!(MachineWords, critical_off) as u32),
        ("QUEUED_LOCK", QUEUED_LOCK as u32),
        ("QUEUED_PENDING", QUEUED_PENDING.into()),
        ("QUEUED_PV_HEAD", QUEUED_PV_HEAD.into()),
        ("QUEUED_HEAD", QUEUED_HEAD.into()),
        ("QUEUED_BEHIND", QUEUED_BEHIND.into()),
        ("QUEUED_JOINING", QUEUED_JOINING.into()),
        ("WAIT_NOTHING", Wait::Nothing as u32),
        ("WAIT_ENTERING", Wait::Entering as u32),
        ("WAIT_SPINNING", Wait::Spinning as u32),
        ("WAIT_HALTED", Wait::Halted as u32),
        ("WAIT_OUTSIDE", Wait::Throttled as u32),
        ("WAIT_KICKING", Wait::Kicking as u32),
        ("POINT_BEFORE_FLAG", Point::BeforeFlag as u32),
        ("POINT_FLAG_TO_HALT", Point::FlagToHalt as u32),
        ("POINT_RELEASE_TO_KICK", Point::ReleaseToKick as u32),
        ("POINT_CRITICAL", Point::Critical as u32),
        ("POINT_INTERRUPT", Point::Interrupt as u32),
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
