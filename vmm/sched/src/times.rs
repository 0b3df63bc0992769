//! The times that are measured of a schedule: from one of its events to the next.

use serde::{Deserialize, Serialize};

/// These times, each as a `T`: a histogram, percentiles, or what a store keeps of them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoffTimes<T> {
    /// How late turns ended: time of the stop minus the deadline.
    pub lateness: T,
    /// From a grant until the thread is about to enter the guest; by the host's kernel: from its callback for the
    /// thread that stops to the one for the next, if its vCPU waited by then.
    pub handover: T,
    /// From a release in the guest to its kick in the VMM.
    pub release_to_kick: T,
    /// From a kick to the grant of a slot.
    pub kick_to_grant: T,
    /// From that grant to the guest's first instruction, where it is known: not if the vCPU may have
    /// halted again before its next event.
    pub grant_to_guest: T,
}

impl<T> HandoffTimes<T> {
    /// What `each` makes of each of them.
    pub fn map<U>(&self, each: impl Fn(&T) -> U) -> HandoffTimes<U> {
        HandoffTimes {
            lateness: each(&self.lateness),
            handover: each(&self.handover),
            release_to_kick: each(&self.release_to_kick),
            kick_to_grant: each(&self.kick_to_grant),
            grant_to_guest: each(&self.grant_to_guest),
        }
    }
}
