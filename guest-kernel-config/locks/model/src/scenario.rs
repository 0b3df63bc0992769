//! Scenarios: the programs of a machine's CPUs.

/// Options that are copied to the product's `Handoff`.
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs)]
pub struct Handoff {
    pub far: u16,
    pub predecessor: bool,
    pub adapt: bool,
    pub claim: bool,
    pub ahead: bool,
    pub fuse: bool,
    pub queue: u16,
    /// Only restricted locks have a limit.
    pub restrict: u16,
}

/// One operation of a CPU. Locks and CPUs are specified by their index.
#[derive(Debug, Clone, Copy)]
pub enum Op {
    /// Takes a lock, runs its critical section, and releases it.
    Take(usize),
    /// Takes a lock and runs its critical section.
    Lock(usize),
    /// Releases a lock.
    Unlock(usize),
    /// Takes a lock if it is free, and releases it.
    Try(usize),
    /// Waits until a lock has been released.
    Wait(usize),
    /// Kicks a CPU for no reason.
    Kick(usize),
    /// Sends a CPU an interrupt and waits for the answer.
    Ipi(usize),
    /// Waits for another CPU's interrupt, unless it has already arrived.
    Idle,
    /// Posts a number.
    Post(usize),
    /// Waits until a number has been posted.
    Await(usize),
    /// Disables interrupts of the kind [`At::Step`].
    IrqsOff,
    /// Enables these interrupts.
    IrqsOn,
}

/// The time of an interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// The record is published, the flag not yet set.
    BeforeFlag,
    /// The flag is set and the last check was made. The halt follows even so, as after an NMI
    /// between STI and HLT.
    FlagToHalt,
    /// The lock is released, the kick not yet sent.
    ReleaseToKick,
    /// Before one of the first N atomic operations. (shuttle)
    Step(u32),
}

/// An interrupt, which occurs once: its handler takes and releases a lock.
#[derive(Debug, Clone, Copy)]
pub struct Irq {
    pub at: At,
    /// The lock that the handler takes.
    pub lock: usize,
}

/// The program of one CPU.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// Its operations, in order.
    pub ops: &'static [Op],
    /// Its interrupts.
    pub irqs: &'static [Irq],
    /// The handoff options of its locks.
    pub handoff: Handoff,
    /// Spin iterations before a halt (the spin threshold).
    pub spin: u32,
    /// Whether an interrupt ends its halts.
    pub irqs_on: bool,
    /// Whether a kick is pending from the start.
    pub pending: bool,
}

/// A scenario: a machine and the programs of its CPUs.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    pub name: &'static str,
    /// One program per CPU.
    pub cpus: &'static [Program],
    /// The first ticket of each lock.
    pub locks: &'static [u16],
    /// Whether the last user of lock 0 frees it.
    pub frees: bool,
    /// loom: limit on preemptions. shuttle: executions per scheduler.
    pub effort: usize,
}

/// Takes lock 0 once, with interrupts off, and halts if the first attempt fails.
pub const ONCE: Program = Program {
    ops: &[Op::Take(0)],
    irqs: &[],
    handoff: PLAIN,
    spin: 0,
    irqs_on: false,
    pending: false,
};

/// No handoff options of a PV ticketlock, and one CPU inside a restricted lock.
pub const PLAIN: Handoff = Handoff {
    far: 0,
    predecessor: false,
    adapt: false,
    claim: false,
    ahead: false,
    fuse: false,
    queue: 0,
    restrict: 1,
};

/// A ticket just before the wrap, of large and of small tickets.
pub const LAST_TICKET: u16 = 0xfffe;

/// A machine with two locks. The last user of lock 0 frees it.
pub const fn machine(name: &'static str, cpus: &'static [Program], effort: usize) -> Scenario {
    Scenario { name, cpus, locks: &[LAST_TICKET; 2], frees: true, effort }
}

/// Holds both locks, and releases lock 0 first: a waiter for lock 0 with an interrupt that waits
/// for lock 1 must be woken from both waits.
pub const HOLDER: Program =
    Program { ops: &[Op::Lock(0), Op::Lock(1), Op::Unlock(0), Op::Unlock(1)], ..ONCE };

/// Like [`HOLDER`], and takes lock 1 again.
pub const HOLDER_AGAIN: Program =
    Program { ops: &[Op::Lock(0), Op::Lock(1), Op::Unlock(0), Op::Unlock(1), Op::Take(1)], ..ONCE };

/// Takes lock 1 twice.
pub const TAKES_LOCK_1: Program = Program { ops: &[Op::Take(1), Op::Take(1)], ..ONCE };
