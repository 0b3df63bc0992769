//! The divergence of a replay from its recording as text.

use base::plural::count;
use sched::policy::Divergence;

/// Precedes the counts of a replay that diverged too far from its recording.
pub const NOT_REPEATED: &str = "NOT REPEATED";

/// One clause: the repeated slices, the differences, and whether there are too many of them.
pub fn in_a_line(divergence: &Divergence) -> String {
    let Divergence { recorded, replayed, skipped, woken, early, late, otherwise, cut, left_out } =
        divergence;
    let left_out = match left_out {
        0 => String::new(),
        some => format!(", {some} more left out"),
    };
    let verdict =
        why_not(divergence).map(|reason| format!("{NOT_REPEATED}, {reason}: ")).unwrap_or_default();
    format!(
        "{verdict}replayed {replayed} of {}, {} woken for a turn, {skipped} skipped, {early} ended early, {late} \
         late, {cut} in a lock, {otherwise} otherwise{left_out}",
        count(*recorded, "turn"),
        count(*woken, "vCPU"),
    )
}

/// The most frequent difference, if there are too many differences.
pub fn why_not(divergence: &Divergence) -> Option<&'static str> {
    let reasons = [
        (divergence.unreplayed(), "turns that never came"),
        (divergence.skipped, "turns of vCPUs that had left"),
        (divergence.woken, "vCPUs that halted when they were to run"),
        (divergence.early, "turns that the guest ended early"),
        (divergence.late, "turns that the guest did not end"),
        (divergence.cut, "turns cut off in a lock"),
        (divergence.otherwise, "turns that ended in another way"),
        (divergence.left_out, "turns after one that was not over at the recording's end"),
    ];
    let most = reasons.into_iter().max_by_key(|(turns, _)| *turns);
    most.filter(|_| !divergence.is_repeated()).map(|(_, reason)| reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: slices that never came, were skipped or were cut in a lock did not count.
    #[test]
    fn whatever_differs_in_more_than_a_tenth_of_the_turns_is_no_replay() {
        let whole = Divergence { recorded: 100, replayed: 100, ..Divergence::default() };
        let line = in_a_line(&Divergence { replayed: 92, otherwise: 2, ..whole });
        assert!(line.starts_with("replayed 92 of 100 turns, 0 vCPUs woken"), "{line}");
        for (divergence, reason) in [
            (Divergence { replayed: 89, ..whole }, "turns that never came"),
            (Divergence { replayed: 89, skipped: 11, ..whole }, "turns of vCPUs that had left"),
            (Divergence { woken: 11, ..whole }, "vCPUs that halted when they were to run"),
            (Divergence { early: 11, ..whole }, "turns that the guest ended early"),
            (Divergence { late: 11, ..whole }, "turns that the guest did not end"),
            (Divergence { cut: 11, ..whole }, "turns cut off in a lock"),
            (Divergence { otherwise: 9, cut: 2, ..whole }, "turns that ended in another way"),
            (
                Divergence { left_out: 12, ..whole },
                "turns after one that was not over at the recording's end",
            ),
        ] {
            let line = in_a_line(&divergence);
            assert!(line.starts_with(&format!("NOT REPEATED, {reason}: replayed ")), "{line}");
        }
        let line = in_a_line(&Divergence { left_out: 11, ..whole });
        assert!(
            line.starts_with("replayed 100 ") && line.ends_with(", 11 more left out"),
            "{line}"
        );
        let liar = Divergence {
            woken: u64::MAX,
            left_out: u64::MAX,
            replayed: 7,
            ..Divergence::default()
        };
        assert!(in_a_line(&liar).starts_with("NOT REPEATED, "), "a store is data");
    }
}
