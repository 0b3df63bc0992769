//! A timer that signals one thread.

use std::{io, mem, ptr};

use rustix::thread::gettid;

use crate::signal;
use base::units::Nanos;

/// Sends the kick signal to the thread that created the timer, at a time of the monotonic clock
/// (timer_create(2), `SIGEV_THREAD_ID`). Any thread may set it.
#[derive(Debug)]
pub struct ThreadTimer(libc::timer_t);

// SAFETY: a timer id is a number that is valid in the whole process. Only system calls use it, and
// they synchronise themselves.
unsafe impl Send for ThreadTimer {}
// SAFETY: as above.
unsafe impl Sync for ThreadTimer {}

impl ThreadTimer {
    /// Creates a disarmed timer for the calling thread.
    pub fn new() -> io::Result<Self> {
        // SAFETY: a zeroed sigevent is valid; both pointers are live through the call, which keeps
        // neither.
        unsafe {
            let mut event: libc::sigevent = mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = signal::number();
            event.sigev_notify_thread_id = gettid().as_raw_nonzero().get();
            let mut timer = ptr::null_mut();
            match libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer) {
                0 => Ok(Self(timer)),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }

    /// Sets the expiry time, replacing any previous one. [`Nanos::NEVER`] disarms the timer. A time
    /// in the past sends the signal at once.
    pub fn set(&self, at: Nanos) {
        // Zero would disarm the timer (timer_settime(2)), so a time of zero becomes 1.
        let at = if at == Nanos::NEVER { 0 } else { at.0.max(1) };
        let value = libc::timespec {
            tv_sec: (at / 1_000_000_000) as libc::time_t,
            tv_nsec: (at % 1_000_000_000) as libc::c_long,
        };
        let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = libc::itimerspec { it_interval: none, it_value: value };
        // SAFETY: the timer exists until it is dropped. `spec` is live and valid, so the call
        // cannot fail.
        unsafe { libc::timer_settime(self.0, libc::TIMER_ABSTIME, &spec, ptr::null_mut()) };
    }
}

impl Drop for ThreadTimer {
    fn drop(&mut self) {
        // SAFETY: the timer exists and is not used afterwards.
        unsafe { libc::timer_delete(self.0) };
    }
}
