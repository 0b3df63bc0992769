//! The core's input ([`Event`]), its output ([`Action`]), and what is known of a vCPU's locks.

use hypercalls::telemetry::{NAMED, Point};
use serde::{Deserialize, Serialize};

use base::units::{Nanos, SlotId};

/// A vCPU's index in a schedule: dense over all VMs of the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct VcpuIndex(pub u32);

impl VcpuIndex {
    /// As an index into what is kept for each vCPU.
    pub const fn ix(self) -> usize {
        self.0 as usize
    }
}

/// A lock, by the guest-virtual address of its word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockId(pub u64);

/// The guest's privilege level at a stop.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Not observed.
    #[default]
    Unknown,
    /// Ring 3.
    User,
    /// Ring 0.
    Kernel,
}

/// What a vCPU is doing with locks.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "doing")]
pub enum LockActivity {
    /// Not known: the guest publishes no telemetry, and nothing was observed that tells.
    #[default]
    Unknown,
    /// Neither holds nor awaits a lock.
    Free,
    /// The vCPU's kernel has disabled preemption, maybe for a lock: a guess without telemetry.
    Guarded,
    /// Draws a ticket, or takes or releases a queued lock: the vCPU may or may not have it already, and the telemetry
    /// lines of the other vCPUs do not tell. Or it waits for a lock that is not known.
    Entering,
    /// Holds one lock, or several of which the outer ones are not known.
    Holding {
        /// The innermost. None: nested deeper than telemetry names locks, or only counted.
        lock: Option<LockId>,
        /// Number of locks held.
        depth: u32,
    },
    /// Holds several locks, at least one outer one of which is known.
    HoldingSeveral {
        /// The innermost. None: nested deeper than telemetry names locks.
        lock: Option<LockId>,
        /// Number of locks held.
        depth: u32,
        /// The locks around it, outermost first, as far as telemetry names them.
        outer: [Option<LockId>; NAMED],
    },
    /// Waits in a lock's queue.
    Waiting {
        /// The lock it waits for.
        lock: LockId,
        /// The vCPU's ticket, modulo 2^16: it is served when the head reaches it. For a queued lock an
        /// odd number that stands for the place, as far as that is known; several waiters may share it.
        ticket: u16,
        /// Releases until it is served; 0: it is served and has not noticed yet. None: the lock's
        /// word could not be read.
        distance: Option<u16>,
        /// When the wait began, by the schedule's clock; zero if that is not known.
        since: Nanos,
        /// The vCPU halts instead of spinning: in KVM if it has a slot.
        halted: bool,
    },
    /// Waits outside a full queue, or has been admitted and has not drawn its ticket yet.
    Outside {
        /// The lock it waits for.
        lock: LockId,
        /// Length of the queue. None: the lock's word could not be read.
        queued: Option<u16>,
        /// When the wait began, by the schedule's clock; zero if that is not known.
        since: Nanos,
    },
    /// Has released a lock and not yet kicked the next in line, which sleeps until then.
    Kicking {
        /// The released lock.
        lock: LockId,
        /// The ticket of the next in line.
        ticket: u16,
    },
}

impl LockActivity {
    /// Would a preemption now be a lock-holder preemption (LHP)?
    pub const fn is_holder(&self) -> bool {
        matches!(self, LockActivity::Holding { .. } | LockActivity::HoldingSeveral { .. })
    }

    /// Would a preemption now be a lock-waiter preemption (LWP)? After the next release (or at
    /// once, if the lock is free) no other vCPU can be served before this one. A vCPU that is about
    /// to kick the next in line counts too, since that one sleeps until the kick; so does one that
    /// has been admitted to an empty queue, since those outside wait for it.
    pub const fn is_next(&self) -> bool {
        matches!(
            self,
            LockActivity::Waiting { distance: Some(0 | 1), .. }
                | LockActivity::Outside { queued: Some(0), .. }
                | LockActivity::Kicking { .. }
        )
    }

    /// Do others get nowhere while it has no CPU? It holds a lock, is the next in line and awake, or owes a kick. (One that
    /// halts needs its kick before it needs a CPU.)
    pub const fn is_critical(&self) -> bool {
        match self {
            LockActivity::Waiting { halted: true, .. } | LockActivity::Outside { .. } => false,
            _ => self.is_holder() || self.is_next(),
        }
    }

    /// What it does once the kick that it had announced has been delivered: no waiter depends on it any
    /// longer.
    pub const fn after_kick(self) -> Self {
        match self {
            LockActivity::Kicking { .. } => LockActivity::Free,
            other => other,
        }
    }

    /// What it does if it is in KVM's HLT: a waiter does not spin there. (Not all guests say that they halt.)
    pub const fn in_hlt(mut self) -> Self {
        if let LockActivity::Waiting { halted, .. } = &mut self {
            *halted = true;
        }
        self
    }

    /// The ticket that its lock was serving when it was seen waiting. None: its lock has no tickets.
    pub const fn head(&self) -> Option<u16> {
        match *self {
            // Tickets advance by 2: the low bit of a head is the slow-path flag. An odd one stands for a rank.
            LockActivity::Waiting { ticket, distance: Some(distance), .. } if ticket % 2 == 0 => {
                Some(ticket.wrapping_sub(distance.wrapping_mul(2)))
            }
            _ => None,
        }
    }

    /// Could other vCPUs come to wait for it if it were preempted now?
    pub const fn is_involved(&self) -> bool {
        !matches!(self, LockActivity::Unknown | LockActivity::Free)
    }

    /// The vCPU waits for a lock that already serves its ticket: the releaser has kicked it, or will.
    pub const fn is_served(&self) -> bool {
        matches!(self, LockActivity::Waiting { distance: Some(0), .. })
    }

