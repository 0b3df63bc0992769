//! The core's input ([`Event`]) and output ([`Action`]), and the known lock state of a vCPU.

use hypercalls::telemetry::{MAX_NAMED, Point};
use serde::{Deserialize, Serialize};

use base::units::{Nanos, SlotId};

/// Index of a vCPU in a schedule, dense over all its VMs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct VcpuIndex(pub u32);

impl VcpuIndex {
    /// Returns the index as `usize`, for tables of all vCPUs.
    pub const fn ix(self) -> usize {
        self.0 as usize
    }
}

/// A lock, identified by the guest-virtual address of its word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockId(pub u64);

/// Privilege level of the guest when it stopped.
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

/// Lock activity of a vCPU.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "doing")]
pub enum LockActivity {
    /// Unknown: the guest publishes no telemetry, and no observation shows its state.
    #[default]
    Unknown,
    /// Neither holds nor awaits a lock.
    Free,
    /// The vCPU's kernel has disabled preemption, possibly for a lock: inferred without telemetry.
    #[serde(rename = "guarded")]
    PreemptDisabled,
    /// Draws a ticket, or takes or releases a queued lock. The vCPU may or may not have the lock or ticket
    /// already; the telemetry lines of the other vCPUs do not show which. Also a waiter for an unknown lock.
    Entering,
    /// Holds one lock, or several whose outer ones are unknown.
    Holding {
        /// The innermost lock. None: nested deeper than telemetry names locks, or only counted.
        lock: Option<LockId>,
        /// Number of locks held.
        depth: u32,
    },
    /// Holds several locks, and at least one of the outer ones is known.
    HoldingSeveral {
        /// The innermost lock. None: nested deeper than telemetry names locks.
        lock: Option<LockId>,
        /// Number of locks held.
        depth: u32,
        /// The outer locks, outermost first, as far as telemetry names them.
        outer: [Option<LockId>; MAX_NAMED],
    },
    /// Waits in a lock's queue.
    Waiting {
        /// The lock it waits for.
        lock: LockId,
        /// The vCPU's ticket, modulo 2^16. It is served when the head reaches it. For a lock without tickets,
        /// an odd number for the position in the queue, or 0 if unknown; several waiters may share it.
        ticket: u16,
        /// Releases until the vCPU is served. 0: it is served and has not noticed yet. None: the lock's word
        /// could not be read.
        distance: Option<u16>,
        /// Start of the wait by the schedule's clock; zero if unknown.
        since: Nanos,
        /// The vCPU halts instead of spinning. It halts in KVM if it has a slot.
        halted: bool,
    },
    /// Throttled waiter: waits for admission to a full queue, or was admitted but has not drawn its ticket.
    #[serde(rename = "outside")]
    Throttled {
        /// The lock it waits for.
        lock: LockId,
        /// Length of the queue. None: the lock's word could not be read.
        queued: Option<u16>,
        /// Start of the wait by the schedule's clock; zero if unknown.
        since: Nanos,
    },
    /// Has released a lock but not yet kicked the next in line, which sleeps until the kick.
    Kicking {
        /// The released lock.
        lock: LockId,
        /// The ticket of the next in line.
        ticket: u16,
    },
}

impl LockActivity {
    /// Whether a preemption now would be a lock-holder preemption (LHP).
    pub const fn is_holder(&self) -> bool {
        matches!(self, LockActivity::Holding { .. } | LockActivity::HoldingSeveral { .. })
    }

    /// Whether a preemption now would be a lock-waiter preemption (LWP). After the next release (or at once,
    /// if the lock is free) no other vCPU can be served before this vCPU. A vCPU that is about to kick the
    /// next in line counts too, because the next in line sleeps until the kick. So does a vCPU that was
    /// admitted to an empty queue, because the throttled waiters wait for it.
    pub const fn is_next(&self) -> bool {
        matches!(
            self,
            LockActivity::Waiting { distance: Some(0 | 1), .. }
                | LockActivity::Throttled { queued: Some(0), .. }
                | LockActivity::Kicking { .. }
        )
    }

