//! Race-free interruption of vCPU threads, thread affinity and scheduling classes.
//!
//! The signal is blocked in the thread and unblocked only inside `KVM_RUN` (`KVM_SET_SIGNAL_MASK`,
//! kvm/api.rst 4.21). A signal that arrives early stays pending and ends the next `KVM_RUN` at once, so it
//! cannot be lost.

use std::{io, mem, os::unix::thread::JoinHandleExt, ptr, sync::OnceLock, thread::JoinHandle};

use rustix::{
    process::{Pid, Resource, getrlimit},
    thread::{CapabilitySet, CapabilitySets, capabilities, gettid},
};

use super::{KvmError, affinity::CpuMask};
use base::units::{CpuList, Nanos};

/// The signal that ends `KVM_RUN`.
pub(super) fn number() -> libc::c_int {
    libc::SIGRTMIN()
}

fn kick_set() -> libc::sigset_t {
    // SAFETY: sigemptyset initialises the set, and a zeroed sigset_t is a valid value to pass.
    unsafe {
        let mut set = mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, number());
        set
    }
}

/// Blocks the kick signal in the calling thread. Returns the previous 64-bit mask without the kick signal,
/// for use in `KVM_RUN`.
pub fn block_in_this_thread() -> Result<u64, KvmError> {
    let set = kick_set();
    // SAFETY: both sets are valid and live; SIG_BLOCK changes only this thread.
    let (result, old) = unsafe {
        let mut old: libc::sigset_t = mem::zeroed();
        let result = libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut old);
        libc::sigdelset(&mut old, number());
        (result, old)
    };
    if result != 0 {
        return Err(KvmError::Signal(io::Error::from_raw_os_error(result)));
    }
    // SAFETY: on Linux/x86-64 the first 8 bytes of a sigset_t are the kernel's 64-bit signal mask (signal(7),
    // sigset_t of the kernel ABI).
    Ok(unsafe { ptr::read(ptr::from_ref(&old).cast::<u64>()) })
}

/// Blocks SIGTTIN and SIGTTOU in the calling thread and threads that it starts. A terminal uses these signals
/// to stop background jobs that read from or write to it (setpgid(2), tty_check_change in the kernel's
/// drivers/tty/tty_jobctrl.c). While they are blocked, such a read fails with EIO and such a write succeeds.
/// Child processes must inherit the mask: those in separate process groups (setup scripts, sbatch) run in the
/// background and would be stopped forever.
pub fn block_stops_by_terminal() -> io::Result<()> {
    // SAFETY: sigemptyset initialises the set, which is live through the calls; SIG_BLOCK changes only this thread.
    let result = unsafe {
        let mut set = mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGTTIN);
        libc::sigaddset(&mut set, libc::SIGTTOU);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)) }
}

/// Consumes a pending kick so that it does not also end the next `KVM_RUN`.
pub fn consume() {
    let set = kick_set();
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the set and the timeout live through the call; no siginfo wanted.
    unsafe { libc::sigtimedwait(&set, ptr::null_mut(), &now) };
}

/// Waits for a kick, as `KVM_RUN` does, for at most `timeout`. Returns whether a kick arrived. For tests of kick
/// senders.
pub fn wait_for(timeout: std::time::Duration) -> bool {
    let set = kick_set();
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs() as libc::time_t,
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // SAFETY: as for `consume`.
    unsafe { libc::sigtimedwait(&set, ptr::null_mut(), &timeout) > 0 }
}

/// Sends the kick to an unjoined thread.
pub fn kick<T>(thread: &JoinHandle<T>) {
    // SAFETY: an unjoined JoinHandle's pthread_t is valid. For a thread that has ended, the call fails with
    // ESRCH, which is harmless.
    unsafe { libc::pthread_kill(thread.as_pthread_t(), number()) };
}

/// Returns the CPU time consumed by an unjoined thread, or None if it has ended.
pub fn cpu_time<T>(thread: &JoinHandle<T>) -> Option<Nanos> {
    // SAFETY: an unjoined JoinHandle's pthread_t is valid.
    unsafe { ThreadClock::from_pthread(thread.as_pthread_t()) }?.read()
}

/// The CPU-time clock of a thread of this process. After the thread has ended, the kernel may reuse the clock
/// id for another thread.
#[derive(Debug, Clone, Copy)]
pub struct ThreadClock(libc::clockid_t);

impl ThreadClock {
    /// Returns the clock of the calling thread.
    pub fn current() -> Option<Self> {
        // SAFETY: the calling thread has not ended.
        unsafe { Self::from_pthread(libc::pthread_self()) }
    }

    /// # Safety
    /// The thread must not have been joined. For a thread that has ended, the call fails with ESRCH.
    unsafe fn from_pthread(thread: libc::pthread_t) -> Option<Self> {
        let mut clock = 0;
        // SAFETY: the caller guarantees an unjoined thread; `clock` lives through the call.
        let result = unsafe { libc::pthread_getcpuclockid(thread, &mut clock) };
        (result == 0).then_some(Self(clock))
    }

