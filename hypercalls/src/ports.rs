//! The I/O ports, as offsets from the base that CPUID reports.
//!
//! KVM does not forward unknown `vmcall`s to user space (`KVM_CAP_EXIT_HYPERCALL` admits only
//! `KVM_HC_MAP_GPA_RANGE`), hence ports. Every port has one width; an access of another width is
//! counted, reported once and otherwise ignored (reads return zeros).

/// Base port that the VMM uses. Guests must take it from CPUID.
pub const DEFAULT_BASE: u16 = 0x0600;

/// The ports `base .. base + SPAN` belong to the contract.
pub const SPAN: u16 = 0x48;

/// Write 32: `lock_spinning(ticket)`. The calling vCPU halts until kicked. A pending kick makes it
/// return at once. May return spuriously; never acquires. The ticket is for diagnosis only. An NMI or
/// INIT ends the halt, within 100 ms, but only where guests are instructed to halt here (the backend
/// `vmm`); an interrupt never does.
pub const LOCK_SPINNING: u16 = 0x00;

/// Write 32: `unlock_kick(apic id)`. Wakes that vCPU, at whichever port it halted, or leaves a pending
/// kick. Idempotent; several kicks coalesce. A kick to an unknown vCPU is counted and ignored.
pub const UNLOCK_KICK: u16 = 0x04;

/// Write 32: the vCPU has reached the [`Point`](crate::telemetry::Point) with this number, where a
/// schedule may preempt it. Guests report only points set in
/// [`Line::points`](crate::telemetry::Line::points).
pub const PREEMPT_POINT: u16 = 0x08;

/// Write 32 (the value is ignored): the vCPU, which neither holds nor awaits a lock, yields its CPU as
/// requested by [`Line::yield_wanted`](crate::telemetry::Line::yield_wanted).
pub const YIELD: u16 = 0x0c;

/// Write 32: `lock_spinning` without a halt: the vCPU has completed
/// [`Line::spin_limit`](crate::telemetry::Line::spin_limit) spin iterations for this ticket. The
/// schedule may give its CPU to another vCPU; the call returns without a kick.
pub const SPUN_OUT: u16 = 0x30;

/// Write 32: `unlock_kick(apic id)` for a vCPU that halts by HLT: it leaves HLT even with interrupts
/// off; if it is not in HLT, its next HLT returns at once. Idempotent; several coalesce. Needs
/// [`FEATURE_DOORBELL`](crate::cpuid::FEATURE_DOORBELL). Usually the write does not leave the host's kernel:
/// an ioeventfd for each vCPU catches it and signals an irqfd.
pub const DOORBELL: u16 = 0x34;

/// Write 32: `unlock_kick` of the vCPU in bits 31-16, then `lock_spinning` with the ticket in bits 15-0:
/// one exit for a vCPU that does both.
pub const KICK_AND_HALT: u16 = 0x38;

/// Read 32: nonzero once all machines of the run have reached the point that this machine announced by
/// its last [`GuestEvent::BenchReady`] or [`GuestEvent::WindowEnds`]. A machine that has ended does not
/// delay the others; a single machine never waits. Needs
/// [`FEATURE_WINDOW`](crate::cpuid::FEATURE_WINDOW).
pub const GATE: u16 = 0x3c;

/// Read 32: nonzero if the VMM asks for the locations of the guest kernel's locks: it schedules the
/// vCPUs, and their kernel does not publish its lock state. Write 32: number of the page with the
/// [`KernelFacts`](crate::kernel_facts::KernelFacts).
pub const KERNEL_FACTS: u16 = 0x40;

/// Write 32: the calling vCPU, which waits for a lock, donates the rest of its slice to the vCPU with
/// this APIC id, if that vCPU is runnable and has no CPU
/// ([`Line::off_cpu`](crate::telemetry::Line::off_cpu)). The call returns in the caller's next slice, or
/// at once: a schedule need not follow it, and an unknown vCPU is ignored. Needs
/// [`FEATURE_YIELD_TO`](crate::cpuid::FEATURE_YIELD_TO).
pub const YIELD_TO: u16 = 0x44;

