//! What a vCPU asks of its machine.

/// What a machine answers. What it means depends on the request; zero where it means nothing.
pub type Answer = u32;

/// What the next step of a vCPU is. It takes effect when the vCPU is resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Accesses the atomic at an address.
    Access(Access, usize),
    /// The pause of a spin loop.
    Pause,
    /// Halts until a kick comes, or returns at once if one came before. The number is for diagnosis.
    Halt(u16),
    /// Wakes that vCPU, or makes its next halt return at once.
    Kick(usize),
    /// Answer: does that vCPU not run?
    IsOff(usize),
    /// Answer: is the vCPU that the lock at an address serves before this ticket known not to run?
    IsPredecessorOff(usize, u16),
    /// Instructions that touch nothing shared. The machine decides how many.
    Work(Work),
    /// Says what the code is at. No step: the vCPU goes on at once.
    Mark(Mark),
}

/// Kinds of access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// A load.
    Load,
    /// A store.
    Store,
    /// A read-modify-write, also one that fails.
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

/// Where the code is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// At the end of a round. Answer: zero if there is to be no other.
    Round,
    /// It calls `lock`: the next step is the first of the acquisition.
    Enter,
    /// It is about to draw its ticket, if the lock has tickets: its next step.
    Draw,
    /// It has left word that it waits: before its last look, in line or outside of it.
    Published,
    /// It waits in line, with this ticket if a watcher is told tickets.
    InLine(Option<u16>),
    /// `lock` has returned.
    Taken,
    /// It is about to call `unlock`.
    Release,
    /// It left the lock path: an operation beside the one that is measured has ended.
    Beside,
}
