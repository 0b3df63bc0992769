//! Memory that the VMM and a payload share: one [`Shared`] block.
//!
//! The VMM writes [`Params`] before the first vCPU runs, sets [`Shared::go`] when all vCPUs have
//! arrived, reads the [`Slot`]s while the vCPUs run, and sets [`Shared::stop`]. No vCPU writes
//! another's slot. Fields that both sides access are atomics; every group has its own cache line.

use core::{
    mem::offset_of,
    sync::atomic::{
        AtomicU32, AtomicU64,
        Ordering::{Acquire, Release},
    },
};

use crate::{MAX_VCPUS, histogram, telemetry};

mod stamp;

pub use stamp::{PaddedU64, Stamp};

/// Guest-physical address of [`Shared`], also its virtual address (identity-mapped).
pub const SHARED_GPA: u64 = 0x10_0000;

/// Address of the [`telemetry`] lines.
pub const TELEMETRY_GPA: u64 = 0x1c_0000;

/// Lowest address of a payload image; it ends below [`STACKS_GPA`].
pub const IMAGE_GPA: u64 = 0x20_0000;

/// The stack of vCPU `i` ends at `STACKS_GPA + (i + 1) * STACK_SIZE`.
pub const STACKS_GPA: u64 = 0x80_0000;

/// Bytes of stack for each vCPU.
pub const STACK_SIZE: u64 = 0x4000;

/// Memory a payload machine needs, in bytes.
pub const MEMORY: u64 = 0x100_0000;

/// A port without a device, for [`Workload::PortExit`].
pub const UNCLAIMED_PORT: u16 = 0x0700;

/// The payload's program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Workload {
    /// vCPU 0 writes one byte to COM1 (0x3f8) and is done. For boot timing.
    Hello = 0,
    /// Uses one system repeatedly, with `think` increments in between. A spinlock or a mutex: take it,
    /// do `critical` increments, release it. A counter: add `critical`, and after every `sum_every` adds
    /// compute a sum. A lockref: get a reference and put it back.
    Operate = 1,
    /// One `out` to [`UNCLAIMED_PORT`] per operation: the cost of an exit. Records samples.
    PortExit = 2,
    /// vCPU 0 and the last vCPU alternate: each kicks the other and halts. A kick comes `think`
    /// thousand TSC ticks after the other vCPU has begun to halt; with zero, without waiting for it. An
    /// operation of vCPU 0 is a round trip; its [`Shared::samples`] are the times from the kick to the
    /// kicked vCPU's first instruction, summed over both directions, so that a clock offset cancels out.
    PingPong = 4,
    /// vCPU 0 kicks the last vCPU, which spins. A sample is the time of one kick.
    KickRunning = 5,
    /// vCPU 0 kicks itself. A sample is the time of the halt that follows, which finds the kick
    /// pending.
    PendingHalt = 6,
    /// Like [`Workload::Operate`], but the last vCPU only reads the word that the others write.
    HotLine = 7,
    /// Like [`Workload::Operate`], with its system and the first system of each other family: each
    /// operation draws one of the four at random.
    Mixed = 8,
    /// vCPU 0 reads the ports of halts and kicks, writes them in the wrong width, kicks an unknown vCPU,
    /// and is done: abuse of the ports by a hostile or broken guest.
    Misuse = 3,
    /// Like [`Workload::Hello`], but then every vCPU halts by its [`Transport`] repeatedly: an idle
    /// machine.
    Rest = 9,
    /// Two or more vCPUs share a slot: each stores its index and its TSC in [`Shared::stamp`] in a loop.
    /// An operation is a switch, counted by the vCPU that runs next. The time of a switch is from the
    /// last TSC of the previous vCPU to the first TSC of the next.
    Switch = 10,
}

