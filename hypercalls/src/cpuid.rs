//! Discovery: CPUID leaves next to KVM's own at `0x4000_0000`.

/// Base leaf. EAX: the highest leaf of this range; EBX, ECX, EDX: [`SIGNATURE`].
pub const LEAF_BASE: u32 = 0x4000_0100;

/// EAX: feature bits (`FEATURE_*`), EBX: base I/O port, ECX: page frame number of the
/// [`telemetry`](crate::telemetry) lines (zero without [`FEATURE_TELEMETRY`]),
/// EDX: [`ABI_VERSION`](crate::ABI_VERSION).
pub const LEAF_FEATURES: u32 = 0x4000_0101;

/// Twelve bytes in EBX, ECX, EDX of [`LEAF_BASE`], low byte first.
pub const SIGNATURE: [u8; 12] = *b"PVTicketLock";

/// `lock_spinning` and `unlock_kick` are served by the VMM (backend `vmm`).
pub const FEATURE_LOCK_HYPERCALLS: u32 = 1 << 0;

/// The console channel, the event port and the exit ports are available.
pub const FEATURE_CONSOLE: u32 = 1 << 1;

/// Page-wise output is available: [`OUTPUT_PAGE`](crate::ports::OUTPUT_PAGE),
/// [`STDOUT_PAGE`](crate::ports::STDOUT_PAGE) and [`STDERR_PAGE`](crate::ports::STDERR_PAGE).
pub const FEATURE_OUTPUT_PAGE: u32 = 1 << 2;

/// The VMM reads [`telemetry`](crate::telemetry) lines at the page frame in ECX, in memory reserved for
/// them, and serves [`YIELD`](crate::ports::YIELD), [`SPUN_OUT`](crate::ports::SPUN_OUT) and
/// [`PREEMPT_POINT`](crate::ports::PREEMPT_POINT).
pub const FEATURE_TELEMETRY: u32 = 1 << 3;

/// [`DOORBELL`](crate::ports::DOORBELL) kicks vCPUs that halted by HLT, interrupts on or off: the
/// machine has local APICs, and HLT does not exit to the VMM.
pub const FEATURE_DOORBELL: u32 = 1 << 4;

/// [`GATE`](crate::ports::GATE) is available, and the VMM handles a benchmark's events.
pub const FEATURE_WINDOW: u32 = 1 << 5;

/// The VMM asks for reports of panics ([`GuestEvent::Panicked`](crate::ports::GuestEvent::Panicked)).
pub const FEATURE_PANIC: u32 = 1 << 6;

/// [`YIELD_TO`](crate::ports::YIELD_TO) is available.
pub const FEATURE_YIELD_TO: u32 = 1 << 7;

/// A page with [`MachineWords`](crate::telemetry::MachineWords) follows the
/// [`telemetry`](crate::telemetry) lines. Implies [`FEATURE_TELEMETRY`].
pub const FEATURE_MACHINE_WORDS: u32 = 1 << 8;

/// Schedules publish the end of each slice in [`Line::slice_end`](crate::telemetry::Line::slice_end).
/// Implies [`FEATURE_TELEMETRY`].
pub const FEATURE_SLICE_END: u32 = 1 << 9;

/// [`SIGNATURE`] as the three registers that carry it: EBX, ECX, EDX.
pub const fn signature_registers() -> [u32; 3] {
    let s = SIGNATURE;
    [
        u32::from_le_bytes([s[0], s[1], s[2], s[3]]),
        u32::from_le_bytes([s[4], s[5], s[6], s[7]]),
        u32::from_le_bytes([s[8], s[9], s[10], s[11]]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_reads_back_in_register_order() {
        let [b, c, d] = signature_registers();
        assert_eq!(b.to_le_bytes(), *b"PVTi");
        assert_eq!(c.to_le_bytes(), *b"cket");
        assert_eq!(d.to_le_bytes(), *b"Lock");
    }
}
