//! What the locks whose waiters halt have in common.

use crate::wait::LockKey;
use crate::{Cpu, Place, Pv, Watch};

/// What waiting for a lock has come to.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// Calls of [`Pv::lock_spinning`].
    pub(crate) halts: u32,
    /// In an interrupt handler, inside of a wait whose kick may have come to the handler's halts:
    /// it is to be given back. Once and when the handler has its lock, or its own next halt would
    /// have it again, and never halt.
    were_nested: bool,
}

impl Waits {
    /// A wait has ended.
    pub(crate) fn end(&mut self, was_nested: bool, halted: bool) {
        self.were_nested |= was_nested;
        self.halts += u32::from(halted);
    }

    /// The CPU has its lock.
    #[inline]
    pub(crate) fn give_back<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>) {
        if P::ENABLED && self.were_nested {
            cpu.pv.unlock_kick(cpu.id);
        }
    }

    /// Leaves word that this CPU waits for `want` of `lock`, and halts once unless `is_over`,
    /// which has to tell whoever is to kick, if it is not. `false`: it was over.
    ///
    /// The record is there before `is_over` tells anybody to look for it, and stays until the
    /// halt is over. `true` means nothing but that it is time to look again.
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