/// Write 32: the machine ends with this exit status (its low eight bits).
pub const EXIT: u16 = 0x10;

/// Write 32: the calling vCPU is done; the machine ends when all are done. For guests that cannot
/// execute HLT. The value is the vCPU's status, 0 = success.
pub const VCPU_DONE: u16 = 0x14;

/// Write 32: the guest reports a [`GuestEvent`].
pub const EVENT: u16 = 0x18;

/// Read 32: number of bytes that [`STDIN`] has ready, or [`STDIN_EOF`].
pub const STDIN_AVAIL: u16 = 0x1c;

/// Write 8, also as a string (`rep outsb`): bytes for the command's stdout.
pub const STDOUT: u16 = 0x20;

/// Write 8, also as a string: bytes for the command's stderr.
pub const STDERR: u16 = 0x21;

/// Read 8, also as a string (`rep insb`): bytes of the command's stdin. Read no more than
/// [`STDIN_AVAIL`] announced; further bytes are zeros.
pub const STDIN: u16 = 0x22;

/// Write 32: page frame number of the page of guest memory that the guest uses for output and does not
/// move. Needs [`FEATURE_OUTPUT_PAGE`](crate::cpuid::FEATURE_OUTPUT_PAGE).
///
/// KVM's emulator passes `rep outsb` to user space byte by byte (`em_out` of its emulate.c always passes
/// a count of one; only `rep insb` is read ahead), so every byte would cost an exit. A page costs one.
pub const OUTPUT_PAGE: u16 = 0x24;

/// Write 32: the first N bytes (1 to 4096) of [`OUTPUT_PAGE`] go to the command's stdout. The VMM has
/// copied them when the instruction completes.
pub const STDOUT_PAGE: u16 = 0x28;

/// Write 32: like [`STDOUT_PAGE`], for stderr.
pub const STDERR_PAGE: u16 = 0x2c;

/// Value of [`STDIN_AVAIL`] once the input has ended and is drained.
pub const STDIN_EOF: u32 = u32::MAX;

/// Events that a guest reports by writing to [`EVENT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum GuestEvent {
    /// `/init` runs: the kernel has booted.
    InitReached = 1,
    /// An interactive shell owns the console; Ctrl-C now goes to the guest.
    ShellReady = 2,
    /// All other vCPUs are stopped and the guest has just read its own lock counters: the VMM takes a
    /// snapshot of its counters at the same moment.
    CountersRead = 3,
    /// The guest waits for more stdin: the VMM sends one byte to COM2, for its interrupt, when there is
    /// input or the input ends.
    StdinWanted = 4,
    /// The workers of a benchmark are ready; they begin when [`GATE`] opens.
    BenchReady = 5,
    /// The guest has just read its benchmark's counters for the first time: the measured window begins.
    /// The VMM takes a snapshot of its counters at the same moment.
    WindowBegins = 6,
    /// The guest has just read these counters for the last time: the window ends. The workers continue until
    /// [`GATE`] shows that the windows of all machines have ended.
    WindowEnds = 7,
    /// The guest's kernel panics: the reset that may follow is not a reboot. Needs
    /// [`FEATURE_PANIC`](crate::cpuid::FEATURE_PANIC).
    Panicked = 8,
}

impl GuestEvent {
    /// The event with this number, if this version knows it.
    pub const fn from_raw(raw: u32) -> Option<GuestEvent> {
        match raw {
            1 => Some(GuestEvent::InitReached),
            2 => Some(GuestEvent::ShellReady),
            3 => Some(GuestEvent::CountersRead),
            4 => Some(GuestEvent::StdinWanted),
            5 => Some(GuestEvent::BenchReady),
            6 => Some(GuestEvent::WindowBegins),
            7 => Some(GuestEvent::WindowEnds),
            8 => Some(GuestEvent::Panicked),
            _ => None,
        }
    }
}
