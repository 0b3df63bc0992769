//! Faults that were made on purpose, in words.

use crate::machine::counters::FaultCounts;

/// One line.
pub fn in_a_line(counts: &FaultCounts) -> String {
    let FaultCounts { dropped, delayed, duplicated, spurious, halts_delayed } = counts;
    format!(
        "faults: {dropped} kicks dropped, {delayed} delayed, {duplicated} duplicated; {spurious} \
         spurious wakes; {halts_delayed} halts delayed"
    )
}
