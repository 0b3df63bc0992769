//! Sleeping on one word and waking its sleeper.

use std::{ptr, sync::atomic::AtomicU32};

use crate::units::Nanos;

/// Sleeps while `word` holds `expected`; may return spuriously.
pub fn wait(word: &AtomicU32, expected: u32) {
    // SAFETY: `word` outlives the call and is 4-byte aligned; FUTEX_WAIT only
    // reads it. A null timeout means none. Errors (EINTR, EAGAIN) are spurious
    // returns, which the caller's loop handles.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            expected,
            ptr::null::<libc::timespec>(),
        );
    }
}

/// The same until a time of the monotonic clock at the latest (FUTEX_WAIT_BITSET takes an
/// absolute one, futex(2)).
pub fn wait_until(word: &AtomicU32, expected: u32, until: Nanos) {
    let until = libc::timespec {
        tv_sec: (until.0 / 1_000_000_000) as libc::time_t,
        tv_nsec: (until.0 % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: as above; the timeout is live through the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG,
            expected,
            &until,
            ptr::null::<u32>(),
            libc::FUTEX_BITSET_MATCH_ANY,
        );
    }
}

/// Wakes the one sleeper on `word`, if there is one.
pub fn wake_one(word: &AtomicU32) {
    // SAFETY: FUTEX_WAKE uses the address as a key and touches no memory.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            1,
        );
    }
}
