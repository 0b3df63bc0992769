//! What the vCPU threads of one machine share.

mod kicks;

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use hypercalls::latch::{PARKED, Park, WakeLatch};
use vmm_sys_util::eventfd::EventFd;

use super::{
    End, VcpuScheduler,
    delayed_kicks::{DelayedKicks, KickPath},
    events::{Began, Event, History, Outcome, Ring},
    fault::{Dice, HaltFate},
};
use crate::{
    clock::Moment,
    kvm::{KvmVm, futex, sys::tsc},
    machine::{
        Devices,
        counters::{Counts, FaultCounts, MachineCounts, VcpuCounters, sum},
    },
    units::{Nanos, Ticket, VcpuCount, VcpuId},
};

/// What a vCPU halts on, in cache lines of its own (two: the adjacent-line prefetcher works
/// on pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
struct HaltState {
    latch: WakeLatch,
    /// Owner: what it last parked for.
    ticket: AtomicU32,
    /// Owner: it is done.
    left: AtomicBool,
}

/// What goes wrong on purpose.
#[derive(Debug)]
struct Faults {
    dice: Box<[Dice]>,
    courier: DelayedKicks,
}

/// The longest sleep without a look whether the machine stops.
const NAP: Duration = Duration::from_millis(10);

/// The machine as its vCPU threads see it.
#[derive(Debug)]
pub struct Board {
    /// The machine in KVM.
    pub vm: KvmVm,
    /// Its devices.
    pub devices: Devices,
    /// Offset of `__preempt_count` in a Linux guest's per-CPU areas, if it is known.
    pub preempt_count: Option<u64>,
    /// The schedule, if it is not the host's alone.
    pub gate: Option<Arc<dyn VcpuScheduler>>,
    spots: Box<[HaltState]>,
    counters: Box<[VcpuCounters]>,
    faults: Option<Faults>,
    /// What each vCPU did last.
    rings: Box<[Ring]>,
    /// The same of who delivers late kicks.
    late: Ring,
    began: Began,
    is_traced: bool,
    stopping: AtomicBool,
    running: AtomicU32,
    end: Mutex<Option<(End, Moment)>>,
    ended: EventFd,
    at_counters_read: Mutex<Option<Box<[Counts]>>>,
}

impl Board {
    /// A board for `vcpus` threads; `ended` is written at the machine's end, and `dice` say what
    /// goes wrong on purpose.
    pub fn new(
        vm: KvmVm,
        devices: Devices,
        vcpus: VcpuCount,
        ended: EventFd,
        gate: Option<Arc<dyn VcpuScheduler>>,
        preempt_count: Option<u64>,
        dice: Option<Box<[Dice]>>,
    ) -> Self {
        Self {
            vm,
            devices,
            gate,
            preempt_count,
            spots: vcpus.ids().map(|_| HaltState::default()).collect(),
            counters: vcpus.ids().map(|_| VcpuCounters::default()).collect(),
            faults: dice.map(|dice| Faults { dice, courier: DelayedKicks::new(vcpus) }),
            rings: vcpus.ids().map(|_| Ring::default()).collect(),
            late: Ring::default(),
            began: Began::now(),
            is_traced: false,
            stopping: AtomicBool::new(false),
            running: AtomicU32::new(vcpus.get()),
            end: Mutex::new(None),
            ended,
            at_counters_read: Mutex::new(None),
        }
    }

    /// The same, with room for everything that its vCPUs do in a run.
    pub fn traced(mut self) -> Self {
        self.is_traced = true;
        let vcpus = self.rings.len();
        self.rings = (0..vcpus).map(|_| Ring::traced(vcpus)).collect();
        self
    }

    /// Everything that its vCPUs did, once their threads have gone, if it was to be traced.
    pub fn history(&self) -> Option<History> {
        self.is_traced.then(|| self.began.history(&self.rings, &self.late))
    }

    /// This vCPU's counters.
    pub fn counters(&self, id: VcpuId) -> &VcpuCounters {
        &self.counters[id.0 as usize]
    }

    /// Every vCPU's counts now.
    pub fn counts(&self) -> Box<[Counts]> {
        self.counters.iter().map(VcpuCounters::read).collect()
    }

    /// All that is counted of the machine, now.
    pub fn machine_counts(&self) -> MachineCounts {
        MachineCounts { vcpus: sum(&self.counts()), faults: self.fault_counts() }
    }

    /// The faults so far, if there are to be any.
    pub fn fault_counts(&self) -> Option<FaultCounts> {
        let faults = self.faults.as_ref()?;
        Some(faults.dice.iter().map(Dice::counts).fold(FaultCounts::default(), |mut all, its| {
            all += its;
            all
        }))
    }

    pub(super) fn courier(&self) -> Option<&DelayedKicks> {
        self.faults.as_ref().map(|faults| &faults.courier)
    }

    /// The last things that each vCPU did, a line each.
    pub fn trace(&self) -> String {
        let mut text = String::new();
        for (id, ring) in (0..).map(VcpuId).zip(&self.rings) {
            self.began.write(&mut text, &id, ring);
        }
        if !self.late.is_empty() {
            self.began.write(&mut text, &"late kicks", &self.late);
        }
        text
    }

