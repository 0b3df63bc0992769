//! Sleeping on one word and waking its sleeper.

use std::{ptr, sync::atomic::AtomicU32};

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
