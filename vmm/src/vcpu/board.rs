//! What the vCPU threads of one machine share.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU32, Ordering::Relaxed, Ordering::SeqCst},
};

use hypercalls::latch::{Kick, Park, WakeLatch};
use vmm_sys_util::eventfd::EventFd;

use super::{End, Gate};
use crate::{
    clock::Moment,
    kvm::{KvmVm, futex},
    machine::{
        Devices,
        counters::{Counts, VcpuCounters},
    },
    units::{VcpuCount, VcpuId},
};

/// A latch in cache lines of its own (two: the adjacent-line prefetcher works
/// on pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
struct OwnLine(WakeLatch);

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
    pub gate: Option<Arc<dyn Gate>>,
    latches: Box<[OwnLine]>,
    counters: Box<[VcpuCounters]>,
    stopping: AtomicBool,
    running: AtomicU32,
    end: Mutex<Option<(End, Moment)>>,
    ended: EventFd,
    at_counters_read: Mutex<Option<Box<[Counts]>>>,
}

impl Board {
    /// A board for `vcpus` threads; `ended` is written at the machine's end.
    pub fn new(
        vm: KvmVm,
        devices: Devices,
        vcpus: VcpuCount,
        ended: EventFd,
        gate: Option<Arc<dyn Gate>>,
        preempt_count: Option<u64>,
    ) -> Self {
        Self {
            vm,
            devices,
            gate,
            preempt_count,
            latches: vcpus.ids().map(|_| OwnLine::default()).collect(),
            counters: vcpus.ids().map(|_| VcpuCounters::default()).collect(),
            stopping: AtomicBool::new(false),
            running: AtomicU32::new(vcpus.get()),
            end: Mutex::new(None),
            ended,
            at_counters_read: Mutex::new(None),
        }
    }

    /// This vCPU's counters.
    pub fn counters(&self, id: VcpuId) -> &VcpuCounters {
        &self.counters[id.0 as usize]
    }

    /// Every vCPU's counts now.
    pub fn counts(&self) -> Box<[Counts]> {
        self.counters.iter().map(VcpuCounters::read).collect()
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
    pub fn lock_spinning(&self, id: VcpuId) {
        self.halt(id, None);
    }

    /// `unlock_kick(target)` by vCPU `id`.
    pub fn unlock_kick(&self, id: VcpuId, target: VcpuId) {
        if self.kick(id, target) {
            self.wake(target, id);
        }
    }

    /// Both in one exit, in that order: `target`, if it is woken, may go on where `id` halts.
    pub fn kick_and_halt(&self, id: VcpuId, target: VcpuId) {
        let wake = self.kick(id, target).then_some(target);
        self.halt(id, wake);
    }

    /// Halts `id`, unless a kick is pending, and wakes `wake`.
    fn halt(&self, id: VcpuId, wake: Option<VcpuId>) {
        let counters = self.counters(id);
        counters.lock_spinning.bump();
        let latch = &self.latches[id.0 as usize].0;
        if latch.park() == Park::Consumed {
            if let Some(target) = wake {
                self.wake(target, id);
            }
            return;
        }
        counters.parked.bump();
        match (&self.gate, wake) {
            (Some(gate), Some(target)) => gate.hand_over(target, id),
            (Some(gate), None) => gate.halt(id),
            (None, wake) => {
                if let Some(target) = wake {
                    self.wake(target, id);
                }
                while latch.is_parked() && !self.stopping() {
                    futex::wait(latch.word(), hypercalls::latch::PARKED);
                }
            }
        }
        latch.unpark();
    }

    /// Leaves `target` a kick. True: it is parked, and the caller must see that it wakes.
    fn kick(&self, id: VcpuId, target: VcpuId) -> bool {
        let counters = self.counters(id);
        counters.unlock_kick.bump();
        let Some(OwnLine(latch)) = self.latches.get(target.0 as usize) else {
            counters.unknown_target.bump();
            return false;
        };
        match latch.kick() {
            Kick::Wake => {
                counters.woke_parked.bump();
                return true;
            }
            Kick::LeftPending => counters.left_pending.bump(),
            Kick::Coalesced => counters.coalesced.bump(),
        }
        // Not parked here: it runs, or it waits in HLT with interrupts on.
        self.kick_halted(counters, target);
        false
    }

    /// `target` has been parked until now.
    fn wake(&self, target: VcpuId, id: VcpuId) {
        match &self.gate {
            Some(gate) => gate.kick(target, id),
            None => futex::wake_one(self.latches[target.0 as usize].0.word()),
        }
    }

    /// The doorbell of `target`, where no ioeventfd has taken the write from `id`.
    pub fn doorbell(&self, id: VcpuId, target: VcpuId) {
        let counters = self.counters(id);
        counters.unlock_kick.bump();
        match self.latches.get(target.0 as usize) {
            Some(_) => self.kick_halted(counters, target),
            None => counters.unknown_target.bump(),
        }
    }

    fn kick_halted(&self, counters: &VcpuCounters, target: VcpuId) {
        if self.vm.kick_halted(target) {
            counters.kick_msi.bump();
            if let Some(gate) = &self.gate {
                gate.kick_halted(target);
            }
        }
    }

    /// Shall the threads leave?
    pub fn stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    /// Makes the threads leave: those in user space by themselves, parked ones
    /// by this wake, those in the guest by the caller's signal.
    pub fn stop(&self) {
        self.stopping.store(true, SeqCst);
        for OwnLine(latch) in &self.latches {
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

    /// Reports the machine's end; the first one counts.
    pub fn finish(&self, end: End) {
        let mut slot = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.is_none() {
            *slot = Some((end, Moment::now()));
        }
        // A full eventfd counter means that the signal is already up.
        let _ = self.ended.write(1);
    }

    /// One vCPU is done; the machine ends with the last one.
    pub fn vcpu_done(&self, status: u32) {
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
