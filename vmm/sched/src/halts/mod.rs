//! Halts and kicks of a machine's vCPUs: the protocol between the vCPU that halts, those that kick
//! it, and the end of the machine.
//!
//! [`Halts`] settles each race in one atomic step of the target's latch
//! ([`WakeLatch`](hypercalls::latch::WakeLatch)), and then has a thread sleep or be woken. Who does
//! that is a [`Host`]: futexes, KVM and a scheduler in the VMM, condition variables in the tests.
//! [`DelayedKicks`] carries kicks that an injected fault delays.
//!
//! The promises:
//!
//! * No kick is lost, whether it comes before, during or after the halt, from another vCPU or from
//!   the VMM, at once, late or together with the kicker's own halt.
//! * A kick ends at most one halt. Several kicks before a halt count as one.
//! * After [`Halts::stop`] no thread sleeps: halts in progress end, and later ones do not begin to
//!   wait.
//!
//! `guest-kernel-config/locks/model` checks the promises under loom and shuttle with these sources.
//! It replaces the atomics, so this module uses those of `core::sync::atomic` only, and the room for
//! late kicks, which is 2 there.

mod delayed;
mod protocol;
#[cfg(test)]
mod tests;

pub use delayed::{Courier, DelayedKick, DelayedKicks, KickPath};
pub use protocol::{Halts, Kicked, Parked, Wakeup};

use core::sync::atomic::AtomicU32;

use base::units::VcpuId;

/// What the protocol needs of its surroundings: futexes, MSIs, and the scheduler if there is one.
pub trait Host {
    /// The type of its scheduler.
    type Scheduler: HaltScheduler + ?Sized;

    /// The scheduler of the vCPU threads. With `None` they sleep on their latches.
    fn scheduler(&self) -> Option<&Self::Scheduler>;

    /// Sleeps while `word` holds `expected`, which is compared in the same step. May return without
    /// a wakeup.
    fn wait(&self, word: &AtomicU32, expected: u32);

    /// Wakes the thread that sleeps on `word`, if there is one.
    fn wake(&self, word: &AtomicU32);

    /// Sends `target` the MSI that ends a HLT in KVM. False: HLT does not halt in KVM on this
    /// machine.
    fn send_kick_msi(&self, target: VcpuId) -> bool;
}

/// The calls of the protocol to a scheduler.
///
/// Halts and kicks are settled in the vCPUs' latches first. [`HaltScheduler::halt`] and
/// [`HaltScheduler::hand_over`] are called by the vCPU's own thread with its latch parked;
/// [`HaltScheduler::wake`] and [`HaltScheduler::hand_over`] once for each parked latch from which a
/// kick was taken. The two threads race from there on, so the call for the kick may precede the one
/// for the halt.
///
/// Duties of the scheduler:
///
/// * [`HaltScheduler::halt`] and [`HaltScheduler::hand_over`] return after a wakeup at the earliest
///   and when the vCPU may be in its guest. They may also return without one: the guest's contract
///   allows spurious wakeups.
/// * No wakeup is lost, whether it comes before or after the halt it belongs to.
/// * Calls with a vCPU as `by` come from that vCPU's thread, which may have to make way for the
///   target and then blocks. Calls without one come from any thread and do not block.
/// * After [`HaltScheduler::stop`] no call blocks.
pub trait HaltScheduler {
    /// `id` halts.
    fn halt(&self, id: VcpuId);

    /// `id` halts and wakes `target`, which may resume on its slot: [`HaltScheduler::wake`] and
    /// [`HaltScheduler::halt`] in one step.
    fn hand_over(&self, target: VcpuId, id: VcpuId);

    /// A kick, by vCPU `by` or with `None` by the VMM itself, ends the halt of `target`.
    fn wake(&self, target: VcpuId, by: Option<VcpuId>);

    /// `target` was kicked while it was not parked: it runs, or it was in KVM's HLT, which the kick's
    /// MSI has ended.
    fn kicked_unparked(&self, target: VcpuId, by: Option<VcpuId>);

    /// The machine stops: no thread waits any longer.
    fn stop(&self);
}
