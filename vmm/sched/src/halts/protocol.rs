//! The protocol itself.

use core::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Relaxed, SeqCst},
};

use base::units::{Ticket, VcpuCount, VcpuId};
use hypercalls::latch::{Kick, PARKED, Park, WakeLatch};

use super::{HaltScheduler, Host};

/// What a vCPU halts on. Aligned to a pair of cache lines: the adjacent-line prefetcher works on
/// pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct HaltState {
    latch: WakeLatch,
    /// Owner: the ticket it last halted for.
    ticket: AtomicU32,
}

/// The halts of one machine's vCPUs, and the kicks that end them.
///
/// Halting and kicking take two steps each: the first settles the race in the latch, the second
/// lets a thread sleep or wakes one. The caller can count and record between them, before the
/// second step may cost it its CPU.
#[derive(Debug)]
pub struct Halts<H> {
    host: H,
    states: Box<[HaltState]>,
    stopping: AtomicBool,
}

/// What a kick has found in its target's latch.
#[derive(Debug)]
pub enum Kicked<'a, H> {
    /// The target was parked. Its thread has to be woken.
    Parked(Wakeup<'a, H>),
    /// The target was not parked: its next halt returns at once. It may be in HLT in KVM, where
    /// [`Halts::send_msi`] reaches it.
    LeftPending,
    /// As [`Kicked::LeftPending`], and an earlier kick was pending, which this one joins.
    Coalesced,
}

/// The wakeup that is due to a vCPU whose latch was parked when it was kicked.
#[must_use = "the target sleeps until it is woken"]
#[derive(Debug)]
pub struct Wakeup<'a, H> {
    halts: &'a Halts<H>,
    target: VcpuId,
}

/// A halt that has found no kick: the latch of its vCPU is parked.
#[must_use = "the latch stays parked until the halt has ended"]
#[derive(Debug)]
pub struct Parked<'a, H> {
    halts: &'a Halts<H>,
    id: VcpuId,
    /// Due to another vCPU, which may take over the slot.
    handed: Option<Wakeup<'a, H>>,
}

impl<H: Host> Halts<H> {
    /// The halts of `vcpus` vCPUs on `host`.
    pub fn new(host: H, vcpus: VcpuCount) -> Self {
        let states = vcpus.ids().map(|_| HaltState::default()).collect();
        Self { host, states, stopping: AtomicBool::new(false) }
    }

    /// The host.
    pub const fn host(&self) -> &H {
        &self.host
    }

    fn state(&self, id: VcpuId) -> &HaltState {
        &self.states[id.0 as usize]
    }

    /// Is there such a vCPU? The other calls panic without.
    pub fn has(&self, id: VcpuId) -> bool {
        (id.0 as usize) < self.states.len()
    }

    /// Posts a kick to the latch of `target`. Called by any thread.
    pub fn kick(&self, target: VcpuId) -> Kicked<'_, H> {
        match self.state(target).latch.kick() {
            Kick::Wake => Kicked::Parked(Wakeup { halts: self, target }),
            Kick::LeftPending => Kicked::LeftPending,
            Kick::Coalesced => Kicked::Coalesced,
        }
    }

    /// After a kick of `target`, which was not parked: ends a HLT of it in KVM by an MSI, if vCPUs can
    /// halt there. True: the MSI was sent. `by` is the calling vCPU, or `None` for another thread.
    pub fn send_msi(&self, target: VcpuId, by: Option<VcpuId>) -> bool {
        let is_sent = self.host.send_kick_msi(target);
        if let Some(scheduler) = self.host.scheduler() {
            scheduler.kicked_unparked(target, by);
        }
        is_sent
    }

    /// vCPU `id`, by its own thread, halts for `ticket` and hands `handed` over. `None`: it does not
    /// halt, because a kick was pending, which is used up; `handed` has been delivered.
    pub fn park<'a>(
        &'a self,
        id: VcpuId,
        ticket: Ticket,
        handed: Option<Wakeup<'a, H>>,
    ) -> Option<Parked<'a, H>> {
        let state = self.state(id);
        state.ticket.store(ticket.0, Relaxed);
        if state.latch.park() == Park::Wait {
            return Some(Parked { halts: self, id, handed });
        }
        if let Some(wakeup) = handed {
            wakeup.deliver(Some(id));
        }
        None
    }

    /// Ends all halts, and lets no later one sleep. Called by any thread.
    pub fn stop(&self) {
        // Before the kicks: a thread that takes one finds the flag set.
        self.stopping.store(true, SeqCst);
        for state in &self.states {
            state.latch.kick();
            self.host.wake(state.latch.word());
        }
        if let Some(scheduler) = self.host.scheduler() {
            scheduler.stop();
        }
    }

    /// Has [`Halts::stop`] been called? A vCPU's thread checks it after each halt.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    /// Is this vCPU halted, with no kick pending?
    pub fn is_parked(&self, id: VcpuId) -> bool {
        self.state(id).latch.is_parked()
    }

    /// The ticket it last halted for.
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
    /// Sleeps until a kick or the machine's end. May return without either if a scheduler does.
    pub fn sleep(self) {
        let Self { halts, id, handed } = self;
        let latch = &halts.state(id).latch;
        match (halts.host.scheduler(), handed) {
            (Some(scheduler), Some(wakeup)) => scheduler.hand_over(wakeup.target, id),
            (Some(scheduler), None) => scheduler.halt(id),
            (None, handed) => {
                if let Some(wakeup) = handed {
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