    /// Whether other vCPUs make no progress while this vCPU has no CPU: it holds a lock, is next in line and
    /// awake, or owes a kick. (A halted vCPU needs its kick before it needs a CPU.)
    pub const fn is_critical(&self) -> bool {
        match self {
            LockActivity::Waiting { halted: true, .. } | LockActivity::Throttled { .. } => false,
            _ => self.is_holder() || self.is_next(),
        }
    }

    /// Returns the activity after the announced kick has been delivered, when no waiter depends on the vCPU
    /// any longer.
    pub const fn after_kick(self) -> Self {
        match self {
            LockActivity::Kicking { .. } => LockActivity::Free,
            activity => activity,
        }
    }

    /// Returns the activity of a vCPU in KVM's HLT, where a waiter does not spin. (Not all guests publish
    /// that they halt.)
    pub const fn in_hlt(mut self) -> Self {
        if let LockActivity::Waiting { halted, .. } = &mut self {
            *halted = true;
        }
        self
    }

    /// Returns the ticket that the lock served when the vCPU was observed waiting. None if the vCPU does not
    /// wait, the lock has no tickets, or its word could not be read.
    pub const fn head(&self) -> Option<u16> {
        match *self {
            // Tickets advance by 2, as the low bit of a head is the slow-path flag. An odd value is a position.
            LockActivity::Waiting { ticket, distance: Some(distance), .. } if ticket % 2 == 0 => {
                Some(ticket.wrapping_sub(distance.wrapping_mul(2)))
            }
            _ => None,
        }
    }

    /// Whether other vCPUs could end up waiting for this vCPU if it were preempted now.
    pub const fn is_involved(&self) -> bool {
        !matches!(self, LockActivity::Unknown | LockActivity::Free)
    }

    /// Whether the vCPU waits for a lock that already serves its ticket: the releaser has kicked it, or will.
    pub const fn is_served(&self) -> bool {
        matches!(self, LockActivity::Waiting { distance: Some(0), .. })
    }

    /// Whether the vCPU could take or release `lock` soon if it ran.
    pub fn is_involved_with(&self, lock: LockId) -> bool {
        self.is_involved() && (self.lock().is_none() || self.concerns(lock))
    }

    /// Whether a vCPU with this activity must run before a vCPU of the same VM with activity `other` can be
    /// served. True if it holds the lock that `other` awaits, owes a kick for it, or is ahead in its queue.
    pub fn is_ahead_of(&self, other: &LockActivity) -> bool {
        let LockActivity::Waiting { lock, ticket: behind, .. } = *other else { return false };
        self.concerns(lock)
            && match *self {
                LockActivity::Holding { .. } | LockActivity::HoldingSeveral { .. } => true,
                // Half of the ticket space is ahead, half behind.
                LockActivity::Waiting { ticket, .. } | LockActivity::Kicking { ticket, .. } => {
                    (ticket.wrapping_sub(behind) as i16) < 0
                        || (matches!(self, LockActivity::Kicking { .. }) && ticket == behind)
                }
                _ => false,
            }
    }

    /// Like [`is_ahead_of`](Self::is_ahead_of), but also true if both wait at positions whose order is
    /// unknown: for a lock without tickets, or behind the first positions of a queued lock.
    pub fn may_be_ahead_of(&self, other: &LockActivity) -> bool {
        // Tickets are unique: an equal value is a position shared by several waiters.
        let place = |activity: &LockActivity| match *activity {
            LockActivity::Waiting { lock, ticket, .. } => Some((lock, ticket)),
            _ => None,
        };
        self.is_ahead_of(other) || place(self).is_some_and(|at| place(other) == Some(at))
    }

    /// Whether the vCPU holds or awaits `lock`, or owes a kick for it. Outer locks count.
    pub fn concerns(&self, lock: LockId) -> bool {
        let is_outer = match self {
            LockActivity::HoldingSeveral { outer, .. } => outer.contains(&Some(lock)),
            _ => false,
        };
        is_outer || self.lock() == Some(lock)
    }

