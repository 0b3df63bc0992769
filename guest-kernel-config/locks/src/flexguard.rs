//! A lock that spins or blocks depending on preempted holders and waiters.

use crate::acquire::Ticketless;
use crate::halt::{self, Waits};
use crate::held::Held;
use crate::node::NodeId;
use crate::queue::Queue;
use crate::wait::LockKey;
use crate::watch::Spins;
use crate::{Bypass, Cpu, Pv, Release, Watch, settle};

/// Waiters halt while any CPU that holds a lock, or is next in line for one, is preempted, and spin
/// otherwise: after V. Laforet and others, "FlexGuard: Fast Mutual Exclusion Independent of
/// Subscription" (SOSP 2025).
///
/// - An arriving CPU takes a free word, whether or not others wait.
/// - While no such CPU is preempted ([`Pv::is_critical_off`]), a CPU that cannot take the word queues at
///   its own node, and the head of the queue polls the word.
/// - Once such a CPU is preempted, all waiters leave the queue, and halt if the word is held. A release lets in
///   the CPU that has halted longest, if any, which then competes like a newcomer.
///
/// A waiter behind the head leaves its node in the queue, to be passed over. Until then it queues no more. So a
/// preempted holder or next waiter costs the waiters no more than their halts. A CPU that becomes next in line while
/// it is preempted delays the waiters behind it in the queue, but no newcomers, until another such CPU is preempted.
/// Bypasses are unbounded, by design. Supports as many CPUs as [`QueuedLock`](crate::QueuedLock).
///
/// Without PV no CPU halts, and waiters spin.
#[derive(Debug, Default)]
#[repr(C, align(4))]
pub struct FlexGuardLock {
    held: Held,
    queue: Queue,
}

impl FlexGuardLock {
    /// Creates a free lock.
    pub const fn new() -> Self {
        Self { held: Held::new(), queue: Queue::new() }
    }

    fn key(&self) -> LockKey {
        LockKey::new(self)
    }

    /// Whether waiters have to halt.
    fn must_halt<P: Pv, W: Watch>(cpu: &Cpu<'_, P, W>) -> bool {
        P::ENABLED && cpu.pv.is_critical_off()
    }

    /// Polls the word. Returns `true` once it is taken, `false` once the waiter has to halt.
    fn take_or_block<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, spins: &mut Spins) -> bool {
        loop {
            spins.count(&cpu.watch, None);
            if self.held.take() {
                return true;
            }
            if Self::must_halt(cpu) {
                return false;
            }
            spins.spin(cpu.pv, u32::MAX);
        }
    }

    /// Queues, and polls the word as the head. Returns whether the caller has taken the word; otherwise it must halt.
    fn queue_or_block<P: Pv, W: Watch>(
        &self,
        cpu: &Cpu<'_, P, W>,
        me: NodeId,
        spins: &mut Spins,
    ) -> bool {
        let nodes = &cpu.waiters.nodes;
        self.queue.join(nodes, me);
        cpu.watch.queued(self.key().address(), Some(nodes.position(me)));
        spins.until(cpu, None, || nodes.is_head(me) || Self::must_halt(cpu));
        if !nodes.is_head(me) && nodes.abandon(me) {
            nodes.free(me);
            return false;
        }
        let is_taken = self.take_or_block(cpu, spins);
        self.queue.pass_head_over(nodes, me, || cpu.pv.spin_hint());
        is_taken
    }
}

impl Ticketless for FlexGuardLock {
    const FIFO: bool = false;
    const BYPASS: Bypass = Bypass::Unbounded;

    #[inline]
    fn take<P: Pv, W: Watch>(&self, _: &Cpu<'_, P, W>) -> bool {
        self.held.take()
    }

    #[cold]
    #[inline(never)]
    fn wait<P: Pv, W: Watch>(&self, cpu: &Cpu<'_, P, W>, waits: &mut Waits) {
        settle(cpu);
        let nodes = &cpu.waiters.nodes;
        let mut spins = Spins::new(&cpu.watch);
        let mut has_halted = false;
        loop {
            let node = if Self::must_halt(cpu) { None } else { nodes.alloc(cpu.id) };
            let is_taken = match node {
                Some(me) => self.queue_or_block(cpu, me, &mut spins),
                None => {
                    cpu.watch.queued(self.key().address(), None);
                    self.take_or_block(cpu, &mut spins)
                }
            };
            if is_taken {
                break;
            }
            // A full barrier after the record: the release sees the flag, and then the record.
            waits.wait_throttled(cpu, self.key(), || self.held.request_kick());
            has_halted = true;
        }
        if has_halted {
            // The release that let this CPU in has used up the flag, and others may be halted.
            self.held.request_own_kick();
        }
    }

    #[inline]
    fn release<P: Pv, W: Watch>(&self, _: &Cpu<'_, P, W>) -> bool {
        if !P::ENABLED {
            self.held.release_plain();
            return false;
        }
        self.held.release_clearing()
    }

    fn kick<P: Pv, W: Watch>(cpu: &Cpu<'_, P, W>, lock: LockKey) -> Release {
        halt::let_in(cpu, lock)
    }

    crate::queue::waiters_of_queue!(held);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_stage::{Stage, Step};

    /// CPU 0 is preempted after 3000 pauses of a waiter. It runs again when the waiter halts, and
    /// releases.
    fn stage() -> Stage<FlexGuardLock> {
        Stage::new(FlexGuardLock::new(), |stage, step| {
            stage.is_critical_off.set(step == Step::Pause && stage.pauses.get() == 3_000);
            if step == Step::Halt {
                assert_eq!(stage.unlock(0).kicks, 1);
            }
        })
    }

    #[test]
    fn a_waiter_halts_once_a_holder_is_preempted() {
        let stage = stage();
        assert!(!stage.lock(0).slow);
        let taken = stage.lock(1);
        assert_eq!((taken.slow, taken.halts), (true, 1));
        assert_eq!((stage.pauses.get(), stage.kicks.get()), (3_000, [0, 1, 0, 0]));
        assert!(!stage.is_contended());
        assert_eq!(stage.unlock(1).kicks, 0, "no other waits");
    }

    #[test]
    fn a_newcomer_halts_at_once_while_a_holder_is_preempted() {
        let stage = stage();
        stage.is_critical_off.set(true);
        assert!(!stage.lock(0).slow, "a free lock is taken all the same");
        assert_eq!(stage.lock(1).halts, 1);
        assert_eq!(stage.pauses.get(), 0);
    }
}
