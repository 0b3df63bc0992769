//! A vCPU thread as seen by the driver: wakeup, interruption and placement.

use std::{
    io,
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize,
            Ordering::{Acquire, Relaxed, SeqCst},
        },
    },
};

use super::delay;
use base::units::Nanos;
use kvm::{
    futex,
    signal::{SchedulingClass, ThreadId},
    sys::timer::ThreadTimer,
};

/// Value of [`VcpuThread::word`]: the thread has no slot.
const OFF: u32 = 0;
/// Value of [`VcpuThread::word`]: the thread has a slot.
const ON: u32 = 1;
/// Value of [`VcpuThread::word`]: the machine is stopping.
const STOP: u32 = 2;

/// The thread is not pinned to a CPU yet.
const UNPINNED: usize = usize::MAX;

/// Aligned to avoid false sharing between threads.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct VcpuThread {
    /// The futex on which the thread sleeps while it has no slot.
    word: AtomicU32,
    /// The thread id. Zero before the thread has started and after it has left.
    tid: AtomicI32,
    timer: OnceLock<ThreadTimer>,
    /// The time to which the timer is set, in nanoseconds.
    alarm: AtomicU64,
    /// Start and end of the slice, in nanoseconds.
    granted: AtomicU64,
    deadline: AtomicU64,
    /// Nanoseconds from the grant until the thread was awake. Zero once read.
    handover: AtomicU64,
    /// Whether the vCPU was kicked since the grant, and may have halted and resumed again.
    was_kicked: AtomicBool,
    cpu: AtomicUsize,
    /// Whether the vCPU is in KVM's HLT, or leaving it, without a slot.
    unslotted: AtomicBool,
    /// Whether the vCPU is unslotted, has woken, and was called out (signalled to leave `KVM_RUN`) to await a slot.
    is_called_out: AtomicBool,
    all_unslotted: Arc<Unslotted>,
}

/// Number of unslotted vCPUs of a schedule. If zero, a search for woken vCPUs ends at once.
#[derive(Debug, Default)]
pub(super) struct Unslotted(AtomicU32);

impl Unslotted {
    /// Whether there is any unslotted vCPU. Never false while there is one.
    pub(super) fn any(&self) -> bool {
        self.0.load(SeqCst) > 0
    }
}

impl VcpuThread {
    /// Creates a vCPU whose thread has not started. The vCPUs of a schedule share `all_unslotted`.
    pub(super) fn new(all_unslotted: Arc<Unslotted>) -> Self {
        Self {
            word: AtomicU32::new(OFF),
            tid: AtomicI32::new(0),
            timer: OnceLock::new(),
            alarm: AtomicU64::new(Nanos::NEVER.0),
            granted: AtomicU64::new(0),
            deadline: AtomicU64::new(Nanos::NEVER.0),
            handover: AtomicU64::new(0),
            was_kicked: AtomicBool::new(false),
            cpu: AtomicUsize::new(UNPINNED),
            unslotted: AtomicBool::new(false),
            is_called_out: AtomicBool::new(false),
            all_unslotted,
        }
    }

    /// Registers the calling thread. Owner only.
    pub(super) fn register(&self) -> io::Result<()> {
        let timer = ThreadTimer::new()?;
        let _ = self.timer.set(timer);
        self.tid.store(ThreadId::current().raw(), SeqCst);
        Ok(())
    }

    /// Unregisters the thread, whose id must not be used afterwards. Owner only.
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

    /// Called by the owner before it reports an event that may cost it its slot. From now on, only a grant
    /// lets it continue.
    pub(super) fn expect_grant(&self) {
        let _ = self.word.compare_exchange(ON, OFF, SeqCst, SeqCst);
    }

    /// Records the time and the deadline of a grant. Called before the grant.
    pub(super) fn set_slice(&self, granted: Nanos, deadline: Option<Nanos>) {
        self.granted.store(granted.0, Relaxed);
        self.deadline.store(deadline.unwrap_or(Nanos::NEVER).0, Relaxed);
    }

    pub(super) fn deadline(&self) -> Nanos {
        Nanos(self.deadline.load(Relaxed))
    }

    /// Records that the thread is awake and about to enter the guest. Owner only.
    pub(super) fn record_entry(&self, now: Nanos) {
        self.handover.store(now.0.saturating_sub(self.granted.load(Relaxed)), Relaxed);
    }

    /// Returns the duration of the last handover to this thread, unless already read.
    pub(super) fn take_handover(&self) -> Option<Nanos> {
        match self.handover.swap(0, Relaxed) {
            0 => None,
            nanos => Some(Nanos(nanos)),
        }
    }

    /// Records a kick that causes no grant.
    pub(super) fn record_kick(&self) {
        self.was_kicked.store(true, Relaxed);
    }

    /// Whether the vCPU has resumed at most once since its grant, judging by its kicks.
    pub(super) fn resumed_once(&self) -> bool {
        !self.was_kicked.load(Relaxed)
    }

