//! What goes into the core and what comes out of it.

use hypercalls::telemetry::{NAMED, Point};
use serde::{Deserialize, Serialize};

use crate::units::{Nanos, SlotId};

/// A vCPU's place in a schedule: dense over all the schedule's VMs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct VcpuIndex(pub u32);

impl VcpuIndex {
    pub(super) const fn ix(self) -> usize {
        self.0 as usize
    }
}

/// A lock, by the guest-virtual address of its word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockId(pub u64);

/// Where in the guest a vCPU is.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Nobody looked.
    #[default]
    Unknown,
    /// Ring 3.
    User,
    /// Ring 0.
    Kernel,
}

/// What a vCPU has to do with locks.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "doing")]
pub enum LockActivity {
    /// Nobody knows: the guest keeps no telemetry.
    #[default]
    Unknown,
    /// It neither holds nor awaits one.
    Free,
    /// Its kernel has disabled preemption, maybe for a lock: a guess, where there is no telemetry.
    Guarded,
    /// It is drawing a ticket: it may have one, and the lines of the others do not tell which.
    Entering,
    /// It holds a lock, or several of which no other is known.
    Holding {
        /// None: deeper than telemetry names them, or only counted.
        lock: Option<LockId>,
        /// How many.
        depth: u32,
    },
    /// It holds several locks that are known.
    HoldingSeveral {
        /// The innermost. None: deeper than telemetry names them.
        lock: Option<LockId>,
        /// How many.
        depth: u32,
        /// Those around it, the outermost first, as far as telemetry names them.
        outer: [Option<LockId>; NAMED],
    },
    /// It waits in a queue.
    Waiting {
        /// For this lock.
        lock: LockId,
        /// With this ticket.
        ticket: u16,
        /// Releases until it is served; 0: it is, and has not noticed. None: the
        /// lock's word could not be read.
        distance: Option<u16>,
        /// When it began to wait, by the schedule's clock; zero if that is not known.
        since: Nanos,
        /// It does not spin: it halts, in KVM if it has a slot.
        halted: bool,
    },
    /// It stands outside of a queue that is full, or was let in and has not drawn its ticket yet.
    Outside {
        /// Of this lock.
        lock: LockId,
        /// How many queue. None: the lock's word could not be read.
        queued: Option<u16>,
        /// When it began to wait, as above.
        since: Nanos,
    },
    /// It has released a lock and not yet kicked who is next, who sleeps until then.
    Kicking {
        /// That lock.
        lock: LockId,
        /// The ticket of the next in line.
        ticket: u16,
    },
}

impl LockActivity {
    /// A preemption now is a lock-holder preemption.
    pub const fn is_holder(&self) -> bool {
        matches!(self, LockActivity::Holding { .. } | LockActivity::HoldingSeveral { .. })
    }

    /// A preemption now is a next-in-line (lock-waiter) preemption: nobody else can be served
    /// before it once the present holder, if there still is one, releases. The next in line is
    /// also kept off by the preemption of who is about to kick it; and so are those outside of an
    /// empty queue by that of the one that has been let in.
    pub const fn is_next(&self) -> bool {
        matches!(
            self,
            LockActivity::Waiting { distance: Some(0 | 1), .. }
                | LockActivity::Outside { queued: Some(0), .. }
                | LockActivity::Kicking { .. }
        )
    }

    /// The ticket that its lock served when it was seen waiting.
    pub const fn head(&self) -> Option<u16> {
        match *self {
            // Tickets go by twos: the low bit of a head is the slowpath flag.
            LockActivity::Waiting { ticket, distance: Some(distance), .. } => {
                Some(ticket.wrapping_sub(distance.wrapping_mul(2)))
            }
            _ => None,
        }
    }

    /// Others may come to wait for it if it is preempted now.
    pub const fn is_involved(&self) -> bool {
        !matches!(self, LockActivity::Unknown | LockActivity::Free)
    }

    /// It waits for a lock that serves it by now: whoever released that has kicked it, or will.
    pub const fn is_served(&self) -> bool {
        matches!(self, LockActivity::Waiting { distance: Some(0), .. })
    }

    /// May it take or release `lock` before long, if it runs?
    pub fn is_involved_with(&self, lock: LockId) -> bool {
        self.is_involved() && (self.lock().is_none() || self.concerns(lock))
    }