impl Workload {
    /// The workloads of experiments, with their names and descriptions: every workload that uses a
    /// system of the lock library, and switches.
    pub const OF_LOCKS: &'static [(Self, &'static str, &'static str)] = &[
        (
            Self::Operate,
            "lock",
            "Every vCPU uses one system repeatedly: a lock (in a Linux guest the kernel's), a \
             mutex, a counter, a lockref",
        ),
        (
            Self::HotLine,
            "hot-line",
            "Payload: as lock, but the last vCPU only reads the word that the others write",
        ),
        (Self::Mixed, "mixed", "Payload: a spinlock, a mutex, a counter or a lockref, at random"),
        (
            Self::Switch,
            "switch",
            "Payload: no lock; vCPUs of one slot time the switches between them, by their own TSC",
        ),
    ];

    /// The workload with this number, if it is in [`Self::OF_LOCKS`].
    pub fn from_number(number: u32) -> Option<Self> {
        let entry = Self::OF_LOCKS.iter().find(|(workload, ..)| *workload as u32 == number);
        entry.map(|(workload, ..)| *workload)
    }
}

/// The means by which a payload's vCPU halts for a lock and is kicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Transport {
    /// The ports [`LOCK_SPINNING`](crate::ports::LOCK_SPINNING) and
    /// [`UNLOCK_KICK`](crate::ports::UNLOCK_KICK): in ring 3 or 0.
    Ports = 0,
    /// HLT and the port [`DOORBELL`](crate::ports::DOORBELL). HLT needs ring 0.
    Doorbell = 1,
    /// HLT and KVM's own `KVM_HC_KICK_CPU` by VMCALL. Both need ring 0.
    Vmcall = 2,
    /// HLT and `KVM_HC_KICK_CPU` by VMMCALL.
    Vmmcall = 3,
}

/// Bits of [`Params::handoff`]: options that make handoffs of PV locks cheaper, see `locks::Handoff`.
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

    /// `Handoff::ADAPTIVE`, in place of a number.
    pub const ADAPTIVE: u16 = u16::MAX;

    /// The options that are on, by their names in `locks::Handoff`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct Options {
        pub predecessor: bool,
        pub adapt: bool,
        pub claim: bool,
        pub ahead: bool,
        pub fuse: bool,
    }

    impl Options {
        /// The options whose bits are set.
        pub const fn from_bits(bits: u32) -> Self {
            Self {
                predecessor: bits & PREDECESSOR != 0,
                adapt: bits & ADAPT != 0,
                claim: bits & CLAIM != 0,
                ahead: bits & AHEAD != 0,
                fuse: bits & FUSE != 0,
            }
        }
    }
}

/// The largest number of locks that a payload's vCPUs use.
pub const MAX_LOCKS: usize = 16;

/// Number of most recent samples that a payload retains.
pub const SAMPLES: usize = 1 << 14;

/// Set by the VMM before the first instruction, constant afterwards.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Params {
    /// A [`Workload`].
    pub workload: AtomicU32,
    /// The system that [`Workload::Operate`] uses: a number of `locks::System`.
    pub system: AtomicU32,
    /// Number of vCPUs that take part.
    pub vcpus: AtomicU32,
    /// Spin threshold: spin iterations before a PV waiter halts.
    pub spin_threshold: AtomicU32,
    /// Increments in the critical section, of shared words in turn; for a per-CPU counter, the addend.
    pub critical: AtomicU32,
    /// Increments of the vCPU's own words between two operations.
    pub think: AtomicU32,
    /// Base I/O port of the contract.
    pub port_base: AtomicU32,
    /// Address of the [`telemetry`] lines; zero: publish none.
    pub telemetry: AtomicU32,
    /// A [`Transport`].
    pub transport: AtomicU32,
    /// Bits of [`handoff`].
    pub handoff: AtomicU32,
    /// A waiter with at least this many vCPUs ahead halts without spinning; zero: off.
    pub far: AtomicU32,
    /// Largest number of vCPUs in a lock's queue, its holder included; zero: no limit.
    pub queue: AtomicU32,
    /// Largest number of vCPUs that hold a lock or wait for it at once; others halt outside. Zero: no
    /// limit. [`handoff::ADAPTIVE`]: the lock determines the limit.
    pub restrict: AtomicU32,
    /// Adds of each vCPU between two sums of a per-CPU counter; zero: no sums.
    pub sum_every: AtomicU32,
    /// Nonzero: each vCPU fills its [`Shared::latencies`].
    pub timed: AtomicU32,
    /// Number of spinlocks, at most [`MAX_LOCKS`]: each operation takes one of them.
    pub locks: AtomicU32,
}

