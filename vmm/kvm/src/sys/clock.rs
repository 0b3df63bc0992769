//! The monotonic clock as a number.

use base::units::Nanos;

/// `CLOCK_MONOTONIC`. Read through libc, which looks up the vDSO at every start anyway: rustix
/// would do its own lookup at the first reading.
pub fn monotonic() -> Nanos {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is live and writable. The call fails for unknown clocks only.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    // Neither is ever negative: the clock starts at the host's boot.
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
