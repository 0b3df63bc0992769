//! Whether a guest publishes telemetry of its locks, and whether a watchdog detects hangs.

use base::backend::PvBackend;

/// The level of lock monitoring for a machine. [`LockMonitoring::for_machine`] is the only place that decides it for
/// machines that take locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockMonitoring {
    telemetry: bool,
    watchdog: bool,
}

/// The purpose of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A user's own guest.
    Boot,
    /// A measurement.
    Cell {
        /// Whether the guest is the payload or a kernel with our ticketlocks. Other locks do not report
        /// when their waiters halt.
        is_ours: bool,
    },
}

impl LockMonitoring {
    /// No telemetry and no watchdog, for guests that take no locks and for measurements of the telemetry
    /// itself.
    pub const NONE: Self = Self { telemetry: false, watchdog: false };

    /// Selects the level by the machine's purpose, the backend of its halts and kicks, and whether it is
    /// disturbed, i.e. our schedule preempts its vCPUs or faults are injected, or observed.
    ///
    /// * Telemetry costs the guest a store at each step of a lock. Schedules and the observer need it to find
    ///   holders and waiters, and the watchdog needs it to detect injected faults; nothing else does. It does not
    ///   depend on the backend, so that native and PV guests, and all locks, bear the same cost.
    /// * The watchdog detects halts that never end, which only PV guests have. A hanging cell would hang
    ///   its run, so every cell with PV locks is watched. In a stock kernel there is nothing to watch:
    ///   its halts neither reach the VMM nor are published.
    /// * A user's guest is ended only if it is disturbed, because we may then be the cause. Otherwise the user
    ///   may want to examine the apparent hang.
    pub fn for_machine(purpose: Purpose, backend: PvBackend, is_disturbed: bool) -> Self {
        let is_pv = backend != PvBackend::Off;
        let watchdog = match purpose {
            Purpose::Boot => is_pv && is_disturbed,
            Purpose::Cell { is_ours } => is_pv && is_ours,
        };
        Self { telemetry: is_disturbed, watchdog }
    }

    /// Whether the guest is asked to publish telemetry of its locks.
    pub const fn telemetry(self) -> bool {
        self.telemetry
    }

    /// Whether a watchdog ends the machine when a vCPU waits forever for a lock.
    pub const fn has_watchdog(self) -> bool {
        self.watchdog
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selects_monitoring_by_purpose_and_backend() {
        use PvBackend::{Doorbell, Kvm, Off, Vmm};
        let our_locks = Purpose::Cell { is_ours: true };
        let stock = Purpose::Cell { is_ours: false };
        // Purpose, PV or native, disturbed: telemetry, watchdog.
        for (purpose, is_pv, is_disturbed, telemetry, watchdog) in [
            (Purpose::Boot, false, false, false, false),
            (Purpose::Boot, false, true, true, false),
            (Purpose::Boot, true, false, false, false),
            (Purpose::Boot, true, true, true, true),
            (our_locks, false, false, false, false),
            (our_locks, false, true, true, false),
            (our_locks, true, false, false, true),
            (our_locks, true, true, true, true),
            (stock, false, false, false, false),
            (stock, false, true, true, false),
            (stock, true, false, false, false),
            (stock, true, true, true, false),
        ] {
            for backend in if is_pv { &[Vmm, Doorbell, Kvm][..] } else { &[Off] } {
                let monitoring = LockMonitoring::for_machine(purpose, *backend, is_disturbed);
                let expected = LockMonitoring { telemetry, watchdog };
                assert_eq!(monitoring, expected, "{purpose:?} {backend} {is_disturbed}");
            }
        }
    }
}
