//! Code shared by the locks whose waiters halt.

use crate::wait::LockKey;
use crate::{Cpu, Place, Pv, Watch};

/// The cost of waiting for a lock.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// Calls of [`Pv::lock_spinning`].
    pub(crate) halts: u32,
    /// An interrupt handler's halts may have consumed the kick of the wait that it interrupted,
    /// so the handler kicks its own CPU. Once only, and after it has its lock: earlier, its own
    /// next halt would consume that kick again and never halt.
    were_nested: bool,
}

impl Waits {
    /// A wait has ended.
    pub(crate) fn end(&mut self, was_nested: bool, halted: bool) {
        self.were_nested |= was_nested;
        self.halts += u32::from(halted);
    }

    /// The CPU has its lock: replaces the interrupted wait's kick if need be.
    #[inline]
    pub(crate) fn give_back<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) {
        if P::ENABLED && self.were_nested {
            cpu.pv.unlock_kick(cpu.id);
        }
    }

    /// Publishes that this CPU waits for `want` of `lock`, and halts once unless `is_over`. If the
    /// wait is not over, `is_over` must announce it to the CPU that will kick. `false`: it was
    /// over.
    ///
    /// The record is published before `is_over` makes anyone look for it, and stays until the halt
    /// has ended. `true` only means that it is time to look again.
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
            cpu.watch.reached(Place::FlagToHalt);
            halted = cpu.waiters.commit(cpu.id);
            if halted {
                cpu.pv.lock_spinning(want);
            }
            cpu.watch.resumed(None);
        }
        self.end(cpu.waiters.withdraw(cpu.id, outer), halted);
        waits
    }
}
