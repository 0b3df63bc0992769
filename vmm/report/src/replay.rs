//! How closely a replay followed its recording, in words.

use base::plural::count;
use sched::policy::Divergence;

/// One clause: what was repeated, and what differed.
pub fn in_a_line(its: &Divergence) -> String {
    let differ =
        [its.woken, its.early, its.late, its.otherwise].into_iter().fold(0, u64::saturating_add);
    // Of many turns, one in ten.
    let verdict = if differ > its.recorded / 10 { "NOT REPEATED: " } else { "" };
    format!(
        "{verdict}replayed {} of {}, {} woken for a turn, {} skipped, {} ended early, {} late, {} otherwise",
        its.replayed,
        count(its.recorded, "turn"),
        count(its.woken, "vCPU"),
        its.skipped,
        its.early,
        its.late,
        its.otherwise
    )
}
