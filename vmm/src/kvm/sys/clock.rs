//! The monotonic clock as a number.

use crate::units::Nanos;

/// `CLOCK_MONOTONIC`. By libc, whose vDSO lookup is done at every start anyway:
/// rustix would do one of its own, at the first reading.
pub fn monotonic() -> Nanos {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is live and writable. The call fails for unknown clocks only.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    // Neither is ever negative: the clock starts at the host's boot.
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
