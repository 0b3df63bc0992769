//! Injected faults, in words.

use base::counters::FaultCounts;

/// Counts of injected faults in one line.
pub fn in_a_line(counts: &FaultCounts) -> String {
    let FaultCounts { dropped, delayed, not_delayed, duplicated, spurious, halts_delayed } = counts;
    let at_once = match not_delayed {
        0 => String::new(),
        some => format!(
            "; {some} kicks came at once, as too many were on their way: shorten kick-delay"
        ),
    };
    format!(
        "faults: {dropped} kicks dropped, {delayed} delayed, {duplicated} duplicated; {spurious} \
         spurious wakes; {halts_delayed} halts delayed{at_once}"
    )
}