    /// Must a vCPU that does this with locks run before one of its machine that does `other` can be
    /// served? It holds, hands over or stands further ahead in the queue of the same lock.
    pub fn goes_before(&self, other: &LockActivity) -> bool {
        let LockActivity::Waiting { lock, ticket: after, .. } = *other else { return false };
        self.concerns(lock)
            && match *self {
                LockActivity::Holding { .. } | LockActivity::HoldingSeveral { .. } => true,
                // Half of the tickets lie ahead, half behind.
                LockActivity::Waiting { ticket, .. } | LockActivity::Kicking { ticket, .. } => {
                    (ticket.wrapping_sub(after) as i16) < 0
                        || (matches!(self, LockActivity::Kicking { .. }) && ticket == after)
                }
                _ => false,
            }
    }

    /// Does it hold or await `lock`, which may be an outer one of several?
    pub fn concerns(&self, lock: LockId) -> bool {
        let is_outer = match self {
            LockActivity::HoldingSeveral { outer, .. } => outer.contains(&Some(lock)),
            _ => false,
        };
        is_outer || self.lock() == Some(lock)
    }

    /// The lock, if there is one and it is known; of several that are held the innermost.
    pub const fn lock(&self) -> Option<LockId> {
        match *self {
            LockActivity::Holding { lock, .. } | LockActivity::HoldingSeveral { lock, .. } => lock,
            LockActivity::Waiting { lock, .. }
            | LockActivity::Outside { lock, .. }
            | LockActivity::Kicking { lock, .. } => Some(lock),
            _ => None,
        }
    }
}

/// A vCPU that kicks another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kicker {
    /// Which.
    pub vcpu: VcpuIndex,
    /// What it did with locks when it left the guest for the kick.
    pub activity: LockActivity,
}

/// What was seen of a vCPU outside the guest.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize)]
pub struct Observation {
    /// Where it was.
    pub mode: Mode,
    /// What it did.
    #[serde(flatten)]
    pub activity: LockActivity,
}

/// Something that happened to a vCPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event {
    /// Its thread is ready to enter the guest for the first time.
    Started,
    /// It has come out of the guest: at its deadline, or for no reason.
    Stopped(Observation),
    /// The same, out of KVM's own HLT, where it sits still. (Telemetry that says "halted" is no
    /// proof of that: it says so from a little before to a little after.)
    StoppedInHlt(Observation),
    /// `lock_spinning` found no kick pending: it halts.
    Halted(Observation),
    /// `unlock_kick` by that vCPU, if a vCPU it was, ends its halt. May come before
    /// [`Event::Halted`], which then does not halt.
    Kicked(Option<Kicker>),
    /// A kick by that vCPU, if it was one, that KVM has delivered: it ends a HLT and is owed to no
    /// later halt.
    KickedInHlt(Option<Kicker>),
    /// Both in one: it halts, and ends the halt of that vCPU, which so may have its slot.
    HandedOver(VcpuIndex, Observation),
    /// It gives up its slot, as asked.
    Yielded,
    /// It has looked often enough at a lock.
    SpunOut(Observation),
    /// It is at a named place.
    Point(Point, Observation),
    /// It sits in KVM's own HLT, for the lock that the look says or because it has nothing to do.
    Idle(Observation),
    /// It does no longer, by an interrupt or by a kick that KVM has delivered without the VMM. If
    /// its lock serves it by now, it was kicked; by which vCPU is not known.
    Woken(Observation),
    /// It runs, and was seen doing this without being stopped: the answer to [`Action::Sample`], or for
    /// an account that is to be right at this moment. No decision comes of it.
    Sampled(LockActivity),
    /// The time it had to be kept off is over.
    HoldOver,
    /// It has left for good.
    Exited,
}

/// What the driver must do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Run this vCPU on that slot, which is free, until [`Core::deadline`](super::Core::deadline).
    Grant(VcpuIndex, SlotId),
    /// Ask it to yield.
    Ask(VcpuIndex),
    /// Sample what this running vCPU does with locks, and hand that in as [`Event::Sampled`] at the
    /// same time and before any other event.
    Sample(VcpuIndex),
    /// Have every vCPU report these [`Point`]s (a mask) from now on.
    Points(u32),
}
