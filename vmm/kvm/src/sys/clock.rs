//! The kernel's clocks as numbers. Read through libc, which looks up the vDSO at every start anyway: rustix would do its
//! own lookup at the first reading.

use base::units::Nanos;

/// `CLOCK_MONOTONIC`.
pub fn monotonic() -> Nanos {
    read(libc::CLOCK_MONOTONIC)
}

/// `CLOCK_BOOTTIME`, which goes on while the host is suspended.
pub fn since_boot() -> Nanos {
    read(libc::CLOCK_BOOTTIME)
}

fn read(clock: libc::clockid_t) -> Nanos {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is live and writable. The call fails for unknown clocks only.
    unsafe { libc::clock_gettime(clock, &mut time) };
    // Neither is ever negative: both clocks start at the host's boot.
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
