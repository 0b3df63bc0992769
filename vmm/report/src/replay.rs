//! How closely a replay followed its recording, in words.

use sched::policy::Divergence;

/// One clause: what was repeated, and what differed.
pub fn in_a_line(its: &Divergence) -> String {
    format!(
        "replayed {} of {} turns, {} vCPUs woken for theirs, {} skipped, {} ended early, {} late, {} \
         otherwise",
        its.replayed, its.recorded, its.woken, its.skipped, its.early, its.late, its.otherwise
    )
}
