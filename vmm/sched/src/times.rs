//! Measured times between consecutive events of a schedule.

use serde::{Deserialize, Serialize};

/// Handoff times, each as a `T`: a histogram, percentiles, or the form kept in a store.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoffTimes<T> {
    /// Delay of the end of a time slice: time of the stop minus the deadline.
    pub lateness: T,
    /// From a grant until the thread is about to enter the guest. In the host's kernel: from the callback for
    /// the stopping thread to the callback for its successor, if the successor's vCPU was already waiting.
    pub handover: T,
    /// From a release in the guest to its kick in the VMM.
    pub release_to_kick: T,
    /// From a kick to the grant of a slot.
    pub kick_to_grant: T,
    /// From that grant to the guest's first instruction. Unknown if the vCPU may have halted again before its
    /// next event.
    pub grant_to_guest: T,
}

impl<T> HandoffTimes<T> {
    /// Applies `each` to all times.
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
