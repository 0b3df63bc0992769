//! Whether a guest publishes telemetry of its locks, and whether a watchdog detects hangs.

use base::backend::PvBackend;

/// The level of lock monitoring for a machine. [`Oversight::of`] is the only place that decides it for
/// machines that take locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Oversight {
    telemetry: bool,
    watched: bool,
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

impl Oversight {
    /// No telemetry and no watchdog, for guests that take no locks and for measurements of the telemetry
    /// itself.
    pub const NONE: Self = Self { telemetry: false, watched: false };

    /// Selects the level by the machine's purpose, the backend of its halts and kicks, and whether it is
    /// disturbed, i.e. our schedule preempts its vCPUs or faults are injected.
    ///
    /// * Telemetry costs the guest a store at each step of a lock. Schedules need it to find holders and
    ///   waiters, and the watchdog needs it to detect injected faults; nothing else does. It does not
    ///   depend on the backend, so that native and PV guests, and all locks, bear the same cost.
    /// * The watchdog detects halts that never end, which only PV guests have. A hanging cell would hang
    ///   its run, so every cell with PV locks is watched. In a stock kernel there is nothing to watch:
    ///   its halts neither reach the VMM nor are published.
    /// * A user's guest is ended only if it is disturbed, so that we may be the cause. Otherwise the user
    ///   may want to examine the apparent hang.
    pub fn of(purpose: Purpose, backend: PvBackend, is_disturbed: bool) -> Self {
        let is_pv = backend != PvBackend::Off;
        let watched = match purpose {
            Purpose::Boot => is_pv && is_disturbed,
            Purpose::Cell { is_ours } => is_pv && is_ours,
        };
        Self { telemetry: is_disturbed, watched }
    }

    /// Whether the guest is asked to publish telemetry of its locks.
    pub const fn telemetry(self) -> bool {
        self.telemetry
    }

    /// Whether a watchdog ends the machine when a vCPU waits forever for a lock.
    pub const fn watched(self) -> bool {
        self.watched
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_decisions() {
        use PvBackend::{Doorbell, Kvm, Off, Vmm};
        let own = Purpose::Cell { is_ours: true };
        let stock = Purpose::Cell { is_ours: false };
        // Purpose, PV or native, disturbed: telemetry, watched.
        for (purpose, is_pv, is_disturbed, telemetry, watched) in [
            (Purpose::Boot, false, false, false, false),
            (Purpose::Boot, false, true, true, false),
            (Purpose::Boot, true, false, false, false),
            (Purpose::Boot, true, true, true, true),
            (own, false, false, false, false),
            (own, false, true, true, false),
            (own, true, false, false, true),
            (own, true, true, true, true),
            (stock, false, false, false, false),
            (stock, false, true, true, false),
            (stock, true, false, false, false),
            (stock, true, true, true, false),
        ] {
            for backend in if is_pv { &[Vmm, Doorbell, Kvm][..] } else { &[Off] } {
                let found = Oversight::of(purpose, *backend, is_disturbed);
                let expected = Oversight { telemetry, watched };
                assert_eq!(found, expected, "{purpose:?} {backend} {is_disturbed}");
            }
        }
    }
}