    /// Could it take or release `lock` soon, if it ran?
    pub fn is_involved_with(&self, lock: LockId) -> bool {
        self.is_involved() && (self.lock().is_none() || self.concerns(lock))
    }

    /// Must a vCPU with this activity run before a vCPU of the same VM with activity `other` can be
    /// served? True if it holds the same lock, is about to kick for it, or is further ahead in its
    /// queue.
    pub fn goes_before(&self, other: &LockActivity) -> bool {
        let LockActivity::Waiting { lock, ticket: after, .. } = *other else { return false };
        self.concerns(lock)
            && match *self {
                LockActivity::Holding { .. } | LockActivity::HoldingSeveral { .. } => true,
                // Half of the ticket space is ahead, half behind.
                LockActivity::Waiting { ticket, .. } | LockActivity::Kicking { ticket, .. } => {
                    (ticket.wrapping_sub(after) as i16) < 0
                        || (matches!(self, LockActivity::Kicking { .. }) && ticket == after)
                }
                _ => false,
            }
    }

    /// As [`goes_before`](Self::goes_before), or both wait at places of a line whose order is not known: that of
    /// a lock without tickets, or the places behind the first ones of a queued lock.
    pub fn may_go_before(&self, other: &LockActivity) -> bool {
        // Of tickets each vCPU has its own.
        let place = |activity: &LockActivity| match *activity {
            LockActivity::Waiting { lock, ticket, .. } => Some((lock, ticket)),
            _ => None,
        };
        self.goes_before(other) || place(self).is_some_and(|own| place(other) == Some(own))
    }

    /// Does it hold or await `lock`? Outer locks count.
    pub fn concerns(&self, lock: LockId) -> bool {
        let is_outer = match self {
            LockActivity::HoldingSeveral { outer, .. } => outer.contains(&Some(lock)),
            _ => false,
        };
        is_outer || self.lock() == Some(lock)
    }

    /// The lock it holds or awaits, if known; of several held locks the innermost.
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

/// A vCPU that kicks another one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kicker {
    /// The vCPU that kicks, an index into the schedule's members.
    pub vcpu: VcpuIndex,
    /// What it did with locks when it left the guest for the kick.
    pub activity: LockActivity,
}

/// What was observed of a vCPU outside the guest.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize)]
pub struct Observation {
    /// Privilege level at the stop.
    pub mode: Mode,
    /// What it was doing with locks.
    #[serde(flatten)]
    pub activity: LockActivity,
}

/// Something that happened to the vCPU that [`Core::handle`](super::Core::handle) is called for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event {
    /// The vCPU's thread is ready to enter the guest for the first time.
    Started,
    /// The vCPU has left the guest: at its deadline, or spuriously.
    Stopped(Observation),
    /// As [`Event::Stopped`], but it was found in KVM's own HLT and is still in it. (Telemetry that
    /// says "halted" does not prove that: it says so from a little before the HLT to a little
    /// after.)
    StoppedInHlt(Observation),
    /// `lock_spinning` found no pending kick: it halts.
    Halted(Observation),
    /// The vCPU was kicked (`unlock_kick`), by this kicker if a vCPU did it. Ends its halt. May
    /// arrive before the [`Event::Halted`] it is meant for, which then does not halt.
    Kicked(Option<Kicker>),
    /// The vCPU was kicked while in KVM's HLT, by this kicker if a vCPU did it, and KVM has
    /// delivered the kick: a later halt is not owed one.
    KickedInHlt(Option<Kicker>),
    /// [`Event::Halted`] and a kick in one step: it halts and ends the halt of this vCPU, which may
    /// thus get its slot.
    HandedOver(VcpuIndex, Observation),
    /// The vCPU yields its slot, as it was asked to.
    Yielded,
    /// The vCPU has read a lock as often as [`Policy::spin_looks`](super::Policy::spin_looks) allows.
    SpunOut(Observation),
    /// The vCPU waits for a lock, and wants to give the rest of its turn to this one, which it knows to have no CPU.
    YieldsTo(VcpuIndex, Observation),
    /// The vCPU is at a named point of the lock protocol.
    Point(Point, Observation),
    /// The vCPU is in KVM's own HLT, either for the lock in the observation or because the guest is idle.
    Idle(Observation),
    /// The vCPU's thread is about to wait for something outside of the machine, for instance for the
    /// reader of the guest's output. It needs no CPU until [`Event::Woken`].
    Waits(Observation),
    /// The vCPU has left KVM's HLT, woken by an interrupt or by a kick that KVM delivered without
    /// the VMM, or the wait of its thread is over. If its lock serves it by now, it was kicked, by
    /// an unknown vCPU.
    Woken(Observation),
    /// The vCPU is running and was sampled without being stopped: the answer to [`Action::Sample`],
    /// or to bring the accounting up to this moment. No decision depends on it.
    Sampled(LockActivity),
    /// The time for which it was held off has passed.
    HoldOver,
    /// The vCPU's thread has left for good.
    Exited,
}

/// What the driver must do, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Run this vCPU on this slot, which is free, until [`Core::deadline`](super::Core::deadline).
    Grant(VcpuIndex, SlotId),
    /// Ask it to yield.
    Ask(VcpuIndex),
    /// The turn of this running vCPU ends now: its [`Core::deadline`](super::Core::deadline) has been
    /// moved to this moment.
    Recall(VcpuIndex),
    /// Sample what this running vCPU does with locks, and hand that in as [`Event::Sampled`] at the
    /// same time and before any other event.
    Sample(VcpuIndex),
    /// Have every vCPU report these [`Point`]s (a mask) from now on.
    Points(u32),
}