    /// Grants the slot on `cpu`. Called under the core's lock, so that the core agrees. For a thread that is
    /// already in the guest or in KVM's HLT, restores the normal priority and sets the end of the slice.
    pub(super) fn grant(&self, cpu: usize) {
        self.was_kicked.store(false, Relaxed);
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

    /// Wakes the thread if it sleeps. Called after a grant, without the core's lock.
    pub(super) fn wake(&self) {
        if self.thread() != Some(ThreadId::current()) {
            futex::wake_one(&self.word);
        }
    }

    /// Sleeps until there is a grant or the machine stops (returns true), or until `until` has passed
    /// (returns false). Owner only.
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

    /// Notifies the thread that the machine stops, so that it never waits again, and restores its normal class. At the
    /// lowest priority (without a slot, or set from outside), it would leave KVM only on an otherwise idle CPU.
    pub(super) fn stop(&self) {
        self.word.store(STOP, SeqCst);
        self.set_class(SchedulingClass::Normal);
        futex::wake_one(&self.word);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.word.load(SeqCst) == STOP
    }

    /// Makes the vCPU leave the guest.
    pub(super) fn signal(&self) {
        if let Some(thread) = self.thread() {
            thread.kick();
        }
    }

    /// Sets the thread's timer, which sends it the signal once, to this time.
    pub(super) fn set_alarm(&self, at: Nanos) {
        if self.alarm.swap(at.0, Relaxed) != at.0
            && let Some(timer) = self.timer.get()
        {
            timer.set(at);
        }
    }

    /// The time to which the timer is set.
    pub(super) fn alarm(&self) -> Nanos {
        Nanos(self.alarm.load(Relaxed))
    }

    /// Records that the timer has expired and is not set any more.
    pub(super) fn clear_alarm(&self) {
        self.alarm.store(Nanos::NEVER.0, Relaxed);
    }

    /// Sets whether the vCPU is in the guest or in KVM's HLT without a slot. If so, it runs only on an idle CPU.
    pub(super) fn set_unslotted(&self, unslotted: bool) {
        // The thread may leave HLT at this moment, clear the flag and restore the normal class. So the
        // background class must be set before the flag.
        if unslotted {
            self.set_class(SchedulingClass::Background);
        }
        self.is_called_out.store(false, SeqCst);
        self.store_unslotted(unslotted);
        if !unslotted || self.is_stopped() {
            self.set_class(SchedulingClass::Normal);
        }
    }

    /// Marks the vCPU as about to return to KVM's HLT without a slot. Owner only, outside the guest.
    /// [`VcpuThread::enter_background`] follows after the core's lock is released.
    pub(super) fn mark_unslotted(&self) {
        self.is_called_out.store(false, SeqCst);
        self.store_unslotted(true);
    }

    fn store_unslotted(&self, unslotted: bool) {
        let count = &self.all_unslotted.0;
        if unslotted {
            count.fetch_add(1, SeqCst);
        }
        // SeqCst: on either side, ordered before the check whether the vCPU is blocked.
        let was_unslotted = self.unslotted.swap(unslotted, SeqCst);
        if was_unslotted {
            count.fetch_sub(1, SeqCst);
        }
    }

    /// Completes [`VcpuThread::mark_unslotted`]. Owner only. The vCPU may have been granted a slot since, or
    /// been called out, or its machine may be stopping.
    pub(super) fn enter_background(&self) {
        self.set_class(SchedulingClass::Background);
        if !self.is_asleep() || self.is_stopped() {
            self.set_class(SchedulingClass::Normal);
        }
    }

    /// Calls out a vCPU that has woken without a slot: restores its thread's normal priority, so that the
    /// signal reaches it regardless of other threads on its CPU. Called under the core's lock. Returns false
    /// if it has already been called out.
    pub(super) fn call_out(&self) -> bool {
        let is_new = !self.is_called_out.swap(true, SeqCst);
        if is_new {
            self.set_class(SchedulingClass::Normal);
        }
        is_new
    }

    fn set_class(&self, class: SchedulingClass) {
        if let Some(thread) = self.thread() {
            thread.set_class(class);
        }
    }

    pub(super) fn is_unslotted(&self) -> bool {
        self.unslotted.load(SeqCst)
    }

    /// Whether the vCPU is unslotted and has not been called out.
    pub(super) fn is_asleep(&self) -> bool {
        self.is_unslotted() && !self.is_called_out.load(SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unslotted_vcpu_is_counted_once() {
        let unslotted = Arc::new(Unslotted::default());
        let [first, second] = [(); 2].map(|()| VcpuThread::new(unslotted.clone()));
        first.set_unslotted(false);
        assert!(!unslotted.any());
        first.set_unslotted(true);
        first.mark_unslotted();
        second.mark_unslotted();
        second.set_unslotted(false);
        assert!(unslotted.any());
        first.set_unslotted(false);
        assert!(!unslotted.any());
    }

    /// Regression: the class was restored only for a vCPU without a slot.
    #[test]
    fn stop_restores_the_normal_class() {
        let vcpu = VcpuThread::new(Arc::default());
        vcpu.register().unwrap();
        let thread = ThreadId::current();
        thread.set_class(SchedulingClass::Background);
        assert_eq!(thread.is_background(), kvm::signal::may_leave_background());
        vcpu.stop();
        assert!(!thread.is_background() && !vcpu.is_unslotted());
        vcpu.leave();
    }

    #[test]
    fn kick_after_the_grant_may_end_another_halt() {
        let thread = VcpuThread::new(Arc::default());
        thread.record_kick();
        thread.grant(0);
        assert!(thread.resumed_once());
        thread.record_kick();
        assert!(!thread.resumed_once());
    }
}
