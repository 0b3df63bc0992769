//! Sleeping on one word, and waking the sleeper.

use std::{num::NonZeroU32, sync::atomic::AtomicU32};

use rustix::thread::futex::{self, Flags, Timespec};

use base::units::Nanos;

/// `FUTEX_BITSET_MATCH_ANY` (futex(2)): woken by every wake-up.
const ANY: NonZeroU32 = NonZeroU32::MAX;

/// Sleeps while `word` holds `expected`; may return spuriously.
pub fn wait(word: &AtomicU32, expected: u32) {
    // EINTR and EAGAIN are spurious returns, which the caller's loop handles.
    let _ = futex::wait(word, Flags::PRIVATE, expected, None);
}

/// Like [`wait`], but no longer than until `until`, monotonic clock (FUTEX_WAIT_BITSET takes an
/// absolute time, futex(2)).
pub fn wait_until(word: &AtomicU32, expected: u32, until: Nanos) {
    let until = Timespec {
        tv_sec: (until.0 / 1_000_000_000) as i64,
        tv_nsec: (until.0 % 1_000_000_000) as i64,
    };
    let _ = futex::wait_bitset(word, Flags::PRIVATE, expected, Some(&until), ANY);
}

/// Wakes the one sleeper on `word`, if there is one.
pub fn wake_one(word: &AtomicU32) {
    let _ = futex::wake(word, Flags::PRIVATE, 1);
}
