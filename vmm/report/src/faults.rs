//! Injected faults as text.

use base::{counters::FaultCounts, plural::count};

/// Counts of injected faults in one line.
pub fn summary(counts: &FaultCounts) -> String {
    let FaultCounts { dropped, delayed, not_delayed, duplicated, spurious, halts_delayed } = counts;
    let at_once = match not_delayed {
        0 => String::new(),
        some => format!(
            "; {} delivered at once, as too many were pending: shorten kick-delay",
            count(*some, "kick")
        ),
    };
    format!(
        "faults: {} dropped, {delayed} delayed, {duplicated} duplicated; {}; {} delayed{at_once}",
        count(*dropped, "kick"),
        count(*spurious, "spurious wakeup"),
        count(*halts_delayed, "halt")
    )
}
