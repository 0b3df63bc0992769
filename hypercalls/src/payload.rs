//! What the VMM and a ring-3 payload share: one [`Shared`] block of guest memory.
//!
//! The VMM writes [`Params`] before the first vCPU runs, raises [`Shared::go`]
//! when all vCPUs have arrived, reads the per-vCPU [`Slot`]s while they run and
//! raises [`Shared::stop`]. The guest writes its own slot only. Fields that two
//! sides touch are atomics; every group has its own cache line.

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Release},
};

use crate::{MAX_VCPUS, histogram, telemetry};

/// Guest-physical (and virtual: identity-mapped) address of [`Shared`].
pub const SHARED_GPA: u64 = 0x10_0000;

/// Address of the [`telemetry`] lines.
pub const TELEMETRY_GPA: u64 = 0x1c_0000;

/// Where a payload image may lie: from here up to [`STACKS_GPA`].
pub const IMAGE_GPA: u64 = 0x20_0000;

/// The stack of vCPU `i` ends at `STACKS_GPA + (i + 1) * STACK_SIZE`.
pub const STACKS_GPA: u64 = 0x80_0000;

/// Bytes of stack for each vCPU.
pub const STACK_SIZE: u64 = 0x4000;

/// Memory a payload machine needs, in bytes.
pub const MEMORY: u64 = 0x100_0000;

/// A port that nothing answers to, for [`Workload::PortExit`].
pub const UNCLAIMED_PORT: u16 = 0x0700;

/// What a payload does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Workload {
    /// vCPU 0 writes one byte to COM1 (0x3f8) and is done. For boot timing.
    Hello = 0,
    /// What the system is for, again and again, with `think` increments in between. Of a spinlock
    /// or a mutex: take it, do `critical` increments, release it. Of a counter: add `critical`,
    /// and after every `sum_every` adds a sum. Of a lockref: get a reference and put it back.
    Operate = 1,
    /// One `out` to [`UNCLAIMED_PORT`] per operation: the cost of an exit. Samples of it, too.
    PortExit = 2,
    /// vCPU 0 and the last vCPU, in turn, kick the other and halt. A kick comes `think` kilocycles
    /// after the other has begun to halt; with zero it does not wait for that. An operation of
    /// vCPU 0 is a round trip; its [`Shared::samples`] are the times from the kick to the kicked
    /// vCPU's first instruction, both ways together, so that clocks that differ cancel out.
    PingPong = 4,
    /// vCPU 0 kicks the last vCPU, which spins. Samples are the times of kicks.
    KickRunning = 5,
    /// vCPU 0 kicks itself. Samples are the times of the halt that follows, which has a kick
    /// pending.
    PendingHalt = 6,
    /// As [`Workload::Operate`], but the last vCPU only looks at the word that the others write.
    HotLine = 7,
    /// As [`Workload::Operate`] with four systems by turns, drawn anew each time: the one that is
    /// asked for, and of each other family the first.
    Mixed = 8,
    /// Writes of the wrong width and a kick to an unknown vCPU, then done: what
    /// a hostile or broken guest does with the ports.
    Misuse = 3,
    /// As [`Workload::Hello`], but then vCPU 0 halts by [`LOCK_SPINNING`](crate::ports::LOCK_SPINNING)
    /// again and again: a machine at rest.
    Rest = 9,
}

impl Workload {
    /// Those that use a system of the lock library: as users call them, and what they do.
    pub const OF_LOCKS: &'static [(Self, &'static str, &'static str)] = &[
        (
            Self::Operate,
            "lock",
            "Every vCPU uses one system again and again: a lock (in a Linux guest the kernel's), a \
             mutex, a counter, a lockref",
        ),
        (
            Self::HotLine,
            "hot-line",
            "Payload: the same, but the last vCPU only reads the word that the others write",
        ),
        (Self::Mixed, "mixed", "Payload: a spinlock, a mutex, a counter and a lockref by turns"),
    ];

    /// As users call it, if it uses a system of the lock library.
    pub fn name(self) -> Option<&'static str> {
        let found = Self::OF_LOCKS.iter().find(|(workload, ..)| *workload == self);
        found.map(|(_, name, _)| *name)
    }

    /// The one of that number, if it uses a system of the lock library.
    pub fn of_locks(number: u32) -> Option<Self> {
        let found = Self::OF_LOCKS.iter().find(|(workload, ..)| *workload as u32 == number);
        found.map(|(workload, ..)| *workload)
    }
}

