//! The interface through which a scheduler controls when a vCPU thread may be in its guest.

use std::{fmt, io};

use hypercalls::telemetry::Point;
use sched::halts::HaltScheduler;

use base::units::VcpuId;
use sched::{event::LockActivity, steal::ReservedBits};

/// Queries about a vCPU outside its guest.
pub trait Stopped {
    /// Whether the guest was in ring 3. None if KVM does not report it.
    fn is_in_user_mode(&self) -> Option<bool>;

    /// Returns the lock activity that can be inferred for a guest without telemetry
    /// ([`observed`](super::observed)).
    fn observed_activity(&self) -> LockActivity;

    /// Whether the vCPU is in KVM's own HLT and has received no kick yet.
    fn is_in_hlt(&self) -> bool;
}

/// The scheduler of one machine's vCPUs, called by their threads. Without it, only the host's scheduler
/// decides when a thread runs.
///
/// Halts, kicks and the stop of the machine use the [`HaltScheduler`] of [`VcpuScheduler::halts`], if any;
/// its documentation describes the duties of both sides. Further duties of the vCPU threads:
///
/// * Thread `id` calls [`VcpuScheduler::enter`] once before its first entry into the guest, and
///   [`VcpuScheduler::leave`] once at its end, even if `enter` failed or was never reached. It holds no locks
///   during these calls.
/// * The kick signal is blocked in the thread outside `KVM_RUN`, so that a signal that arrives early ends the
///   next entry at once.
/// * After every return from `KVM_RUN`, the thread calls [`VcpuScheduler::after_exit`] before it handles the
///   exit. It calls [`VcpuScheduler::interrupted`] afterwards if a signal ended the run, or if KVM refused to
///   run the vCPU because its guest has not started it.
///
/// Further duties of the scheduler:
///
/// * A call by a vCPU's own thread may block. It returns when this vCPU may be in the guest, or when its
///   machine stops.
/// * [`VcpuScheduler::awaits_slot`] may be called by any thread and does not wait for a slot.
/// * Target vCPU numbers come from the guest. Numbers that do not exist are ignored.
pub trait VcpuScheduler: fmt::Debug + Send + Sync {
    /// The scheduler's part in halts and kicks. With None, threads sleep on their latches and may enter the
    /// guest as soon as they are woken.
    fn halts(&self) -> Option<&(dyn HaltScheduler + 'static)>;

    /// Reports that the thread is ready. Blocks until its first slot.
    fn enter(&self, id: VcpuId) -> io::Result<()>;

    /// Handles a possible end of the slice. A signal has ended `KVM_RUN`, or KVM has refused to run a vCPU
    /// that its guest has not started.
    fn interrupted(&self, _: VcpuId, _: &dyn Stopped) {}

    /// Called after every exit, before it is handled, because the vCPU may have run without a slot. Otherwise
    /// it costs one load.
    fn after_exit(&self, _: VcpuId) {}

    /// The vCPU yields its slot, as requested.
    fn yield_slot(&self, id: VcpuId);

    /// The vCPU has used up its spin iterations on a lock.
    fn spun_out(&self, _: VcpuId) {}

    /// The vCPU waits for a lock and yields its slot to `to`, if `to` is ready. Blocks until its next slot.
    fn yield_to(&self, id: VcpuId, to: VcpuId);

    /// The vCPU has reached a named point in the lock protocol.
    fn preempt_point(&self, _: VcpuId, _: Point) {}

    /// The thread is about to wait for an event outside the machine, such as a read of the guest's output. It
    /// does not enter the guest before [`VcpuScheduler::end_wait`]. Does not block.
    fn begin_wait(&self, _: VcpuId) {}

    /// The wait has ended. Blocks until the next slot, like [`VcpuScheduler::enter`].
    fn end_wait(&self, _: VcpuId) {}

    /// Whether the vCPU is runnable but has no CPU. False also if the scheduler does not know. May be called
    /// by any thread.
    fn awaits_slot(&self, id: VcpuId) -> bool;

    /// Whether the scheduler needs observed lock activity because the guest has published none yet. Called by
    /// the vCPU's thread.
    fn lacks_telemetry(&self, id: VcpuId) -> bool;

    /// The guest writes the steal-time MSR. Fails if the guest takes #GP.
    fn set_steal_msr(&self, _: VcpuId, _: u64) -> Result<(), ReservedBits> {
        Err(ReservedBits)
    }

    /// Returns the value of the steal-time MSR.
    fn steal_msr(&self, _: VcpuId) -> u64 {
        0
    }

    /// The thread ends.
    fn leave(&self, _: VcpuId) {}
}
