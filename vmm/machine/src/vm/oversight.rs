//! Whether a machine's guest tells what it does with locks, and whether a watchdog looks for hangs.

use base::backend::PvBackend;

/// How closely a machine's locks are followed. [`Oversight::of`] alone decides it for machines that
/// take locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Oversight {
    telemetry: bool,
    watched: bool,
}

/// What a machine is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A user's own guest.
    Boot,
    /// A measurement.
    Cell {
        /// Is the guest the payload or a kernel with our ticketlocks? Of other locks nothing says when
        /// their waiters halt.
        is_ours: bool,
    },
}

impl Oversight {
    /// No telemetry and no watchdog: for guests that take no locks, and where the telemetry itself
    /// would be measured.
    pub const NONE: Self = Self { telemetry: false, watched: false };

    /// Decides it by what the machine is for, what serves its halts and kicks, and whether it is
    /// disturbed: whether a schedule of ours preempts its vCPUs, or faults are injected.
    ///
    /// * Telemetry costs the guest a store at each step of a lock. A schedule needs it to know
    ///   holders and waiters, an injected fault to be found by the watchdog; nothing else does. It
    ///   does not depend on the backend, so that native and PV guests, and all locks, bear the same cost.
    /// * The watchdog looks for halts that are never ended, which only PV guests make. A cell that
    ///   hangs would hang its run, so every cell with PV locks is watched. In a stock kernel the
    ///   watchdog has nothing to look at: its halts neither come to the VMM nor are told.
    /// * A user's guest is ended only if it is disturbed, so that the cause may be ours; otherwise
    ///   what looks like a hang may be what the user wants to look at.
    pub fn of(purpose: Purpose, backend: PvBackend, is_disturbed: bool) -> Self {
        let is_pv = backend != PvBackend::Off;
        let watched = match purpose {
            Purpose::Boot => is_pv && is_disturbed,
            Purpose::Cell { is_ours } => is_pv && is_ours,
        };
        Self { telemetry: is_disturbed, watched }
    }

    /// Is the guest asked to publish telemetry of its locks?
    pub const fn telemetry(self) -> bool {
        self.telemetry
    }

    /// Does a watchdog end the machine when a vCPU waits forever for a lock?
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
