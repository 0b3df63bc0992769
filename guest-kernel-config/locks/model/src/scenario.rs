//! What the CPUs of a machine do.

/// As the product's, with which it is filled in.
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
}

/// One thing that a CPU does. Locks and CPUs are numbers.
#[derive(Debug, Clone, Copy)]
pub enum Op {
    /// Takes a lock, is in its critical section, and releases it.
    Take(usize),
    /// Takes a lock and is in its critical section.
    Lock(usize),
    /// Releases a lock.
    Unlock(usize),
    /// Takes a lock if it is free, and gives it back.
    Try(usize),
    /// Waits until a lock was released.
    Wait(usize),
    /// Kicks a CPU for no reason.
    Kick(usize),
    /// Sends a CPU an interrupt and waits for the answer.
    Ipi(usize),
    /// Waits for the one interrupt that another CPU sends, unless it has come.
    Idle,
    /// Says something, a number.
    Post(usize),
    /// Waits until somebody has said it.
    Await(usize),
    /// Turns interrupts off, those of [`At::Step`].
    IrqsOff,
    /// Turns them on.
    IrqsOn,
}

/// When an interrupt comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// The record is published, the flag not yet set.
    BeforeFlag,
    /// The flag is set and the last look made. The halt follows, as it does after an NMI between
    /// STI and HLT.
    FlagToHalt,
    /// The lock is released, the kick not yet sent.
    ReleaseToKick,
    /// Before any atomic operation, one of the first so many. (shuttle)
    Step(u32),
}

/// An interrupt, once: its handler takes and releases a lock.
#[derive(Debug, Clone, Copy)]
pub struct Irq {
    /// When.
    pub at: At,
    /// Which lock.
    pub lock: usize,
}

/// A CPU's part.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// What it does.
    pub ops: &'static [Op],
    /// Interrupts that come to it.
    pub irqs: &'static [Irq],
    /// How its locks hand over.
    pub handoff: Handoff,
    /// Looks before a halt.
    pub spin: u32,
    /// An interrupt that is sent to it ends its halts.
    pub irqs_on: bool,
    /// A kick is pending from before.
    pub pending: bool,
}

/// A machine: what its CPUs do.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// What it is about.
    pub name: &'static str,
    /// One a CPU.
    pub cpus: &'static [Program],
    /// The first ticket of each lock.
    pub locks: &'static [u16],
    /// Whoever is the last to use lock 0 frees it.
    pub frees: bool,
    /// loom: preemptions at most. shuttle: executions, of either scheduler.
    pub effort: usize,
}

/// Takes lock 0 once, with interrupts off, and halts at the first look in vain.
pub const ONCE: Program = Program {
    ops: &[Op::Take(0)],
    irqs: &[],
    handoff: PLAIN,
    spin: 0,
    irqs_on: false,
    pending: false,
};

/// No cheaper handoff.
pub const PLAIN: Handoff = Handoff {
    far: 0,
    predecessor: false,
    adapt: false,
    claim: false,
    ahead: false,
    fuse: false,
    queue: 0,
};
