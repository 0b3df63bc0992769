//! Code shared by the locks whose waiters halt.

use crate::wait::{LockKey, THROTTLED};
use crate::{Cpu, Place, Pv, Release, Watch};

/// The cost of waiting for a lock.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// Calls of [`Pv::lock_spinning`].
    pub(crate) halts: u32,
    /// Whether a wait interrupted another wait: an interrupt handler's halts may have consumed the kick of
    /// the wait that it interrupted, so the handler kicks its own CPU. It does so once, and after it has
    /// its lock: earlier, its own next halt would consume that kick and never block.
    were_nested: bool,
}

impl Waits {
    /// Records the end of a wait.
    pub(crate) fn record(&mut self, was_nested: bool, halted: bool) {
        self.were_nested |= was_nested;
        self.halts += u32::from(halted);
    }

    /// Replaces the kick of an interrupted wait, if need be. Called once the CPU has its lock.
    #[inline]
    pub(crate) fn restore_kick<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) {
        if P::ENABLED && self.were_nested {
            cpu.pv.unlock_kick(cpu.id);
        }
    }

    /// Publishes that this CPU waits for `want` of `lock`, then halts once, unless `is_over`. If the wait
    /// is not over, `is_over` must announce it to the CPU that will kick. Returns `false` if it was over.
    ///
    /// The record is published before `is_over` makes other CPUs look for it, and stays until the halt has
    /// ended. `true` only means that the caller must check again.
    pub(crate) fn halt_unless<P: Pv, W: Watch>(
        &mut self,
        cpu: &Cpu<'_, P, W>,
        lock: LockKey,
        want: u16,
        is_over: impl FnOnce() -> bool,
    ) -> bool {
        let outer = cpu.waiters.publish(cpu.id, lock, want);
        cpu.watch.reached(Place::BeforeFlag);
        let waits = !is_over();
        let mut halted = false;
        if waits {
            cpu.watch.halting(None);
            halted = halt_unless_claimed(cpu, want);
            cpu.watch.resumed(None);
        }
        self.record(cpu.waiters.withdraw(cpu.id, outer), halted);
        waits
    }

    /// Waits outside `lock` until the CPU is let in, unless `is_full` returns `false`; may return
    /// spuriously. If the lock is full, `is_full` must have announced the wait to the CPU that lets it in.
    pub(crate) fn wait_throttled<P: Pv, W: Watch>(
        &mut self,
        cpu: &Cpu<'_, P, W>,
        lock: LockKey,
        is_full: impl FnOnce() -> bool,
    ) {
        cpu.watch.throttled(lock.address(), false);
        let outer = cpu.waiters.publish(cpu.id, lock, THROTTLED);
        cpu.watch.reached(Place::BeforeFlag);
        let halted = is_full() && halt_unless_claimed(cpu, THROTTLED);
        self.record(cpu.waiters.withdraw(cpu.id, outer), halted);
    }
}

/// Halts, unless another CPU has cancelled the halt. Returns whether it halted.
fn halt_unless_claimed<P: Pv, W: Watch>(cpu: &Cpu<'_, P, W>, want: u16) -> bool {
    cpu.watch.reached(Place::FlagToHalt);
    let halts = cpu.waiters.commit(cpu.id);
    if halts {
        cpu.pv.lock_spinning(want);
    }
    halts
}

/// Lets in the CPU that has waited outside longest, after a release of `lock`, which may be freed memory.
#[cold]
#[inline(never)]
pub(crate) fn let_in<P: Pv, W: Watch>(cpu: &Cpu<'_, P, W>, lock: LockKey) -> Release {
    let Some((waiter, true)) = cpu.waiters.let_in(lock) else { return Release::default() };
    cpu.watch.reached(Place::ReleaseToKick);
    cpu.pv.unlock_kick(waiter);
    Release { kicks: 1 }
}

/// Completes a release of a lock without tickets, with a `kick` if a waiter awaits one.
#[inline(always)]
pub(crate) fn after_release<P: Pv, W: Watch>(
    cpu: &Cpu<'_, P, W>,
    lock: LockKey,
    is_awaited: bool,
    kick: impl FnOnce() -> Release,
) -> Release {
    if !is_awaited {
        cpu.watch.released();
        return Release::default();
    }
    // Before the search, so that the time since the release includes it.
    cpu.watch.before_kick(lock.address(), None);
    cpu.watch.released();
    let released = kick();
    cpu.watch.kicked();
    released
}
