//! Default values of a spec's keys that depend on the guest.

use std::time::Duration;

use base::units::Nanos;

pub use base::work::{CRITICAL, SUM_EVERY, THINK};

/// `warm-up` of specs, and of payloads in `compare`. A run begins with a fast phase of several slices,
/// until the first holder is preempted.
pub const PAYLOAD_WARM_UP: Duration = Duration::from_millis(100);
/// `warm-up` of a Linux guest in `compare`.
pub const LINUX_WARM_UP: Duration = Duration::from_millis(200);

/// Placeholder for a Linux guest's `spin-threshold` until its host is known.
pub(crate) const BY_HOST: u32 = 0;

/// The guest kernel's default, in spin iterations before a halt (`SPIN_THRESHOLD`, patch 0001).
const LINUX_SPINS: u32 = 1 << 15;
/// Spin iterations of a guest kernel in the emulated host. QEMU's CPUs leave their loop at every
/// PAUSE (`helper_pause`), so `LINUX_SPINS` take tens of milliseconds there, several slices of the
/// host's scheduler: no waiter would halt before the end of its slice.
const EMULATED_SPINS: u32 = 512;

/// Duration of a PAUSE from which it counts as long. It takes some 10 cycles on processors before Skylake, for which
/// Linux's threshold was chosen, and 40 to 140 cycles on later ones.
const LONG_PAUSE: Nanos = Nanos(10);
/// Spin iterations of about the same time as `LINUX_SPINS` short ones where a PAUSE is long.
const LONG_SPINS: u32 = base::work::SPINS;

/// Returns the `spin-threshold` of a payload or a simulation on a machine with this PAUSE.
pub fn spins(pause: Nanos) -> u32 {
    if pause < LONG_PAUSE { LINUX_SPINS } else { LONG_SPINS }
}

/// Returns the `spin-threshold` of a Linux guest, on a real CPU or on a CPU emulated by QEMU.
pub const fn linux_spins(emulated: bool) -> u32 {
    if emulated { EMULATED_SPINS } else { LINUX_SPINS }
}

/// Simulated time of a cell, in seconds. A simulated second takes seconds to minutes.
pub const SIM_SECONDS: f64 = 0.1;

/// Warm-up of simulations in `compare`: enough slices for a convoy to form.
pub const SIM_WARM_UP: Duration = Duration::from_millis(20);