macro_rules! slot {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// One vCPU's figures, written by that vCPU only.
        #[derive(Debug)]
        #[repr(C, align(128))]
        pub struct Slot {
            $($(#[$doc])* pub $name: AtomicU64,)*
            /// If operations are timed: a [`Waiting::word`].
            pub waiting: AtomicU64,
        }

        /// The figures of a [`Slot`] as they were read.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct SlotFigures {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl SlotFigures {
            /// Reads each figure with `load`, which takes its offset in a [`Slot`].
            pub fn read<E>(load: impl Fn(usize) -> Result<u64, E>) -> Result<Self, E> {
                Ok(Self { $($name: load(offset_of!(Slot, $name))?,)* })
            }
        }
    };
}

slot! {
    /// Operations (acquisitions) done.
    operations,
    /// Acquisitions that left the fast path.
    slow,
    /// `lock_spinning` calls made.
    halts,
    /// `unlock_kick` calls made.
    kicks,
    /// Failed checks of a system's guarantees: mutual exclusion, the bounds of a sum or count. Any
    /// nonzero value is a bug.
    violations,
    /// Acquisitions whose ticket did not follow the ticket served before. Any nonzero value is a bug of
    /// a lock that is first in, first out.
    disorder,
    /// Atomic read-modify-writes of a mutex's word.
    rmw,
    /// Atomic read-modify-writes of the state that decides which waiter may spin for a mutex.
    spinner_rmw,
    /// Spin iterations of optimistic spinners, and of a counter's adds that had to wait.
    spins,
    /// Failed compare-exchanges of a lockref.
    retries,
    /// Adds to a per-CPU counter.
    adds,
    /// Sums of a per-CPU counter.
    sums,
    /// Largest distance of a sum from the nearest possible value.
    deviation,
    /// Reads by [`Workload::HotLine`]'s reader.
    reads,
}

/// Whether a vCPU whose operations are timed is waiting. A wait that has not ended is not counted in
/// [`LatencyBuckets`]; it shows here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// Not waiting, and all its waits are counted.
    No,
    /// Waiting since this TSC value.
    Since(u64),
    /// Waited for this many ticks, not counted yet: a holder counts its wait after the release.
    Over(u64),
}

impl Waiting {
    /// Above any TSC value: at 4 GHz it is reached after 73 years.
    const OVER: u64 = 1 << 63;

    /// Encodes the state as a word; [`Waiting::No`] is zero.
    pub const fn word(self) -> u64 {
        match self {
            Self::No => 0,
            Self::Since(tsc) => tsc & !Self::OVER,
            Self::Over(ticks) => ticks | Self::OVER,
        }
    }

    /// Decodes a [`Waiting::word`].
    pub const fn parse(word: u64) -> Self {
        match word {
            0 => Self::No,
            tsc if tsc < Self::OVER => Self::Since(tsc),
            over => Self::Over(over & !Self::OVER),
        }
    }
}

/// Histogram of the times of an operation: a count per bucket of [`histogram`], in TSC ticks.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct LatencyBuckets(pub [AtomicU64; histogram::BUCKETS]);

/// A flag or count in its own cache line, written by the VMM or by the guest's vCPUs.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct PaddedU32(pub AtomicU32);

/// The shared state of [`Workload::PingPong`]'s two vCPUs.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Ball {
    /// Number of times the ball was passed.
    pub turn: AtomicU32,
    /// The turn of the vCPU that halts, plus one; zero: neither has begun.
    pub announced: AtomicU32,
    /// TSC when the ball was last passed.
    pub kicked_at: AtomicU64,
    /// Time from vCPU 0's last pass to its arrival, in TSC ticks.
    pub one_way: AtomicU64,
}

