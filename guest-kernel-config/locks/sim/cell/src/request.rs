//! A vCPU's requests to its machine.

/// A machine's answer. Its meaning depends on the request; zero where it has none.
pub type Answer = u32;

/// The next step of a vCPU. It takes effect when the vCPU is resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Accesses the atomic at this address.
    Access(Access, usize),
    /// The pause of a spin loop.
    Pause,
    /// The pause of a spin loop that ends after at most this many more looks. Answer: the number of
    /// looks that the pause stood for, from 1; a machine that skips none answers 1.
    Spin(u32),
    /// Halts until a kick comes, or returns at once if one came before. The number is for diagnosis.
    Halt(u16),
    /// Wakes this vCPU, or makes its next halt return at once.
    Kick(usize),
    /// Answer: is this vCPU off its pCPU?
    IsOff(usize),
    /// Answer: the socket of its pCPU.
    Socket,
    /// Answer: what is left of its slice, in ticks of its clock. [`Answer::MAX`]: more, or not known.
    SliceLeft,
    /// Answer: is any vCPU off its pCPU that holds a lock, or was the next in line for one?
    IsCriticalOff,
    /// Answer: is the vCPU that the lock at this address serves before this ticket known to be off?
    IsPredecessorOff(usize, u16),
    /// Gives up its pCPU and stays ready to run.
    Yield,
    /// Gives the rest of its turn to this vCPU, if that is ready to run.
    YieldTo(usize),
    /// Has looked at a lock as often as its machine allows before it wants to be told.
    SpunOut,
    /// Is at a place in the lock paths that its machine wants to be told of, with this number.
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
    /// A read-modify-write, including one that fails.
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
    /// Left the lock path: an operation other than the measured one has ended.
    Beside,
}