    /// Returns the (innermost) lock that the vCPU holds, awaits or owes a kick for, if known.
    pub const fn lock(&self) -> Option<LockId> {
        match *self {
            LockActivity::Holding { lock, .. } | LockActivity::HoldingSeveral { lock, .. } => lock,
            LockActivity::Waiting { lock, .. }
            | LockActivity::Throttled { lock, .. }
            | LockActivity::Kicking { lock, .. } => Some(lock),
            _ => None,
        }
    }
}

/// A vCPU that kicks another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kicker {
    /// The kicking vCPU, an index into the schedule's members.
    pub vcpu: VcpuIndex,
    /// Its lock activity when it left the guest for the kick.
    pub activity: LockActivity,
}

/// Observed state of a vCPU outside the guest.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize)]
pub struct Observation {
    /// Privilege level at the stop.
    pub mode: Mode,
    /// Lock activity.
    #[serde(flatten)]
    pub activity: LockActivity,
}

/// An event of a vCPU, for [`Core::handle`](super::Core::handle).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event {
    /// The vCPU's thread is ready to enter the guest for the first time.
    Started,
    /// The vCPU has left the guest, at its deadline or spuriously.
    Stopped(Observation),
    /// Like [`Event::Stopped`], but the vCPU was found in KVM's own HLT and is still in it. (Telemetry does
    /// not prove that: it shows "halted" from shortly before the HLT until shortly after it.)
    StoppedInHlt(Observation),
    /// `lock_spinning` found no pending kick, and the vCPU halts.
    Halted(Observation),
    /// The vCPU was kicked (`unlock_kick`), by the VMM itself if `None`. Ends its halt. May arrive before the
    /// [`Event::Halted`] it is meant for, which then does not halt.
    Kicked(Option<Kicker>),
    /// The vCPU was kicked while in KVM's HLT, by the VMM itself if `None`, and KVM has delivered the kick:
    /// no kick remains pending for a later halt.
    KickedInHlt(Option<Kicker>),
    /// [`Event::Halted`] and a kick in one step: the vCPU halts and ends the halt of the vCPU passed, which
    /// may get the freed slot.
    HandedOver(VcpuIndex, Observation),
    /// The vCPU yields its slot on request.
    Yielded,
    /// The vCPU has spun on a lock for [`Policy::spin_limit`](super::Policy::spin_limit) iterations.
    SpunOut(Observation),
    /// The vCPU waits for a lock and offers the rest of its time slice to the vCPU passed, which it knows to
    /// have no CPU.
    YieldsTo(VcpuIndex, Observation),
    /// The vCPU is at a named point of the lock protocol.
    Point(Point, Observation),
    /// The vCPU is in KVM's own HLT, for the lock in the observation or because the guest is idle.
    Idle(Observation),
    /// The vCPU's thread is about to wait for something outside the VM, such as the reader of the guest's
    /// output. It needs no CPU until [`Event::Woken`].
    Blocks(Observation),
    /// The vCPU has left KVM's HLT, woken by an interrupt or by a kick that KVM delivered without the VMM, or
    /// its thread has finished waiting. If its lock already serves it, it was kicked by an unknown vCPU.
    Woken(Observation),
    /// The vCPU is running and was sampled without being stopped, in answer to [`Action::Sample`] or to bring
    /// the accounting up to date. No decision depends on it.
    Sampled(LockActivity),
    /// The time for which the vCPU is held off has passed.
    HoldEnded,
    /// The vCPU's thread has exited.
    Exited,
}

/// An action of the driver. Actions are carried out in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Run this vCPU on this free slot until [`Core::deadline`](super::Core::deadline).
    Grant(VcpuIndex, SlotId),
    /// Ask the vCPU to yield.
    Ask(VcpuIndex),
    /// End the time slice of this running vCPU. Its [`Core::deadline`](super::Core::deadline) is now.
    Recall(VcpuIndex),
    /// Sample the lock activity of this running vCPU, and report it as [`Event::Sampled`] at the same `now`,
    /// before any other event.
    Sample(VcpuIndex),
    /// Have every vCPU report these [`Point`]s (a mask) from now on.
    Points(u32),
}
