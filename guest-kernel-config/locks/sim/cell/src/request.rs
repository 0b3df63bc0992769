//! A vCPU's requests to its machine.

/// A machine's answer. Its meaning depends on the request; zero if the request has none.
pub type Answer = u32;

/// The next step of a vCPU. It takes effect when the vCPU is resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Accesses the atomic at this address.
    Access(Access, usize),
    /// The pause of a spin loop.
    Pause,
    /// The pause of a spin loop that has at most this many iterations left. Answer: the number of
    /// iterations that the pause stood for, from 1; a machine that skips none answers 1.
    Spin(u32),
    /// Halts until a kick, or returns at once if a kick came before. The number is for diagnosis.
    Halt(u16),
    /// Wakes this vCPU, or makes its next halt return at once.
    Kick(usize),
    /// Answer: whether this vCPU is off its pCPU.
    IsOff(usize),
    /// Answer: the socket of its pCPU.
    Socket,
    /// Answer: the rest of its slice, in clock ticks. [`Answer::MAX`]: at least that, or unknown.
    SliceLeft,
    /// Answer: whether any vCPU that holds a lock, or was next in line for one, is off its pCPU.
    IsCriticalOff,
    /// Answer: whether the predecessor of this ticket in the lock at this address is known to be off.
    IsPredecessorOff(usize, u16),
    /// Gives up its pCPU and stays runnable.
    Yield,
    /// Donates the rest of its slice to this vCPU, if that is runnable.
    YieldTo(usize),
    /// Reports that it has completed the number of spin iterations set by its machine.
    SpunOut,
    /// Reports that it has reached the place in the lock paths with this number.
    Point(u32),
    /// Instructions that access nothing shared. The machine decides how many.
    Work(Work),
    /// Reports the position of the code. Not a step: the vCPU continues at once.
    Mark(Mark),
}

/// Kinds of access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// A load.
    Load,
    /// A store.
    Store,
    /// A read-modify-write, including a failed one.
    ReadModifyWrite,
}

/// Kinds of private work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Between two acquisitions.
    Think,
    /// With the lock held.
    Critical,
}

/// A position in the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Calls `lock`: the next step is the first of the acquisition.
    Enter,
    /// `lock` has returned.
    Taken,
    /// About to call `unlock`.
    Release,
    /// Outside the lock path: an operation other than the measured one has ended.
    OutsideLock,
}
