//! Policies: which vCPU gets a free slot, for how long, and what happens to one that leaves the
//! guest.
//!
//! A new policy is one file that implements [`Policy`], its line below, and its entry in
//! [`POLICIES`].

mod args;
mod debt;
mod deferred;
mod directed_yield;
mod extend;
mod fair;
mod gang;
mod host;
mod in_kernel;
mod inject;
mod kick_boost;
mod point;
mod queue;
mod random;
mod replay;
mod rr;
mod spec;
#[cfg(test)]
mod spec_tests;

use std::fmt::Debug;

use hypercalls::telemetry::Point;

use super::event::{LockActivity, Observation, VcpuIndex};
use crate::{extensions::Extensions, log::TurnEnd, recording::Recording};
use base::units::{Nanos, SlotId};

pub use super::table::View;
pub use deferred::Grace;
pub use in_kernel::{InKernel, TurnRule};
pub use inject::Hits;
pub use spec::{POLICIES, PolicySpec};

/// The default slice, close to that of Linux's own scheduler.
pub const DEFAULT_SLICE: Nanos = Nanos::millis(4);

/// The shortest slice of vCPUs that are not simulated. To enter and to leave a guest takes 20 us with a software KVM:
/// with turns of 20 us no vCPU got anywhere, with 30 us some hundred instructions at a time (measured).
pub const SHORTEST_SLICE: Nanos = Nanos::micros(50);

/// What a policy is constructed from.
#[derive(Debug, Clone)]
pub struct Setup<'a> {
    /// The VM of each vCPU, by [`VcpuIndex`].
    pub vms: &'a [u32],
    /// Number of slots.
    pub slots: usize,
    /// The slice: how long a turn lasts.
    pub slice: Nanos,
    /// Seed of everything random.
    pub seed: u64,
    /// The recording to replay, for `replay`.
    pub recording: Option<&'a Recording>,
}

/// Why a vCPU is waiting for a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    /// The vCPU's thread has started.
    Started,
    /// The vCPU was preempted.
    Preempted,
    /// The vCPU yielded its slot.
    Yielded,
    /// A kick ended its halt, in the VMM or in KVM; the kicker, if known.
    Kicked(Option<VcpuIndex>),
    /// The vCPU left KVM's HLT without a kick, or [`Policy::wakes`] woke it.
    Woken,
    /// The time for which it was held off has passed.
    Released,
}

/// Which vCPU gets a slot, and until when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pick {
    /// The vCPU; it must be ready.
    pub vcpu: VcpuIndex,
    /// End of the turn.
    pub until: Nanos,
    /// Ask it to yield from the start of its turn.
    pub asked: bool,
}

impl Pick {
    /// A turn that lasts until `until`.
    pub const fn new(vcpu: VcpuIndex, until: Nanos) -> Self {
        Self { vcpu, until, asked: false }
    }
}

/// What happens to a vCPU that is outside the guest and still has its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The vCPU continues until this time.
    Stay(Nanos),
    /// The vCPU continues and is asked to yield; its turn ends at this time at the latest.
    Ask(Nanos),
    /// The vCPU loses its slot and becomes ready.
    Preempt(Why),
    /// The vCPU loses its slot and is held off until this time.
    Hold(Nanos),
}

/// Why a vCPU is preempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The slice is over.
    Slice,
    /// The slice was over before, and the grace has run out.
    Grace,
    /// The vCPU yielded its slot and neither holds nor awaits a lock.
    Yield,
    /// The vCPU spun too long.
    Spun,
    /// The experiment asked for it.
    Injected,
    /// The vCPU makes way for the one it has just kicked.
    MadeWay,
}

