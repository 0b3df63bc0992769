//! One vCPU thread's place in the driver: how it is woken, interrupted, placed.

use std::{
    io,
    sync::{
        OnceLock,
        atomic::{
            AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize,
            Ordering::{Acquire, Relaxed, SeqCst},
        },
    },
};

use super::delay;
use crate::{
    kvm::{
        futex,
        signal::{Class, ThreadId},
        sys::timer::ThreadTimer,
    },
    units::Nanos,
};

/// [`VcpuThread::word`]: the thread has no slot.
const OFF: u32 = 0;
/// [`VcpuThread::word`]: it has.
const ON: u32 = 1;
/// [`VcpuThread::word`]: its machine stops.
const STOP: u32 = 2;

/// No CPU.
const NOWHERE: usize = usize::MAX;

/// In cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct VcpuThread {
    /// What the thread sleeps on while it is off.
    word: AtomicU32,
    /// Zero before the thread has come and after it has gone.
    tid: AtomicI32,
    timer: OnceLock<ThreadTimer>,
    /// What the timer is set to.
    alarm: AtomicU64,
    /// When the turn was granted, and when it ends.
    granted: AtomicU64,
    deadline: AtomicU64,
    /// From that grant until the thread was there; zero once it is in the account.
    handover: AtomicU64,
    cpu: AtomicUsize,
    /// It sits in KVM's HLT, or comes out of it, without a slot.
    unslotted: AtomicBool,
    /// It is unslotted, has woken, and is to come out: there is no slot for it yet.
    called: AtomicBool,
}

impl Default for VcpuThread {
    fn default() -> Self {
        Self {
            word: AtomicU32::new(OFF),
            tid: AtomicI32::new(0),
            timer: OnceLock::new(),
            alarm: AtomicU64::new(Nanos::NEVER.0),
            granted: AtomicU64::new(0),
            deadline: AtomicU64::new(Nanos::NEVER.0),
            handover: AtomicU64::new(0),
            cpu: AtomicUsize::new(NOWHERE),
            unslotted: AtomicBool::new(false),
            called: AtomicBool::new(false),
        }
    }
}

impl VcpuThread {
    /// Owner: the calling thread sits down.
    pub(super) fn take(&self) -> io::Result<()> {
        let timer = ThreadTimer::new()?;
        let _ = self.timer.set(timer);
        self.tid.store(ThreadId::current().raw(), SeqCst);
        Ok(())
    }

    /// Owner: it leaves. Nobody may use its number afterwards.
    pub(super) fn leave(&self) {
        self.set_alarm(Nanos::NEVER);
        self.tid.store(0, SeqCst);
    }

    fn thread(&self) -> Option<ThreadId> {
        match self.tid.load(SeqCst) {
            0 => None,
            tid => Some(ThreadId::from_raw(tid)),
        }
    }

    /// Owner, before it says anything that may cost it its slot: from now on only a grant lets
    /// it on.
    pub(super) fn expect_grant(&self) {
        let _ = self.word.compare_exchange(ON, OFF, SeqCst, SeqCst);
    }

    /// Before a grant: when it was decided, and when the turn ends.
    pub(super) fn set_turn(&self, granted: Nanos, deadline: Option<Nanos>) {
        self.granted.store(granted.0, Relaxed);
        self.deadline.store(deadline.unwrap_or(Nanos::NEVER).0, Relaxed);
    }

    pub(super) fn deadline(&self) -> Nanos {
        Nanos(self.deadline.load(Relaxed))
    }

    /// Owner: it is awake and about to enter the guest.
    pub(super) fn came_in(&self, now: Nanos) {
        self.handover.store(now.0.saturating_sub(self.granted.load(Relaxed)), Relaxed);
    }

    /// How long the last handover to it took, if nobody has asked yet.
    pub(super) fn take_handover(&self) -> Option<Nanos> {
        match self.handover.swap(0, Relaxed) {
            0 => None,
            nanos => Some(Nanos(nanos)),
        }
    }

