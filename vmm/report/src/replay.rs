//! How closely a replay followed its recording, in words.

use base::plural::count;
use sched::policy::Divergence;

/// One clause: what was repeated, and what differed.
pub fn in_a_line(divergence: &Divergence) -> String {
    let differ = [divergence.woken, divergence.early, divergence.late, divergence.otherwise]
        .into_iter()
        .fold(0, u64::saturating_add);
    // Of many turns, one in ten.
    let verdict = if differ > divergence.recorded / 10 { "NOT REPEATED: " } else { "" };
    format!(
        "{verdict}replayed {} of {}, {} woken for a turn, {} skipped, {} ended early, {} late, {} otherwise",
        divergence.replayed,
        count(divergence.recorded, "turn"),
        count(divergence.woken, "vCPU"),
        divergence.skipped,
        divergence.early,
        divergence.late,
        divergence.otherwise
    )
}
