//! Who lets a vCPU thread into the guest, if not the host's scheduler alone.

use std::{fmt, io};

use hypercalls::telemetry::Point;

use crate::units::VcpuId;

/// A vCPU outside its guest, for who wants to know more of it.
pub trait Stopped {
    /// Was the guest in ring 3? None: KVM does not say.
    fn is_in_user_mode(&self) -> Option<bool>;

    /// A Linux guest's `__preempt_count` on this vCPU: not zero where its kernel has disabled
    /// preemption, as spinlocks do in kernels that count them (`CONFIG_PREEMPT_COUNT`), and in
    /// interrupts. None: nobody knows where it is.
    fn preempt_count(&self) -> Option<u32>;

    /// Does it sit in KVM's own HLT, with no kick come?
    fn is_in_hlt(&self) -> bool;
}

/// A schedule as the vCPU threads of one machine meet it. Each call is by the thread of vCPU `id`
/// and returns when that vCPU may be in the guest, or its machine stops.
pub trait VcpuScheduler: fmt::Debug + Send + Sync {
    /// The thread is ready: waits for the first turn.
    fn enter(&self, id: VcpuId) -> io::Result<()>;

    /// A signal has ended `KVM_RUN`: the turn may be over.
    fn interrupted(&self, id: VcpuId, stopped: &dyn Stopped);

    /// Any other exit: may the vCPU be here at all? A load of its own when it may.
    fn came_out(&self, id: VcpuId);

    /// It halts; its latch is parked. Returns after a [`VcpuScheduler::kick`].
    fn halt(&self, id: VcpuId);

    /// It halts, its latch is parked, and it has taken the kick out of `target`'s parked latch, as
    /// for [`VcpuScheduler::kick`].
    fn hand_over(&self, target: VcpuId, id: VcpuId);

    /// It gives up its turn, as it was asked to.
    fn yielded(&self, id: VcpuId);

    /// It has looked in vain for long.
    fn spun_out(&self, id: VcpuId);

    /// It is at a named place.
    fn point(&self, id: VcpuId, point: Point);

    /// It has taken the kick out of `target`'s parked latch.
    fn kick(&self, target: VcpuId, id: VcpuId);

    /// The host itself has taken a kick out of `target`'s parked latch.
    fn wake(&self, target: VcpuId);

    /// It, or the host itself, has sent `target` an MSI, which may have ended a HLT in KVM.
    fn kick_halted(&self, target: VcpuId, id: Option<VcpuId>);

    /// Does it want to run, and is kept off its CPU? By any thread.
    fn awaits_turn(&self, id: VcpuId) -> bool;

    /// The thread leaves.
    fn leave(&self, id: VcpuId);

    /// The machine stops: nobody waits any longer. By any thread.
    fn stop(&self);
}