    /// The slot on `cpu` is its own: under the core's lock, which says so too. A thread that is in
    /// the guest already, or in KVM's HLT, runs there as all others do, and until the turn's end.
    pub(super) fn grant(&self, cpu: usize) {
        if self.cpu.swap(cpu, Relaxed) != cpu
            && let Some(thread) = self.thread()
        {
            thread.pin(cpu);
        }
        if self.is_unslotted() {
            self.set_unslotted(false);
            self.set_alarm(self.deadline());
        }
        let _ = self.word.compare_exchange(OFF, ON, SeqCst, SeqCst);
    }

    /// After a grant, without the core's lock: its thread may sleep.
    pub(super) fn wake(&self) {
        if self.thread() != Some(ThreadId::current()) {
            futex::wake_one(&self.word);
        }
    }

    /// Owner: sleeps until there is a grant, the machine stops, or `until` has come; the latter
    /// gives false.
    pub(super) fn wait(&self, until: Option<Nanos>, now: impl Fn() -> Nanos) -> bool {
        while self.word.load(Acquire) == OFF {
            delay::maybe();
            match until {
                None => futex::wait(&self.word, OFF),
                Some(until) if now() >= until => return false,
                Some(until) => futex::wait_until(&self.word, OFF, until),
            }
        }
        true
    }

    /// Its machine stops: it never waits again.
    pub(super) fn stop(&self) {
        self.word.store(STOP, SeqCst);
        futex::wake_one(&self.word);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.word.load(Acquire) == STOP
    }

    /// Makes it leave the guest.
    pub(super) fn signal(&self) {
        if let Some(thread) = self.thread() {
            thread.kick();
        }
    }

    /// Signals it at this time, and at no other.
    pub(super) fn set_alarm(&self, at: Nanos) {
        if self.alarm.swap(at.0, Relaxed) != at.0
            && let Some(timer) = self.timer.get()
        {
            timer.set(at);
        }
    }

    /// What the timer is set to.
    pub(super) fn alarm(&self) -> Nanos {
        Nanos(self.alarm.load(Relaxed))
    }

    /// The timer has gone off: it is set to nothing.
    pub(super) fn alarm_is_over(&self) {
        self.alarm.store(Nanos::NEVER.0, Relaxed);
    }

    /// It is in the guest, or KVM's HLT, without a slot: it runs only where nobody else does.
    pub(super) fn set_unslotted(&self, unslotted: bool) {
        // Its thread, which may come out at this moment, makes itself usual again when it finds the
        // mark: so the class comes before that.
        if unslotted {
            self.set_class(Class::Background);
        }
        self.called.store(false, SeqCst);
        // In one order with what is asked next on either side: whether the vCPU is blocked.
        self.unslotted.store(unslotted, SeqCst);
        if !unslotted {
            self.set_class(Class::Usual);
        }
    }

    /// Owner, outside the guest: it goes back into KVM's HLT without a slot. It lies down when it
    /// has given the core's lock back.
    pub(super) fn mark_unslotted(&self) {
        self.called.store(false, SeqCst);
        self.unslotted.store(true, SeqCst);
    }

    /// Owner, after that. It may have been granted a slot since, or called out.
    pub(super) fn lie_down(&self) {
        self.set_class(Class::Background);
        if !self.is_asleep() {
            self.set_class(Class::Usual);
        }
    }

    /// It has woken, and there is no slot for it: it comes out as soon as the signal reaches it,
    /// whatever else runs on its CPU. Under the core's lock; false if that is under way.
    pub(super) fn call_out(&self) -> bool {
        let is_new = !self.called.swap(true, SeqCst);
        if is_new {
            self.set_class(Class::Usual);
        }
        is_new
    }

    fn set_class(&self, class: Class) {
        if let Some(thread) = self.thread() {
            thread.set_class(class);
        }
    }

    pub(super) fn is_unslotted(&self) -> bool {
        self.unslotted.load(SeqCst)
    }

    /// Astray, and nobody has called it out.
    pub(super) fn is_asleep(&self) -> bool {
        self.is_unslotted() && !self.called.load(SeqCst)
    }
}
