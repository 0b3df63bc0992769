//! The protocol between halting and kicking threads.

use core::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Relaxed, SeqCst},
};

use base::units::{Ticket, VcpuCount, VcpuId};
use hypercalls::latch::{Kick, PARKED, Park, WakeLatch};

use super::{HaltScheduler, Host};

/// Halt state of a vCPU. Aligned to a pair of cache lines, because the adjacent-line prefetcher
/// fetches pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct HaltState {
    latch: WakeLatch,
    /// Ticket of the last halt, written by the vCPU's thread.
    ticket: AtomicU32,
}

/// The halts of a VM's vCPUs, and the kicks that end them.
///
/// Halting and kicking take two steps each. The first settles the race in the latch, the second puts a
/// thread to sleep or wakes one. Between the steps the caller can count and record, before the second
/// step may cost it its CPU.
#[derive(Debug)]
pub struct Halts<H> {
    host: H,
    states: Box<[HaltState]>,
    stopping: AtomicBool,
}

/// Result of a kick: the state of its target's latch.
#[derive(Debug)]
pub enum Kicked<'a, H> {
    /// The target was parked. Its thread must be woken.
    Parked(Wakeup<'a, H>),
    /// The target was not parked, and its next halt returns at once. It may be in HLT in KVM, where
    /// [`Halts::send_msi`] reaches it.
    LeftPending,
    /// Like [`Kicked::LeftPending`], but an earlier kick was pending, and the two count as one.
    Coalesced,
}

/// The wakeup owed to a vCPU whose latch was parked when it was kicked.
#[must_use = "the target sleeps until it is woken"]
#[derive(Debug)]
pub struct Wakeup<'a, H> {
    halts: &'a Halts<H>,
    target: VcpuId,
}

/// A halt that found no pending kick: the latch of its vCPU is parked.
#[must_use = "the latch stays parked until the halt has ended"]
#[derive(Debug)]
pub struct Parked<'a, H> {
    halts: &'a Halts<H>,
    id: VcpuId,
    /// Wakeup owed to another vCPU, which may take over the slot.
    successor: Option<Wakeup<'a, H>>,
}

impl<H: Host> Halts<H> {
    /// Creates the halts of `vcpus` vCPUs on `host`.
    pub fn new(host: H, vcpus: VcpuCount) -> Self {
        let states = vcpus.ids().map(|_| HaltState::default()).collect();
        Self { host, states, stopping: AtomicBool::new(false) }
    }

    /// Returns the host.
    pub const fn host(&self) -> &H {
        &self.host
    }

    fn state(&self, id: VcpuId) -> &HaltState {
        &self.states[id.0 as usize]
    }

    /// Whether vCPU `id` exists. The other functions panic if it does not.
    pub fn has(&self, id: VcpuId) -> bool {
        (id.0 as usize) < self.states.len()
    }

    /// Posts a kick to the latch of `target`. May be called by any thread.
    pub fn kick(&self, target: VcpuId) -> Kicked<'_, H> {
        match self.state(target).latch.kick() {
            Kick::Wake => Kicked::Parked(Wakeup { halts: self, target }),
            Kick::LeftPending => Kicked::LeftPending,
            Kick::Coalesced => Kicked::Coalesced,
        }
    }

    /// Ends a HLT of `target`, which is not parked, in KVM by an MSI. Returns whether the MSI was
    /// sent. `by` is the calling vCPU, or `None` for another thread.
    pub fn send_msi(&self, target: VcpuId, by: Option<VcpuId>) -> bool {
        let is_sent = self.host.send_kick_msi(target);
        if let Some(scheduler) = self.host.scheduler() {
            scheduler.kicked_unparked(target, by);
        }
        is_sent
    }

    /// Parks vCPU `id`, on its own thread, to halt for `ticket` and hand over to `successor`. Returns `None`
    /// if a pending kick was consumed instead: the vCPU does not halt, and `successor` was delivered.
    pub fn park<'a>(
        &'a self,
        id: VcpuId,
        ticket: Ticket,
        successor: Option<Wakeup<'a, H>>,
    ) -> Option<Parked<'a, H>> {
        let state = self.state(id);
        state.ticket.store(ticket.0, Relaxed);
        if state.latch.park() == Park::Wait {
            return Some(Parked { halts: self, id, successor });
        }
        if let Some(wakeup) = successor {
            wakeup.deliver(Some(id));
        }
        None
    }

    /// Ends all halts and keeps each vCPU's next halt from sleeping. May be called by any thread.
    pub fn stop(&self) {
        // Set before the kicks, so that a thread woken by a kick sees it.
        self.stopping.store(true, SeqCst);
        for state in &self.states {
            state.latch.kick();
            self.host.wake(state.latch.word());
        }
        if let Some(scheduler) = self.host.scheduler() {
            scheduler.stop();
        }
    }

    /// Whether [`Halts::stop`] has been called. A vCPU's thread checks it after each halt.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    /// Whether this vCPU is halted, with no kick pending.
    pub fn is_parked(&self, id: VcpuId) -> bool {
        self.state(id).latch.is_parked()
    }

    /// Returns the ticket of the last halt of `id`.
    pub fn ticket(&self, id: VcpuId) -> Ticket {
        Ticket(self.state(id).ticket.load(Relaxed))
    }
}

impl<H: Host> Wakeup<'_, H> {
    /// Wakes the target. `by` is the calling vCPU, or `None` for another thread.
    pub fn deliver(self, by: Option<VcpuId>) {
        let Self { halts, target } = self;
        match halts.host.scheduler() {
            Some(scheduler) => scheduler.wake(target, by),
            None => halts.host.wake(halts.state(target).latch.word()),
        }
    }
}

impl<H: Host> Parked<'_, H> {
    /// Sleeps until a kick or the end of the VM. May return earlier if a scheduler does.
    pub fn sleep(self) {
        let Self { halts, id, successor } = self;
        let latch = &halts.state(id).latch;
        match (halts.host.scheduler(), successor) {
            (Some(scheduler), Some(wakeup)) => scheduler.hand_over(wakeup.target, id),
            (Some(scheduler), None) => scheduler.halt(id),
            (None, successor) => {
                if let Some(wakeup) = successor {
                    wakeup.deliver(Some(id));
                }
                while latch.is_parked() {
                    halts.host.wait(latch.word(), PARKED);
                }
            }
        }
        latch.unpark();
    }
}
