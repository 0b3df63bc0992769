//! Interrupting a vCPU thread without a race, and placing it on CPUs.
//!
//! The signal is blocked in the thread and unblocked only inside `KVM_RUN`
//! (`KVM_SET_SIGNAL_MASK`, kvm/api.rst 4.10), so one that arrives early stays
//! pending and ends the next `KVM_RUN` at once: it cannot be lost.

use std::{
    io, mem,
    os::unix::thread::JoinHandleExt,
    ptr,
    thread::{self, JoinHandle},
};

use super::{KvmError, cpus};
use crate::units::CpuList;

/// The signal that ends `KVM_RUN`.
pub(super) fn number() -> libc::c_int {
    libc::SIGRTMIN()
}

fn kick_set() -> libc::sigset_t {
    // SAFETY: sigemptyset initialises the set that is passed; a zeroed sigset_t
    // is a valid value to pass.
    unsafe {
        let mut set = mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, number());
        set
    }
}

/// Blocks the kick signal in the calling thread and returns the 64-bit mask that
/// was in force before, without the kick: what `KVM_RUN` shall use.
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
    // SAFETY: on Linux/x86-64 the first 8 bytes of a sigset_t are the kernel's
    // 64-bit signal mask (signal(7), sigset_t of the kernel ABI).
    Ok(unsafe { ptr::read(ptr::from_ref(&old).cast::<u64>()) })
}

/// Takes a pending kick, so that the next `KVM_RUN` is not ended by it too.
pub fn consume() {
    let set = kick_set();
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the set and the timeout live through the call; no siginfo wanted.
    unsafe { libc::sigtimedwait(&set, ptr::null_mut(), &now) };
}

/// Waits for a kick as `KVM_RUN` does, for so long; was there one? For tests of what sends them.
#[cfg(test)]
pub fn wait_for(longest: std::time::Duration) -> bool {
    let set = kick_set();
    let longest = libc::timespec {
        tv_sec: longest.as_secs() as libc::time_t,
        tv_nsec: longest.subsec_nanos().into(),
    };
    // SAFETY: as for `consume`.
    unsafe { libc::sigtimedwait(&set, ptr::null_mut(), &longest) > 0 }
}

/// Sends the kick to a thread that has not been joined.
pub fn kick<T>(thread: &JoinHandle<T>) {
    // SAFETY: an unjoined JoinHandle's pthread_t is valid; a thread that has
    // ended gives ESRCH, which is no matter.
    unsafe { libc::pthread_kill(thread.as_pthread_t(), number()) };
}

/// Restricts the calling thread to these CPUs.
pub fn pin_this_thread(cpus: &CpuList) -> io::Result<()> {
    pin(0, cpus.cpus())
}

/// Restricts a thread, 0 for the calling one, to these CPUs. Those above `CPU_SETSIZE` are left out,
/// and the kernel refuses a set without any.
fn pin(tid: libc::pid_t, chosen: &[usize]) -> io::Result<()> {
    // SAFETY: CPU_SET checks that it writes inside the set; the set is live through the call.
    let result = unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        for cpu in chosen {
            let cpu = cpus::kernels(*cpu);
            if cpu < libc::CPU_SETSIZE as usize {
                libc::CPU_SET(cpu, &mut set);
            }
        }
        libc::sched_setaffinity(tid, mem::size_of_val(&set), &set)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// How a thread competes for its CPU (sched(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// As threads do.
    Usual,
    /// It never preempts another when it is woken (`SCHED_BATCH`).
    Patient,
    /// It runs only where nobody else wants to (`SCHED_IDLE`).
    Background,
}

/// A thread of this process, by its number. The number may be given to another thread once this
/// one has ended: whoever keeps it must forget it before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadId(libc::pid_t);

impl ThreadId {
    /// The calling thread.
    pub fn current() -> Self {
        // SAFETY: gettid has no arguments and cannot fail.
        Self(unsafe { libc::gettid() })
    }

    /// Sends it the kick.
    pub fn kick(self) {
        // SAFETY: no pointers; a thread that has ended gives ESRCH, which is no matter.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.0, number()) };
    }

    /// Restricts it to one CPU. It has been checked that this process may use it; should that
    /// change, the thread stays where it is.
    pub fn pin(self, cpu: usize) {
        let _ = pin(self.0, &[cpu]);
    }

    /// Changes how it competes with others. Threads that it starts compete likewise.
    pub fn set_class(self, class: Class) {
        let policy = match class {
            Class::Usual => libc::SCHED_OTHER,
            Class::Patient => libc::SCHED_BATCH,
            Class::Background => libc::SCHED_IDLE,
        };
        let param = libc::sched_param { sched_priority: 0 };
        // SAFETY: `param` is live through the call. All changes are allowed to every process
        // (since Linux 2.6.39), and a refused one costs precision only.
        unsafe { libc::sched_setscheduler(self.0, policy, &param) };
    }

    /// Is it of [`Class::Background`]?
    #[cfg(test)]
    pub fn is_background(self) -> bool {
        // SAFETY: a query by number.
        unsafe { libc::sched_getscheduler(self.0) == libc::SCHED_IDLE }
    }

    /// The number, for an atomic.
    pub fn raw(self) -> i32 {
        self.0
    }

    /// From [`ThreadId::raw`].
    pub fn from_raw(raw: i32) -> Self {
        Self(raw)
    }
}

/// The CPUs that the calling thread may use.
pub fn allowed_cpus() -> Vec<usize> {
    // SAFETY: the set is live and its size is passed; 0 names the calling
    // thread. CPU_ISSET reads inside the set.
    unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        if libc::sched_getaffinity(0, mem::size_of_val(&set), &mut set) != 0 {
            return (0..thread::available_parallelism().map_or(1, |n| n.get())).collect();
        }
        let set = (0..libc::CPU_SETSIZE as usize).filter(|cpu| libc::CPU_ISSET(*cpu, &set));
        set.filter_map(cpus::ours).collect()
    }
}
