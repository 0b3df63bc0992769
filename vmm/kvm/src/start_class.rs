//! The scheduling class that a process inherits from its parent (sched(7)).

use std::{fmt, io, mem};

/// A scheduling class other than `SCHED_OTHER`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartClass {
    /// `SCHED_FIFO`.
    Fifo,
    /// `SCHED_RR`.
    RoundRobin,
    /// `SCHED_DEADLINE`. Its threads cannot create threads.
    Deadline,
    /// `SCHED_BATCH`.
    Batch,
    /// `SCHED_IDLE`.
    Idle,
}

impl StartClass {
    fn from_policy(policy: libc::c_int) -> Option<Self> {
        match policy & !libc::SCHED_RESET_ON_FORK {
            libc::SCHED_FIFO => Some(Self::Fifo),
            libc::SCHED_RR => Some(Self::RoundRobin),
            libc::SCHED_DEADLINE => Some(Self::Deadline),
            libc::SCHED_BATCH => Some(Self::Batch),
            libc::SCHED_IDLE => Some(Self::Idle),
            _ => None,
        }
    }

    /// Whether threads of this class run before all normal threads. `SCHED_FIFO` and `SCHED_RR` threads keep
    /// the CPU: one spinning vCPU per CPU starves the threads that would stop it.
    pub fn is_real_time(self) -> bool {
        matches!(self, Self::Fifo | Self::RoundRobin | Self::Deadline)
    }

    /// Returns the class of the calling thread. None for any other policy.
    pub fn current() -> Option<Self> {
        // SAFETY: takes no pointers; 0 is the calling thread.
        Self::from_policy(unsafe { libc::sched_getscheduler(0) })
    }
}

impl fmt::Display for StartClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fifo => "SCHED_FIFO",
            Self::RoundRobin => "SCHED_RR",
            Self::Deadline => "SCHED_DEADLINE",
            Self::Batch => "SCHED_BATCH",
            Self::Idle => "SCHED_IDLE",
        })
    }
}

/// Resets the calling thread, and threads that it creates from now on, to normal priority. Needs no
/// privilege, except to leave `SCHED_IDLE` where `RLIMIT_NICE` does not permit nice 0.
pub fn reset() -> io::Result<()> {
    // SAFETY: takes no pointers.
    let policy = unsafe { libc::sched_getscheduler(0) };
    // Unprivileged users may not clear this flag (user_check_sched_setscheduler in kernel/sched/syscalls.c).
    let flag = policy.max(0) & libc::SCHED_RESET_ON_FORK;
    // SAFETY: a zeroed sched_param is valid and has priority 0.
    let param: libc::sched_param = unsafe { mem::zeroed() };
    // SAFETY: `param` lives through the call.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER | flag, &param) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn classifies_policies() {
        let name = |policy| StartClass::from_policy(policy).map(|class| class.to_string());
        assert_eq!(name(libc::SCHED_FIFO).as_deref(), Some("SCHED_FIFO"));
        assert_eq!(name(libc::SCHED_RR | libc::SCHED_RESET_ON_FORK).as_deref(), Some("SCHED_RR"));
        assert_eq!(name(libc::SCHED_DEADLINE).as_deref(), Some("SCHED_DEADLINE"));
        assert_eq!(name(libc::SCHED_BATCH).as_deref(), Some("SCHED_BATCH"));
        assert_eq!(name(libc::SCHED_IDLE).as_deref(), Some("SCHED_IDLE"));
        assert_eq!([libc::SCHED_OTHER, 7, -1].map(name), [const { None }; 3]);
    }

    /// Runs in a separate thread because the class is per thread.
    #[test]
    fn reset_applies_to_new_threads() {
        let thread = thread::spawn(|| {
            let param = libc::sched_param { sched_priority: 1 };
            // SAFETY: `param` lives through the call.
            let is_permitted =
                unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &param) } == 0;
            assert_eq!(StartClass::current(), is_permitted.then_some(StartClass::Fifo));
            reset().unwrap();
            let inherited = thread::spawn(StartClass::current).join().unwrap();
            assert_eq!((StartClass::current(), inherited), (None, None));
        });
        thread.join().unwrap();
    }
}