impl Ball {
    /// Announces that the calling vCPU halts until the ball is passed in `turn`.
    pub fn announce_halt(&self, turn: u32) {
        self.announced.store(turn.wrapping_add(1), Release);
    }

    /// Whether the other vCPU has announced its halt in `turn`. A vCPU that passes the ball earlier
    /// announces its own halt first; the other's late announcement then overwrites it, and both wait
    /// forever.
    pub fn has_announced(&self, turn: u32) -> bool {
        self.announced.load(Acquire) == turn.wrapping_add(1)
    }
}

/// The entire shared block, at [`SHARED_GPA`].
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Shared {
    /// The workload's parameters.
    pub params: Params,
    /// Guest: number of vCPUs that wait for `go`.
    pub arrived: PaddedU32,
    /// VMM: nonzero starts the workload.
    pub go: PaddedU32,
    /// VMM: nonzero ends the workload at each vCPU's next check.
    pub stop: PaddedU32,
    /// Guest: the state of [`Workload::PingPong`].
    pub ball: Ball,
    /// Guest: the [`Stamp`] of [`Workload::Switch`].
    pub stamp: PaddedU64,
    /// Figures, by vCPU.
    pub slots: [Slot; MAX_VCPUS as usize],
    /// Times in TSC ticks: operation `n` of vCPU 0 at index `n` modulo [`SAMPLES`].
    pub samples: [AtomicU32; SAMPLES],
    /// Times by vCPU: to acquire a lock or mutex, add to a counter, get and put a lockref, or switch.
    pub latencies: [LatencyBuckets; MAX_VCPUS as usize],
}

// The block must end before the telemetry lines, the lines before the image, and the stacks within the
// memory.
const _: () = assert!(SHARED_GPA + size_of::<Shared>() as u64 <= TELEMETRY_GPA);
const _: () = assert!(TELEMETRY_GPA + telemetry::MEMORY <= IMAGE_GPA);
const _: () = assert!(STACKS_GPA + MAX_VCPUS as u64 * STACK_SIZE <= MEMORY);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bit_enables_its_option() {
        use handoff::*;
        let names = |bits| {
            let Options { predecessor, adapt, claim, ahead, fuse } = Options::from_bits(bits);
            [predecessor, adapt, claim, ahead, fuse]
        };
        for (place, bit) in [PREDECESSOR, ADAPT, CLAIM, AHEAD, FUSE].into_iter().enumerate() {
            assert_eq!(names(bit), [0, 1, 2, 3, 4].map(|ix| ix == place));
            assert_eq!(names(!bit), [0, 1, 2, 3, 4].map(|ix| ix != place));
        }
    }

    #[test]
    fn waiting_states_encode_and_decode() {
        for waiting in [Waiting::No, Waiting::Since(1), Waiting::Since(1 << 62), Waiting::Over(0)] {
            assert_eq!(Waiting::parse(waiting.word()), waiting);
        }
        assert_eq!(Waiting::parse(0), Waiting::No, "the memory's zeros");
    }

    /// Regression: vCPU 0 continued before the other had reached its first halt, whose late announcement
    /// overwrote vCPU 0's own; one benchmark in sixty hung.
    #[test]
    fn a_halt_is_seen_only_after_its_announcement() {
        let [turn, announced] = [0, 0].map(AtomicU32::new);
        let [kicked_at, one_way] = [0, 0].map(AtomicU64::new);
        let ball = Ball { turn, announced, kicked_at, one_way };
        assert!(!ball.has_announced(0), "zeroed memory announces nothing");
        ball.announce_halt(0);
        assert!(ball.has_announced(0) && !ball.has_announced(1));
        ball.announce_halt(u32::MAX);
        assert!(ball.has_announced(u32::MAX) && !ball.has_announced(0));
    }
}
