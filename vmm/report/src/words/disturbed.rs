//! Windows that something disturbed, in words.

use base::plural::count;

use super::super::names;
use study::{
    disturbance::Disturbance,
    findings::{PointStudy, Study},
};

/// So many of their points are named.
const NAMED: usize = 3;

/// How many windows give no figures of their locks, and why, if there are any: part of a sentence.
pub fn counted(disturbance: Disturbance) -> Option<String> {
    let windows = |part: Option<(usize, f64)>| part.map_or(0, |(windows, _)| windows);
    let stopped = windows(disturbance.overlong);
    let starved = windows(disturbance.starved);
    let parts = [(stopped, "much longer than asked"), (starved, "without the CPUs of their slots")];
    let parts = parts.into_iter().filter(|(windows, _)| *windows > 0);
    let parts: Vec<String> = parts.map(|(windows, how)| format!("{windows} {how}")).collect();
    (!parts.is_empty())
        .then(|| format!("disturbed windows, no figures of a lock: {}", parts.join(", ")))
}

/// All disturbed windows of a study, with their points.
pub fn in_words(study: &Study) -> Option<String> {
    let is_disturbed = |point: &&PointStudy| !point.disturbance.is_none();
    let all: Vec<&PointStudy> = study.points.iter().filter(is_disturbed).collect();
    let counted = counted(all.iter().map(|point| point.disturbance).sum())?;
    let named = all.iter().take(NAMED).map(|point| names::whole(study, &point.point));
    let more = all.len().saturating_sub(NAMED);
    let more = (more > 0).then(|| count(more, "other point").to_string());
    let names: Vec<String> = named.chain(more).collect();
    Some(format!("{counted} ({})", names.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        brief, html,
        words::{diff, mail, text},
    };
    use study::{
        findings::{Diff, RunRecord},
        store::record::Outcome,
        testing::{Fixture, record},
    };

    /// A run in which something stopped two windows of one point.
    fn stopped() -> RunRecord {
        let mut run = record(&Fixture::default());
        let cells = run.contents.cells.iter_mut();
        let chosen = cells
            .filter(|cell| cell.point.policy.name() == "rr" && cell.point.vcpus.get() == 4)
            .filter_map(|cell| match &mut cell.outcome {
                Outcome::Done { figures } => Some(figures),
                _ => None,
            });
        chosen.take(2).for_each(|figures| figures.seconds *= 9.0);
        run
    }

    fn study_of(run: RunRecord) -> Study {
        Study::new(&[run])
    }

    fn flat(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Regression: only the table of `compare` told of a window in which something had stopped its cell.
    #[test]
    fn disturbed_windows_are_told_on_the_page_and_in_the_mail() {
        let study = study_of(stopped());
        let expected = "Disturbed windows, no figures of a lock: 2 much longer than asked (ticket";
        for text in
            [mail::study(&study), text::render(&study, 80), html::page(&study, None).unwrap()]
        {
            assert!(flat(&text).contains(expected), "{text}");
        }
        assert!(!mail::study(&study_of(record(&Fixture::default()))).contains("Disturbed"));
    }

    /// Regression: the brief and the comparison of two runs said nothing.
    #[test]
    fn a_brief_and_a_comparison_of_runs_tell_of_disturbed_windows() {
        let expected = "disturbed windows, no figures of a lock: 2 much longer than asked";
        let brief = |run| flat(&brief::Brief::new(&[run]).answer(brief::WIDTH));
        let text = brief(stopped());
        assert!(text.contains(expected), "{text}");
        let whole = || record(&Fixture::default());
        assert!(!brief(whole()).contains("disturbed"));
        for (before, after, which) in
            [(whole(), stopped(), "second"), (stopped(), whole(), "first")]
        {
            let diff = Diff::new(study_of(before), study_of(after));
            let expected = format!("The {which} run has {expected} (ticket");
            for text in [diff::render(&diff, 80), html::diff_page(&diff).unwrap()] {
                let text = flat(&text);
                assert_eq!(text.matches(&expected).count(), 1, "{text}");
                assert_eq!(text.matches("disturbed windows").count(), 1, "{text}");
            }
            // The mail has it with the other facts of the run.
            let mail = mail::diff(&diff).to_lowercase();
            assert_eq!(mail.matches("disturbed").count(), 1, "{mail}");
        }
        let same = Diff::new(study_of(whole()), study_of(whole()));
        assert!(!diff::render(&same, 80).contains("disturbed"));
    }
}