/// How a payload's vCPU halts for a lock and is kicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Transport {
    /// The ports [`LOCK_SPINNING`](crate::ports::LOCK_SPINNING) and
    /// [`UNLOCK_KICK`](crate::ports::UNLOCK_KICK): in ring 3 or 0.
    Ports = 0,
    /// HLT and the port [`DOORBELL`](crate::ports::DOORBELL). HLT wants ring 0.
    Doorbell = 1,
    /// HLT and KVM's own `KVM_HC_KICK_CPU` by VMCALL. Both want ring 0.
    Vmcall = 2,
    /// The same by VMMCALL.
    Vmmcall = 3,
}

/// Bits of [`Params::handoff`]: what PV locks do to make handoffs cheaper, see `locks::Handoff`.
pub mod handoff {
    /// `Handoff::predecessor`.
    pub const PREDECESSOR: u32 = 1 << 0;
    /// `Handoff::adapt`.
    pub const ADAPT: u32 = 1 << 1;
    /// `Handoff::claim`.
    pub const CLAIM: u32 = 1 << 2;
    /// `Handoff::ahead`.
    pub const AHEAD: u32 = 1 << 3;
    /// `Handoff::fuse`.
    pub const FUSE: u32 = 1 << 4;
}

/// Samples that a payload keeps of a latency: the last ones.
pub const SAMPLES: usize = 1 << 14;

/// Set by the VMM before the first instruction, constant afterwards.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Params {
    /// A [`Workload`].
    pub workload: AtomicU32,
    /// What [`Workload::Operate`] uses: a number of `locks::System`.
    pub system: AtomicU32,
    /// vCPUs that take part.
    pub vcpus: AtomicU32,
    /// Looks at the lock's head before a PV waiter halts.
    pub spin_threshold: AtomicU32,
    /// Increments of one shared counter inside the critical section; what a per-CPU counter adds.
    pub critical: AtomicU32,
    /// Increments of a private counter between two operations.
    pub think: AtomicU32,
    /// Base I/O port of the contract.
    pub port_base: AtomicU32,
    /// Address of the [`telemetry`] lines; zero: keep none.
    pub telemetry: AtomicU32,
    /// A [`Transport`].
    pub transport: AtomicU32,
    /// Bits of [`handoff`].
    pub handoff: AtomicU32,
    /// A waiter that this many others or more are before halts without spinning; zero: none does.
    pub far: AtomicU32,
    /// vCPUs that may queue for a lock, its holder included; zero: all.
    pub queue: AtomicU32,
    /// Adds of each vCPU between two sums of a per-CPU counter; zero: it makes none.
    pub sum_every: AtomicU32,
    /// Non-zero: each vCPU keeps its [`Shared::latencies`].
    pub timed: AtomicU32,
}

/// One vCPU's figures; written by that vCPU alone.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Slot {
    /// Operations (acquisitions) done.
    pub operations: AtomicU64,
    /// Those that left the fast path.
    pub slow: AtomicU64,
    /// `lock_spinning` calls made.
    pub halts: AtomicU64,
    /// `unlock_kick` calls made.
    pub kicks: AtomicU64,
    /// Times a check of what the system promises failed: mutual exclusion, the bound of a sum, the
    /// least of a count. Anything but zero is a bug.
    pub violations: AtomicU64,
    /// Times its ticket was not the one after the last that was served. Anything but zero is a
    /// bug of a lock that is first in, first out.
    pub disorder: AtomicU64,
    /// Atomic read-modify-writes of a mutex's word.
    pub rmw: AtomicU64,
    /// Those of what says who may spin for it.
    pub beside: AtomicU64,
    /// Looks of optimistic spinners, and of a counter's adds that were kept waiting.
    pub spins: AtomicU64,
    /// Compare-exchanges of a lockref in vain.
    pub retries: AtomicU64,
    /// Adds to a per-CPU counter.
    pub adds: AtomicU64,
    /// Its sums.
    pub sums: AtomicU64,
    /// The most that a sum was off from everything it could have been.
    pub deviation: AtomicU64,
    /// Looks of [`Workload::HotLine`]'s reader.
    pub looks: AtomicU64,
    /// Where operations are timed: [`Waiting::word`].
    pub waiting: AtomicU64,
}

