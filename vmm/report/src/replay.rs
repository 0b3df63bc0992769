//! The divergence of a replay from its recording as text.

use base::plural::count;
use sched::policy::Divergence;

/// Precedes the counts of a replay that diverged too far from its recording.
pub const NOT_REPEATED: &str = "NOT REPEATED";

/// One clause: the repeated slices, the differences, and whether there are too many of them.
pub fn summary(divergence: &Divergence) -> String {
    let Divergence { recorded, replayed, skipped, woken, early, late, otherwise, cut, left_out } =
        divergence;
    let left_out = match left_out {
        0 => String::new(),
        some => format!(", {some} more left out"),
    };
    let verdict =
        failure(divergence).map(|reason| format!("{NOT_REPEATED}, {reason}: ")).unwrap_or_default();
    format!(
        "{verdict}replayed {replayed} of {}, {} woken for a slice, {skipped} skipped, {early} ended early, {late} \
         late, {cut} in a lock, {otherwise} otherwise{left_out}",
        count(*recorded, "slice"),
        count(*woken, "vCPU"),
    )
}

/// The most frequent difference, if there are too many differences.
pub fn failure(divergence: &Divergence) -> Option<&'static str> {
    let reasons = [
        (divergence.unreplayed(), "slices that never started"),
        (divergence.skipped, "slices of exited vCPUs"),
        (divergence.woken, "vCPUs halted at their slice's start"),
        (divergence.early, "slices that the guest ended early"),
        (divergence.late, "slices that the guest did not end"),
        (divergence.cut, "slices cut off in a lock"),
        (divergence.otherwise, "slices that ended in another way"),
        (divergence.left_out, "slices after an open slice"),
    ];
    let worst = reasons.into_iter().max_by_key(|(slices, _)| *slices);
    worst.filter(|_| !divergence.is_repeated()).map(|(_, reason)| reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: slices that never started, were skipped or were cut in a lock did not count.
    #[test]
    fn replays_with_over_a_tenth_of_differences_fail() {
        let exact = Divergence { recorded: 100, replayed: 100, ..Divergence::default() };
        let line = summary(&Divergence { replayed: 92, otherwise: 2, ..exact });
        assert!(line.starts_with("replayed 92 of 100 slices, 0 vCPUs woken"), "{line}");
        for (divergence, reason) in [
            (Divergence { replayed: 89, ..exact }, "slices that never started"),
            (Divergence { replayed: 89, skipped: 11, ..exact }, "slices of exited vCPUs"),
            (Divergence { woken: 11, ..exact }, "vCPUs halted at their slice's start"),
            (Divergence { early: 11, ..exact }, "slices that the guest ended early"),
            (Divergence { late: 11, ..exact }, "slices that the guest did not end"),
            (Divergence { cut: 11, ..exact }, "slices cut off in a lock"),
            (Divergence { otherwise: 9, cut: 2, ..exact }, "slices that ended in another way"),
            (Divergence { left_out: 12, ..exact }, "slices after an open slice"),
        ] {
            let line = summary(&divergence);
            assert!(line.starts_with(&format!("NOT REPEATED, {reason}: replayed ")), "{line}");
        }
        let line = summary(&Divergence { left_out: 11, ..exact });
        assert!(
            line.starts_with("replayed 100 ") && line.ends_with(", 11 more left out"),
            "{line}"
        );
        let extreme = Divergence {
            woken: u64::MAX,
            left_out: u64::MAX,
            replayed: 7,
            ..Divergence::default()
        };
        assert!(summary(&extreme).starts_with("NOT REPEATED, "), "a store is data");
    }
}
