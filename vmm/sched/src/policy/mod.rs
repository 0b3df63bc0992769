//! Policies decide which vCPU gets a free slot and for how long, and what happens to a vCPU that leaves the
//! guest.
//!
//! A new policy consists of one file that implements [`Policy`], its line below, and its entry in
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
use crate::{extensions::Extensions, log::SliceEnd, recording::Recording};
use base::units::{Nanos, SlotId};

pub use super::table::View;
pub use deferred::Grace;
pub use in_kernel::{InKernel, SliceRule};
pub use inject::Hits;
pub use spec::{POLICIES, PolicySpec};

/// The default slice, close to the slice of Linux's scheduler.
pub const DEFAULT_SLICE: Nanos = Nanos::millis(4);

/// The shortest slice of vCPUs that are not simulated. Guest entry and exit take 20 us with a software KVM:
/// with slices of 20 us vCPUs made no progress, with 30 us a few hundred instructions at a time (measured).
pub const SHORTEST_SLICE: Nanos = Nanos::micros(50);

/// Parameters for the construction of a policy.
#[derive(Debug, Clone)]
pub struct Setup<'a> {
    /// The VM of each vCPU, by [`VcpuIndex`].
    pub vms: &'a [u32],
    /// Number of slots.
    pub slots: usize,
    /// The slice: how long a vCPU keeps its slot while others wait.
    pub slice: Nanos,
    /// Seed of all random choices.
    pub seed: u64,
    /// The recording to replay, for `replay`.
    pub recording: Option<&'a Recording>,
}

/// Reason why a vCPU is waiting for a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    /// The vCPU's thread has started.
    Started,
    /// The vCPU was preempted.
    Preempted,
    /// The vCPU yielded its slot.
    Yielded,
    /// A kick ended its halt, in the VMM or in KVM. Contains the kicker, if known.
    Kicked(Option<VcpuIndex>),
    /// The vCPU left KVM's HLT without a kick, its thread unblocked, or [`Policy::vcpu_to_wake`] woke it.
    Woken,
    /// The vCPU's hold has ended.
    Released,
}

/// The vCPU that gets a slot, and its deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pick {
    /// The vCPU, which must be ready.
    pub vcpu: VcpuIndex,
    /// When the vCPU is stopped, and [`Policy::stopped`] decides.
    pub deadline: Nanos,
    /// Ask the vCPU to yield from the start.
    pub ask: bool,
}

impl Pick {
    /// Returns a pick of `vcpu` until `until`.
    pub const fn new(vcpu: VcpuIndex, until: Nanos) -> Self {
        Self { vcpu, deadline: until, ask: false }
    }
}

/// Decision about a vCPU that is outside the guest and still has its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The vCPU continues until this time.
    Stay(Nanos),
    /// The vCPU is asked to yield and continues until this time at the latest.
    Ask(Nanos),
    /// The vCPU loses its slot and becomes ready.
    Preempt(Reason),
    /// The vCPU loses its slot and is held off until this time.
    Hold(Nanos),
}

/// Reason for a preemption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The slice expired or was cut short.
    Slice,
    /// The slice expired earlier, and the grace has run out.
    Grace,
    /// The vCPU yielded its slot and neither holds nor awaits a lock.
    Yield,
    /// The vCPU spun too long or yielded to another.
    Spun,
    /// The experiment requested it.
    Injected,
    /// The vCPU makes way for a vCPU it has just kicked.
    MadeWay,
}