    /// Does this vCPU halt with no kick pending?
    pub fn is_parked(&self, id: VcpuId) -> bool {
        self.spots[id.0 as usize].latch.is_parked()
    }

    /// Is it done?
    pub fn has_left(&self, id: VcpuId) -> bool {
        self.spots[id.0 as usize].left.load(Relaxed)
    }

    /// What it last halted for.
    pub fn ticket(&self, id: VcpuId) -> Ticket {
        Ticket(self.spots[id.0 as usize].ticket.load(Relaxed))
    }

    /// Remembers the counts of this moment, at which the guest read its own. The
    /// latest moment counts.
    pub fn note_counters_read(&self) {
        let counts = self.counts();
        *self.at_counters_read.lock().unwrap_or_else(PoisonError::into_inner) = Some(counts);
    }

    /// The counts when the guest last read its own, if it did.
    pub fn at_counters_read(&self) -> Option<Box<[Counts]>> {
        self.at_counters_read.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// `lock_spinning` of vCPU `id`: sleeps until a kick or the machine's end.
    pub fn lock_spinning(&self, id: VcpuId, ticket: Ticket) {
        self.halt(id, ticket, None);
    }

    /// `unlock_kick(target)` and then `lock_spinning` of vCPU `id`, in one exit: `target`, if it
    /// is woken, may go on where `id` halts.
    pub fn kick_and_halt(&self, id: VcpuId, target: VcpuId, ticket: Ticket) {
        if self.faults.is_some() || target.0 as usize >= self.spots.len() {
            self.unlock_kick(id, target);
            return self.halt(id, ticket, None);
        }
        self.counters(id).unlock_kick.bump();
        let at = tsc::read();
        let outcome = self.kick_latch(id, target, KickPath::Latch);
        self.rings[id.0 as usize].add_at(at, Event::Kicks(target, outcome));
        self.halt(id, ticket, (outcome == Outcome::Woke).then_some(target));
    }

    /// Halts `id`, unless a kick is pending, and wakes `wake`.
    fn halt(&self, id: VcpuId, ticket: Ticket, wake: Option<VcpuId>) {
        let (counters, ring) = (self.counters(id), &self.rings[id.0 as usize]);
        counters.lock_spinning.bump();
        if let Some(faults) = &self.faults {
            match faults.dice[id.0 as usize].halt() {
                HaltFate::Begins(late) => self.sleep(late),
                HaltFate::Spurious => return ring.add(Event::Spurious(ticket)),
            }
        }
        let spot = &self.spots[id.0 as usize];
        spot.ticket.store(ticket.0, Relaxed);
        if spot.latch.park() == Park::Consumed {
            if let Some(target) = wake {
                self.wake(target, id);
            }
            return ring.add(Event::FoundKick(ticket));
        }
        counters.parked.bump();
        ring.add(Event::Parks(ticket));
        match (&self.gate, wake) {
            (Some(gate), Some(target)) => gate.hand_over(target, id),
            (Some(gate), None) => gate.halt(id),
            (None, wake) => {
                if let Some(target) = wake {
                    self.wake(target, id);
                }
                while spot.latch.is_parked() && !self.stopping() {
                    futex::wait(spot.latch.word(), PARKED);
                }
            }
        }
        spot.latch.unpark();
        ring.add(Event::GoesOn);
    }

    /// So long, or until the machine stops.
    fn sleep(&self, span: Nanos) {
        let mut left = Duration::from_nanos(span.0);
        while !left.is_zero() && !self.stopping() {
            let nap = left.min(NAP);
            thread::sleep(nap);
            left -= nap;
        }
    }

    /// Shall the threads leave?
    pub fn stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    /// Makes the threads leave: those in user space by themselves, those that wait for a reader of
    /// the output and parked ones by this wake, those in the guest by the caller's signal.
    pub fn stop(&self) {
        self.stopping.store(true, SeqCst);
        if let Some(closing) = &self.devices.closing {
            closing.close();
        }
        for HaltState { latch, .. } in &self.spots {
            latch.kick();
            futex::wake_one(latch.word());
        }
        if let Some(gate) = &self.gate {
            gate.stop();
        }
    }

    /// Has the end come?
    pub fn has_ended(&self) -> bool {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Was it a failure?
    pub fn has_failed(&self) -> bool {
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(*end, Some((End::Failed(_), _)))
    }

    /// Reports the machine's end; the first one counts.
    pub fn finish(&self, end: End) {
        let mut slot = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.is_none() {
            *slot = Some((end, Moment::now()));
        }
        // A full eventfd counter means that the signal is already up.
        let _ = self.ended.write(1);
    }

    /// vCPU `id` is done; the machine ends with the last one.
    pub fn vcpu_done(&self, id: VcpuId, status: u32) {
        self.spots[id.0 as usize].left.store(true, Relaxed);
        self.rings[id.0 as usize].add(Event::Done(status));
        let left = self.running.fetch_sub(1, SeqCst) - 1;
        if status != 0 || left == 0 {
            self.finish(End::Done(status));
        }
    }

    /// The end and its time, once.
    pub fn take_end(&self) -> Option<(End, Moment)> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
