//! The interface by which a scheduler controls when a vCPU thread may be in its guest.

use std::{fmt, io};

use hypercalls::telemetry::Point;
use sched::halts::HaltScheduler;

use base::units::VcpuId;
use sched::event::LockActivity;

/// What a scheduler can ask about a vCPU outside its guest.
pub trait Stopped {
    /// Was the guest in ring 3? None: KVM does not say.
    fn is_in_user_mode(&self) -> Option<bool>;

    /// What it does with locks by what can be observed from outside, in a guest that does not say so itself
    /// ([`observed`](super::observed)).
    fn observed_activity(&self) -> LockActivity;

    /// Is the vCPU in KVM's own HLT, with no kick received yet?
    fn is_in_hlt(&self) -> bool;
}

/// The scheduler of one machine's vCPUs, as their threads call it. Without one, the host's
/// scheduler alone decides when a thread runs.
///
/// Halts, kicks and the stop of the machine go through the [`HaltScheduler`] of [`VcpuScheduler::halts`], if
/// there is one; its documentation has the duties of both sides. Further duties of the vCPU threads:
///
/// * Thread `id` calls [`VcpuScheduler::enter`] once before its first entry into the guest, and
///   [`VcpuScheduler::leave`] once at its end, even if `enter` failed or was never reached. The
///   thread holds no lock when it calls.
/// * The kick signal is blocked in the thread outside `KVM_RUN`, so that a signal that arrives
///   early ends the next entry at once.
/// * After every return from `KVM_RUN` it calls [`VcpuScheduler::came_out`] before it handles the
///   exit, and [`VcpuScheduler::interrupted`] afterwards if a signal ended the run, or if KVM refused it
///   because the guest has not started this vCPU.
///
/// Further duties of the scheduler:
///
/// * A call of a vCPU's own thread may block. It returns when this vCPU may be in the guest, or its
///   machine stops.
/// * [`VcpuScheduler::awaits_turn`] may be called by any thread and does not wait for a turn.
/// * Numbers of target vCPUs come from the guest: one that does not exist is ignored.
pub trait VcpuScheduler: fmt::Debug + Send + Sync {
    /// The scheduler's part in halts and kicks. None: threads sleep on their latches, and may enter the
    /// guest as soon as they are woken.
    fn halts(&self) -> Option<&(dyn HaltScheduler + 'static)>;

    /// The thread is ready; blocks until its first turn.
    fn enter(&self, id: VcpuId) -> io::Result<()>;

    /// A signal has ended `KVM_RUN`, or KVM has refused to run a vCPU that the guest has not started: the
    /// turn may be over.
    fn interrupted(&self, id: VcpuId, stopped: &dyn Stopped);

    /// Called after every exit, before it is handled: the vCPU may have run without a slot. One load
    /// if it has not.
    fn came_out(&self, id: VcpuId);

    /// The vCPU yields its turn, as it was asked to.
    fn yielded(&self, id: VcpuId);

    /// The vCPU has spun on a lock for the number of looks it was given.
    fn spun_out(&self, id: VcpuId);

    /// The vCPU, which waits for a lock, gives the rest of its turn to `to`, if that is ready. Blocks until its next turn.
    fn yields_to(&self, id: VcpuId, to: VcpuId);

    /// The vCPU has reached a named point of the lock protocol.
    fn point(&self, id: VcpuId, point: Point);

    /// The thread is about to wait for something outside the machine, such as the reader of its
    /// guest's output, and does not enter the guest before [`VcpuScheduler::waited`]. Does not block.
    fn waits(&self, id: VcpuId);

    /// The wait is over: as [`VcpuScheduler::enter`], blocks until its next turn.
    fn waited(&self, id: VcpuId);

    /// Is the vCPU ready to run but without a CPU? False also if the scheduler cannot tell. Called by any
    /// thread.
    fn awaits_turn(&self, id: VcpuId) -> bool;

    /// Does it have to observe what the vCPU does with locks, as the guest has not said so yet?
    /// Called by the vCPU's thread.
    fn observes(&self, id: VcpuId) -> bool;

    /// The thread leaves for good.
    fn leave(&self, id: VcpuId);
}