/// Decides which vCPUs run. Called only by [`Core`](super::Core), during
/// [`Core::handle`](super::Core::handle) and thus under the driver's lock.
///
/// Requirements for a policy:
///
/// * It is a function of its calls, its [`Setup`] and its seed: it reads no clock ([`View::now`] is the
///   time), does no I/O, and allocates nothing after its construction.
/// * It keeps the vCPUs that wait for a slot, from [`Policy::ready`] until it returns them from
///   [`Policy::pick`] or [`Policy::exited`] removes them. It must not lose a vCPU: the core does not pass a
///   waiting vCPU a second time.
/// * It picks only ready vCPUs. Any other pick fails an assertion in debug builds and leaves the slot idle in
///   release builds. [`Policy::vcpu_to_wake`] may return only halted or idle vCPUs, and must return `None`
///   at some point in every step.
/// * Every deadline it returns should be later than [`View::now`]. Otherwise the vCPU is stopped again
///   immediately and makes no progress.
/// * Unless [`Policy::is_work_conserving`] is false, it leaves no slot idle while a vCPU is ready.
///
/// Guarantees for a policy:
///
/// * For each vCPU, calls of [`Policy::ready`] and [`Policy::pick`] alternate.
///   [`Policy::slice_ended`] follows each pick that the core granted, for any reason that ended it.
/// * [`Policy::stopped`], [`Policy::yielded`], [`Policy::spun_out`], [`Policy::yields_to`], [`Policy::point`]
///   and [`Policy::kicked`] are called for a vCPU that has its slot, outside the guest. The observation is
///   then as exact as the guest's telemetry. Without telemetry it is inferred from registers, or `Unknown`.
/// * A preemption requested by a verdict is followed by [`Policy::slice_ended`] and, except for
///   [`Verdict::Hold`], by [`Policy::ready`], both within the step.
/// * In each step, after the event: [`Policy::vcpu_to_wake`] until it returns `None`, then [`Policy::pick`]
///   once for each free slot, starting with the slot freed last, then [`Policy::vcpu_to_recall`] until it
///   returns `None`, then [`Policy::points`].
pub trait Policy: Debug + Send {
    /// Called when `vcpu` starts to wait for a slot.
    fn ready(&mut self, vcpu: VcpuIndex, cause: Ready, view: &View<'_>);

    /// Called when the thread of a waiting vCPU has exited. Not called for other vCPUs.
    fn exited(&mut self, vcpu: VcpuIndex);

    /// Picks the vCPU that gets `slot`, which is free. `None` leaves the slot idle.
    fn pick(&mut self, slot: SlotId, view: &View<'_>) -> Option<Pick>;

    /// Called when `vcpu` has left the guest, at its deadline or spuriously.
    fn stopped(&mut self, vcpu: VcpuIndex, obs: &Observation, view: &View<'_>) -> Verdict;

    /// Called instead of [`Policy::stopped`] when `vcpu` was found in KVM's HLT. It may be waiting for the
    /// lock in the observation. A preemption then only frees its slot. By default, the vCPU is treated as if
    /// it held and awaited no lock.
    fn stopped_in_hlt(&mut self, vcpu: VcpuIndex, obs: &Observation, view: &View<'_>) -> Verdict {
        self.stopped(vcpu, &Observation { activity: LockActivity::Free, ..*obs }, view)
    }

    /// Returns when the slice of a running vCPU will end if nothing unforeseen happens before. By default its
    /// deadline.
    fn slice_end(&self, vcpu: VcpuIndex, view: &View<'_>) -> Nanos {
        view.deadline(vcpu)
    }

    /// Called when the vCPU has left its slot after `_ran`, for any reason. The slot is free, but the vCPU's
    /// state has not changed yet.
    fn slice_ended(&mut self, _: VcpuIndex, _end: SliceEnd, _ran: Nanos, _: &View<'_>) {}

    /// Whether the vCPU, which is in KVM's HLT for the lock in the observation, keeps its slot until its
    /// deadline although another vCPU waits. A kick then resumes the vCPU at once.
    fn keeps_slot_in_hlt(&self, _: VcpuIndex, _: &Observation, _: &View<'_>) -> bool {
        false
    }

    /// Called when the vCPU halts, in the VMM or, for a lock, in KVM. It still has its slot, which is freed
    /// right after this call.
    fn halted(&mut self, _: VcpuIndex, _: &Observation, _: &View<'_>) {}

    /// Called when a running vCPU with this lock activity has just kicked another vCPU, which is now ready.
    /// `None`: it continues as before.
    fn kicked(&mut self, _: VcpuIndex, _: &LockActivity, _: &View<'_>) -> Option<Verdict> {
        None
    }

    /// Called when a vCPU yields on request.
    fn yielded(&mut self, _: VcpuIndex, _: &View<'_>) -> Verdict {
        Verdict::Preempt(Reason::Yield)
    }

    /// Called when a vCPU has spun for [`Policy::spin_limit`] iterations. `None`: it continues as before.
    fn spun_out(&mut self, _: VcpuIndex, _: &Observation, _: &View<'_>) -> Option<Verdict> {
        None
    }

    /// Called when a vCPU waits for a lock and offers the rest of its slice to `_to`, which is ready. `None`:
    /// it continues as before.
    fn yields_to(
        &mut self,
        _: VcpuIndex,
        _to: VcpuIndex,
        _: &Observation,
        _: &View<'_>,
    ) -> Option<Verdict> {
        None
    }

    /// Called when a vCPU has reached a named point. `None`: it continues as before.
    fn point(&mut self, _: VcpuIndex, _: Point, _: &Observation, _: &View<'_>) -> Option<Verdict> {
        None
    }

    /// Returns a halted or idle vCPU to wake without a kick. (The contract of `lock_spinning` allows spurious
    /// wakeups.)
    fn vcpu_to_wake(&mut self, _: &View<'_>) -> Option<VcpuIndex> {
        None
    }

    /// Returns a running vCPU that another vCPU preempts now. It is stopped immediately, and
    /// [`Policy::stopped`] decides. A vCPU that is no longer running is ignored.
    fn vcpu_to_recall(&mut self, _: &View<'_>) -> Option<VcpuIndex> {
        None
    }

    /// Returns the points (a mask) that guests report from now on.
    fn points(&self, _: Nanos) -> u32 {
        0
    }

    /// Returns the number of spin iterations after which a guest reports that it spun out; 0: never.
    fn spin_limit(&self) -> u32 {
        0
    }

    /// Whether the policy never leaves a slot idle while a vCPU waits.
    fn is_work_conserving(&self) -> bool {
        true
    }

    /// Whether the policy ends slices when their vCPUs are in no lock. A recording then marks these slices.
    fn ends_out_of_locks(&self) -> bool {
        false
    }

    /// Returns hits and misses, for a policy that aims at certain preemptions.
    fn hits(&self) -> Option<Hits> {
        None
    }

    /// Returns the extensions of slices, for a policy that grants them.
    fn extensions(&self) -> Option<&Extensions> {
        None
    }

    /// Returns how a replay differs from its recording; `None` for all other policies.
    fn divergence(&self) -> Option<replay::Divergence> {
        None
    }
}

pub use replay::Divergence;
