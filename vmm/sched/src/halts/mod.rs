//! Halts and kicks of a VM's vCPUs: the protocol between a halting vCPU, its kickers and the end of
//! the VM.
//!
//! [`Halts`] settles each race in one atomic step of the target's latch
//! ([`WakeLatch`](hypercalls::latch::WakeLatch)) and then puts a thread to sleep or wakes it, through
//! a [`Host`]: futexes, KVM and a scheduler in the VMM, condition variables in the tests.
//! [`DelayedKicks`] carries kicks that are delayed by an injected fault.
//!
//! Guarantees:
//!
//! * No kick is lost, whether it arrives before, during or after the halt, from another vCPU or from
//!   the VMM, at once, late or together with the kicker's own halt.
//! * A kick ends at most one halt. Several kicks before a halt count as one.
//! * After [`Halts::stop`] no thread sleeps: halts in progress end, and each vCPU's next halt does
//!   not wait.
//!
//! `guest-kernel-config/locks/model` checks these guarantees under loom and shuttle with these
//! sources. It replaces the atomics, so this module uses only those in `core::sync::atomic`, and it
//! reduces the capacity of the queues of delayed kicks to 2.

mod delayed;
mod protocol;
#[cfg(test)]
mod tests;

pub use delayed::{DelayedKick, DelayedKicks, KickPath, PendingKicks};
pub use protocol::{Halts, Kicked, Parked, Wakeup};

use core::sync::atomic::AtomicU32;

use base::units::VcpuId;

/// Environment of the protocol: futexes, MSIs, and the scheduler if there is one.
pub trait Host {
    /// Type of its scheduler.
    type Scheduler: HaltScheduler + ?Sized;

    /// Returns the scheduler of the vCPU threads. If `None`, they sleep on their latches.
    fn scheduler(&self) -> Option<&Self::Scheduler>;

    /// Sleeps while `word` equals `expected`, compared atomically with going to sleep. May return
    /// without a wakeup.
    fn wait(&self, word: &AtomicU32, expected: u32);

    /// Wakes the thread that sleeps on `word`, if any.
    fn wake(&self, word: &AtomicU32);

    /// Sends `target` the MSI that ends a HLT in KVM. Returns false if HLT of this VM does not halt
    /// in KVM.
    fn send_kick_msi(&self, target: VcpuId) -> bool;
}

/// Calls from the protocol to a scheduler.
///
/// Halts and kicks are settled in the vCPUs' latches first. [`HaltScheduler::halt`] and
/// [`HaltScheduler::hand_over`] are called by the vCPU's own thread with its latch parked.
/// [`HaltScheduler::wake`] or [`HaltScheduler::hand_over`] is called once for each kick that found a
/// latch parked. The two threads race from then on, so the call for the kick may precede the call for
/// the halt.
///
/// Requirements for the scheduler:
///
/// * [`HaltScheduler::halt`] and [`HaltScheduler::hand_over`] return once the vCPU has been woken and
///   may enter its guest. They may also return without a wakeup: the guest's contract allows spurious
///   wakeups.
/// * No wakeup is lost, whether it arrives before or after the halt it belongs to.
/// * Calls with a vCPU as `by` come from that vCPU's thread, which may have to make way for the
///   target and then blocks. Calls without one come from any thread and do not block.
/// * After [`HaltScheduler::stop`] no call blocks.
pub trait HaltScheduler {
    /// Halts `id`.
    fn halt(&self, id: VcpuId);

    /// Halts `id` and wakes `target`, which may resume on its slot: [`HaltScheduler::wake`] and
    /// [`HaltScheduler::halt`] in one step.
    fn hand_over(&self, target: VcpuId, id: VcpuId);

    /// Ends the halt of `target`, which was kicked by vCPU `by` or, if `None`, by the VMM itself.
    fn wake(&self, target: VcpuId, by: Option<VcpuId>);

    /// Notifies the scheduler of a kick to `target` while it was not parked: it was running, or in a
    /// KVM HLT that the kick's MSI has ended.
    fn kicked_unparked(&self, target: VcpuId, by: Option<VcpuId>);

    /// Stops the VM. No thread waits after that.
    fn stop(&self);
}