/// Decides who runs. Called by [`Core`](super::Core) alone, during
/// [`Core::handle`](super::Core::handle) and thus under the driver's lock.
///
/// A policy's duties:
///
/// * It is a function of its calls, its [`Setup`] and its seed: it reads no clock ([`View::now`] is
///   the time), does no I/O, and allocates nothing after its construction.
/// * It keeps the vCPUs that wait for a slot, from [`Policy::ready`] until it returns them from
///   [`Policy::pick`] or [`Policy::gone`] removes them. It must not lose one: the core does not
///   offer a waiting vCPU a second time.
/// * It picks only ready vCPUs. Any other pick fails an assertion in debug builds and leaves the
///   slot idle in release builds. [`Policy::wakes`] may name only halted or idle vCPUs, and must
///   return `None` at some point of every step.
/// * Every deadline it returns should be later than [`View::now`], or the vCPU is stopped again at
///   once and makes no progress.
/// * Unless [`Policy::is_work_conserving`] is false, it leaves no slot idle while a vCPU is ready.
///
/// What it can rely on:
///
/// * For one vCPU, [`Policy::ready`] and [`Policy::pick`] alternate; [`Policy::turn_over`] follows
///   each pick that the core granted, whatever ended the turn.
/// * [`Policy::stopped`], [`Policy::yielded`], [`Policy::spun_out`], [`Policy::yields_to`], [`Policy::point`] and
///   [`Policy::makes_way`] are asked about a vCPU that has its slot and is outside the guest. The
///   observation is exact then, as far as the guest's telemetry goes; it is `Unknown` without.
/// * A preemption that a verdict asks for is followed by [`Policy::turn_over`] and, unless it is a
///   [`Verdict::Hold`], by [`Policy::ready`], both within the step.
/// * In each step, after the event: [`Policy::wakes`] until it returns `None`, then
///   [`Policy::pick`] once for each free slot, beginning with the one freed last, then
///   [`Policy::recalls`] until it returns `None`, then [`Policy::points`].
pub trait Policy: Debug + Send {
    /// `vcpu` waits for a slot from now on.
    fn ready(&mut self, vcpu: VcpuIndex, cause: Ready, view: &View<'_>);

    /// A waiting vCPU has left for good. Not called for one that was not waiting.
    fn gone(&mut self, vcpu: VcpuIndex);

    /// `slot` is free: which vCPU gets it? `None` leaves it idle.
    fn pick(&mut self, slot: SlotId, view: &View<'_>) -> Option<Pick>;

    /// `vcpu` has left the guest, at its deadline or spuriously.
    fn stopped(&mut self, vcpu: VcpuIndex, look: &Observation, view: &View<'_>) -> Verdict;

    /// `vcpu` was found in KVM's HLT at that time, and may be waiting for the lock in the
    /// observation. A preemption only takes its slot. By default it is one that does nothing with
    /// locks.
    fn stopped_in_hlt(&mut self, vcpu: VcpuIndex, look: &Observation, view: &View<'_>) -> Verdict {
        self.stopped(vcpu, &Observation { activity: LockActivity::Free, ..*look }, view)
    }

    /// When the turn of a running vCPU ends, if nothing happens before that could not be told beforehand. By default its
    /// deadline.
    fn slice_end(&self, vcpu: VcpuIndex, view: &View<'_>) -> Nanos {
        view.until(vcpu)
    }

    /// The vCPU's turn has ended, for whatever reason, after `_ran`. Its slot is free, its state still
    /// that of the turn.
    fn turn_over(&mut self, _: VcpuIndex, _end: TurnEnd, _ran: Nanos, _: &View<'_>) {}

    /// The vCPU is in KVM's HLT for the lock in the observation, and another vCPU wants its slot.
    /// True: it keeps the slot, until its turn ends at the longest, so that a kick resumes it at
    /// once.
    fn keeps_slot_in_hlt(&self, _: VcpuIndex, _: &Observation, _: &View<'_>) -> bool {
        false
    }

    /// The vCPU halts, in the VMM or, for a lock, in KVM. It still has its slot, which is freed
    /// right after this call.
    fn halted(&mut self, _: VcpuIndex, _: &Observation, _: &View<'_>) {}

    /// The vCPU is running, has this lock activity, and has just kicked another one, which is ready
    /// now. `None`: it continues as before.
    fn makes_way(&mut self, _: VcpuIndex, _: &LockActivity, _: &View<'_>) -> Option<Verdict> {
        None
    }

    /// The vCPU yields because it was asked to.
    fn yielded(&mut self, _: VcpuIndex, _: &View<'_>) -> Verdict {
        Verdict::Preempt(Why::Yield)
    }

    /// The vCPU has spun for [`Policy::spin_looks`] looks. `None`: it continues as before.
    fn spun_out(&mut self, _: VcpuIndex, _: &Observation, _: &View<'_>) -> Option<Verdict> {
        None
    }

    /// The vCPU waits for a lock and wants to give the rest of its turn to `_to`, which is ready. `None`: it continues as
    /// before.
    fn yields_to(
        &mut self,
        _: VcpuIndex,
        _to: VcpuIndex,
        _: &Observation,
        _: &View<'_>,
    ) -> Option<Verdict> {
        None
    }

    /// The vCPU has reached a named point. `None`: it continues as before.
    fn point(&mut self, _: VcpuIndex, _: Point, _: &Observation, _: &View<'_>) -> Option<Verdict> {
        None
    }

    /// A halted or idle vCPU to wake without a kick. `lock_spinning` may return spuriously (its
    /// contract says so).
    fn wakes(&mut self, _: &View<'_>) -> Option<VcpuIndex> {
        None
    }

    /// A running vCPU whose turn is to end now, because another one preempts it. It is stopped at
    /// once, and [`Policy::stopped`] decides; one that does not run any more is passed over.
    fn recalls(&mut self, _: &View<'_>) -> Option<VcpuIndex> {
        None
    }

    /// The points (a mask) that guests are to report from now on.
    fn points(&self, _: Nanos) -> u32 {
        0
    }

    /// Looks at a lock after which a guest reports that it spun out; 0: never.
    fn spin_looks(&self) -> u32 {
        0
    }

    /// Does it never leave a slot idle while a vCPU waits for one?
    fn is_work_conserving(&self) -> bool {
        true
    }

    /// Does it end turns at moments at which their vCPUs are in no lock? A recording then says of which turns that holds.
    fn ends_out_of_locks(&self) -> bool {
        false
    }

    /// Hits and misses, for a policy that aims at certain preemptions.
    fn hits(&self) -> Option<Hits> {
        None
    }

    /// The extensions of slices, for a policy that grants them.
    fn extensions(&self) -> Option<&Extensions> {
        None
    }

    /// How a replay differs from its recording; `None` for all other policies.
    fn divergence(&self) -> Option<replay::Divergence> {
        None
    }
}

pub use replay::Divergence;
