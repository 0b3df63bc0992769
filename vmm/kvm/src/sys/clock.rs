//! Kernel clocks as numbers, read through libc. It looks up the vDSO at startup anyway, while rustix would
//! repeat the lookup at the first read.

use base::units::Nanos;

/// `CLOCK_MONOTONIC`.
pub fn monotonic() -> Nanos {
    read(libc::CLOCK_MONOTONIC)
}

/// `CLOCK_BOOTTIME`, which continues while the host is suspended.
pub fn since_boot() -> Nanos {
    read(libc::CLOCK_BOOTTIME)
}

fn read(clock: libc::clockid_t) -> Nanos {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is live and writable. The call fails only for unknown clocks.
    unsafe { libc::clock_gettime(clock, &mut time) };
    // Never negative: both clocks start at the host's boot.
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