    /// Returns the CPU time consumed by the thread, or None if it has ended.
    pub fn read(self) -> Option<Nanos> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` lives through the call. The clock of an ended thread gives EINVAL.
        let result = unsafe { libc::clock_gettime(self.0, &mut time) };
        let (seconds, nanos) =
            (u64::try_from(time.tv_sec).ok()?, u64::try_from(time.tv_nsec).ok()?);
        (result == 0).then(|| Nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos)))
    }
}

/// Restricts the calling thread to these CPUs.
pub fn pin_this_thread(cpus: &CpuList) -> io::Result<()> {
    pin(None, cpus.cpus())
}

/// Restricts a thread to these CPUs. None means the calling thread.
fn pin(thread: Option<Pid>, chosen: &[usize]) -> io::Result<()> {
    CpuMask::NONE.with(chosen).apply(thread)
}

/// How a thread competes for its CPU (sched(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchedulingClass {
    /// Normal scheduling (`SCHED_OTHER`).
    Normal,
    /// Does not preempt other threads on wakeup (`SCHED_BATCH`).
    Batch,
    /// Gets little time on a busy CPU (`SCHED_IDLE`).
    Background,
}

/// `RLIMIT_NICE` that permits nice value 0 (setrlimit(2): 20 minus the nice value).
pub const NICE_0_LIMIT: u64 = 20;

/// Whether threads of this process may leave `SCHED_IDLE`. The kernel treats this as a change from nice 20 to
/// the thread's nice value, which requires `RLIMIT_NICE` or `CAP_SYS_NICE` (sched(7);
/// user_check_sched_setscheduler in kernel/sched/syscalls.c). Checked only once.
pub fn may_leave_background() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let is_in_limit = getrlimit(Resource::Nice).current.is_none_or(|now| now >= NICE_0_LIMIT);
        let has = |sets: CapabilitySets| sets.effective.contains(CapabilitySet::SYS_NICE);
        is_in_limit || capabilities(None).is_ok_and(has)
    })
}

/// The id of a thread of this process. The kernel may reuse it once the thread has ended, so it must not be
/// used after that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadId(libc::pid_t);

impl ThreadId {
    /// Returns the id of the calling thread.
    pub fn current() -> Self {
        Self(gettid().as_raw_nonzero().get())
    }

    /// Sends the kick to the thread.
    pub fn kick(self) {
        // SAFETY: no pointers; for a thread that has ended the call fails with ESRCH, which is harmless.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.0, number()) };
    }

    /// Restricts the thread to one CPU. The caller has checked that this process may use the CPU. If that has
    /// changed since, the thread keeps its CPUs.
    pub fn pin(self, cpu: usize) {
        let _ = Pid::from_raw(self.0).map(|thread| pin(Some(thread), &[cpu]));
    }

    /// Changes the thread's scheduling class, which threads that it starts inherit.
    ///
    /// Does not apply [`SchedulingClass::Background`] in processes that could not leave it again.
    pub fn set_class(self, class: SchedulingClass) {
        set_class(self.0, class);
    }

    /// Whether the thread's class is [`SchedulingClass::Background`].
    pub fn is_background(self) -> bool {
        // SAFETY: takes no pointers.
        unsafe { libc::sched_getscheduler(self.0) == libc::SCHED_IDLE }
    }

    /// Returns the raw id, for storage in an atomic.
    pub fn raw(self) -> i32 {
        self.0
    }

    /// Restores the id from the result of [`ThreadId::raw`].
    pub fn from_raw(raw: i32) -> Self {
        Self(raw)
    }
}

/// Changes the scheduling class of the calling thread, like [`ThreadId::set_class`]. Passes thread id 0,
/// which a filter that limits a thread to itself permits.
pub fn set_current_class(class: SchedulingClass) {
    set_class(0, class);
}

fn set_class(thread: libc::pid_t, class: SchedulingClass) {
    if class == SchedulingClass::Background && !may_leave_background() {
        return;
    }
    let policy = match class {
        SchedulingClass::Normal => libc::SCHED_OTHER,
        SchedulingClass::Batch => libc::SCHED_BATCH,
        SchedulingClass::Background => libc::SCHED_IDLE,
    };
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: `param` is live through the call. A failed change costs only precision.
    unsafe { libc::sched_setscheduler(thread, policy, &param) };
}

/// Returns the CPUs that the calling thread may use; empty on error.
pub fn allowed_cpus() -> Vec<usize> {
    CpuMask::of_thread(None).map(|mask| mask.cpus()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread, time::Instant};

    use super::*;

    #[test]
    fn cpu_time_of_a_busy_thread_is_positive() {
        let (end, ended) = mpsc::channel::<()>();
        let (started, busy) = mpsc::channel();
        let thread = thread::spawn(move || {
            let began = Instant::now();
            while began.elapsed().as_millis() < 20 {}
            started.send(()).unwrap();
            let _ = ended.recv();
        });
        busy.recv().unwrap();
        let ran = cpu_time(&thread).unwrap();
        assert!(ran > Nanos::ZERO, "{ran}");
        drop(end);
        while !thread.is_finished() {
            thread::yield_now();
        }
    }
}