/// Whether a vCPU whose operations are timed waits. A wait that does not end is in no count of
/// [`Latencies`], and this is how it is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// It does not, and all its waits are counted.
    No,
    /// Since its TSC stood there.
    Since(u64),
    /// It did for so many ticks, which are not counted yet: a holder counts when it has released.
    Over(u64),
}

impl Waiting {
    /// No TSC comes so far: at 4 GHz in 73 years.
    const OVER: u64 = 1 << 63;

    /// As a word; [`Waiting::No`] is zero.
    pub const fn word(self) -> u64 {
        match self {
            Self::No => 0,
            Self::Since(tsc) => tsc & !Self::OVER,
            Self::Over(ticks) => ticks | Self::OVER,
        }
    }

    /// From a word.
    pub const fn parse(word: u64) -> Self {
        match word {
            0 => Self::No,
            tsc if tsc < Self::OVER => Self::Since(tsc),
            over => Self::Over(over & !Self::OVER),
        }
    }
}

/// How often an operation took how long: a count for each bucket of [`histogram`], in TSC ticks.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Latencies(pub [AtomicU64; histogram::BUCKETS]);

/// A flag or count that many read and one side writes, alone in its line.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Line(pub AtomicU32);

/// What two vCPUs pass to and fro.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Ball {
    /// How often it was passed.
    pub turn: AtomicU32,
    /// One more than the turn that one of the two halts in; zero: neither has begun.
    pub resting: AtomicU32,
    /// TSC when it was passed last.
    pub kicked_at: AtomicU64,
    /// How long it was under way from vCPU 0, in TSC ticks.
    pub way: AtomicU64,
}

impl Ball {
    /// This player halts from now on, while it is `turn`.
    pub fn rest(&self, turn: u32) {
        self.resting.store(turn.wrapping_add(1), Release);
    }

    /// Has the other said that it halts in `turn`? Who passes the ball before it has, overwrites with
    /// its own rest what is not there yet, is overwritten when it comes, and both wait for ever.
    pub fn rests(&self, turn: u32) -> bool {
        self.resting.load(Acquire) == turn.wrapping_add(1)
    }
}

/// The whole shared block, at [`SHARED_GPA`].
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Shared {
    /// The experiment.
    pub params: Params,
    /// Guest: vCPUs that wait for `go`.
    pub arrived: Line,
    /// VMM: non-zero starts the workload.
    pub go: Line,
    /// VMM: non-zero ends it at each vCPU's next look.
    pub stop: Line,
    /// Guest: what [`Workload::PingPong`] plays with.
    pub ball: Ball,
    /// Indexed by vCPU.
    pub slots: [Slot; MAX_VCPUS as usize],
    /// Times in TSC ticks, those of operation `n` of vCPU 0 at `n` modulo [`SAMPLES`].
    pub samples: [AtomicU32; SAMPLES],
    /// Indexed by vCPU: how long it took to have the lock or the mutex, to add, or to get and put.
    pub latencies: [Latencies; MAX_VCPUS as usize],
}

// The block must end before the image begins.
const _: () = assert!(SHARED_GPA + size_of::<Shared>() as u64 <= TELEMETRY_GPA);
const _: () = assert!(TELEMETRY_GPA + telemetry::SIZE <= IMAGE_GPA);
const _: () = assert!(STACKS_GPA + MAX_VCPUS as u64 * STACK_SIZE <= MEMORY);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_what_was_said() {
        for waiting in [Waiting::No, Waiting::Since(1), Waiting::Since(1 << 62), Waiting::Over(0)] {
            assert_eq!(Waiting::parse(waiting.word()), waiting);
        }
        assert_eq!(Waiting::parse(0), Waiting::No, "the memory's zeros");
    }

    /// Seen: vCPU 0 was off before the other had come to its first halt, whose late word then
    /// replaced vCPU 0's own; one benchmark in sixty stood still.
    #[test]
    fn nobody_rests_who_has_not_said_so() {
        let [turn, resting] = [0, 0].map(AtomicU32::new);
        let [kicked_at, way] = [0, 0].map(AtomicU64::new);
        let ball = Ball { turn, resting, kicked_at, way };
        assert!(!ball.rests(0), "the memory's zeros are no word");
        ball.rest(0);
        assert!(ball.rests(0) && !ball.rests(1));
        ball.rest(u32::MAX);
        assert!(ball.rests(u32::MAX) && !ball.rests(0));
    }
}
