//! Futex wait and wake for a single waiter.

use std::{num::NonZeroU32, sync::atomic::AtomicU32};

use rustix::thread::futex::{self, Flags, Timespec};

use base::units::Nanos;

/// `FUTEX_BITSET_MATCH_ANY` (futex(2)): every wakeup matches.
const ANY: NonZeroU32 = NonZeroU32::MAX;

/// Sleeps while `word` holds `expected`; may return spuriously.
pub fn wait(word: &AtomicU32, expected: u32) {
    // EINTR and EAGAIN count as spurious returns, which the caller's loop handles.
    let _ = futex::wait(word, Flags::PRIVATE, expected, None);
}

/// Like [`wait`], but returns at `until` at the latest, in monotonic time (FUTEX_WAIT_BITSET
/// takes an absolute time, futex(2)).
pub fn wait_until(word: &AtomicU32, expected: u32, until: Nanos) {
    let until = Timespec {
        tv_sec: (until.0 / 1_000_000_000) as i64,
        tv_nsec: (until.0 % 1_000_000_000) as i64,
    };
    let _ = futex::wait_bitset(word, Flags::PRIVATE, expected, Some(&until), ANY);
}

/// Wakes at most one thread that sleeps on `word`.
pub fn wake_one(word: &AtomicU32) {
    let _ = futex::wake(word, Flags::PRIVATE, 1);
}
