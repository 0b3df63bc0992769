//! A study as sentences and tables: its answer, findings and tables, the commands that reproduce
//! it, and its layout as text.

pub mod answer;
#[cfg(test)]
mod answer_tests;
pub mod command;
#[cfg(test)]
mod contrary_tests;
pub mod diff;
pub mod disturbed;
pub mod documents;
pub mod extensions;
pub mod league;
pub mod moved;
mod nodes;
mod notes;
#[cfg(test)]
mod outcome_tests;
#[cfg(test)]
mod plural_tests;
pub mod regressions;
mod replayed;
pub mod reproduction;
pub mod sentences;
pub mod setup;
pub mod simulated;
#[cfg(test)]
mod summary_tests;
pub mod tables;
pub mod text;
pub mod titles;

use std::time::{Duration, UNIX_EPOCH};

use super::names;
use base::plural::{agree, count};
use study::findings::{RunFacts, Study};

/// `partial: 3 of 8 runs have figures`, with each cell as a run; `None` if all cells have figures.
pub fn partial<'a>(studies: impl IntoIterator<Item = &'a Study>) -> Option<String> {
    let add = |(done, cells), study: &Study| (done + study.done(), cells + study.cells());
    let (done, cells) = studies.into_iter().fold((0, 0), add);
    let have = agree(done, "has", "have");
    (done < cells).then(|| format!("partial: {done} of {} {have} figures", count(cells, "run")))
}

/// How the figures were obtained, in sentences.
pub fn method(study: &Study) -> Vec<String> {
    let mut sentences = vec![
        "Each cell is one point of the matrix on fresh machines. A round has each point once; points \
         that are compared are neighbours in it, in alternating order, so that slow \
         changes of the host affect all of them."
            .to_owned(),
        "The centre is the median, with an exact interval (order statistics) from six \
         repetitions on. The interval of a ratio is a percentile bootstrap of 4000 \
         resamples; the table also has one for each median."
            .to_owned(),
        format!(
            "A difference is significant if its permutation test's p, corrected by Holm's method \
             for {} of this report, is below 0.05. Seeds are pooled; outliers are \
             flagged and never dropped.",
            all_counted(study.comparisons.len(), "comparison")
        ),
        format!("Bootstrap and permutations are seeded with {}: the same store gives the same report.", study.seed),
    ];
    if study.points.iter().any(|point| point.point.host == study::point::HostKind::Emulated) {
        sentences.push(
            "Cells of the emulated host run on emulated CPUs: they show an order, not speeds."
                .to_owned(),
        );
    }
    sentences
}

/// `all 3 comparisons`, or `the only comparison`.
fn all_counted(number: usize, noun: &str) -> String {
    match number {
        1 => format!("the only {noun}"),
        _ => format!("all {}", count(number, noun)),
    }
}

/// The command that recreates this report.
pub fn report_command(study: &Study) -> String {
    let sources: Vec<String> =
        study.runs.iter().map(|run| base::sanitize::shell_quoted(&run.source)).collect();
    format!("pvticket report {} --html report.html", sources.join(" "))
}

/// The display name of a run.
pub fn name(run: &RunFacts) -> &str {
    if run.run.name.is_empty() { &run.source } else { &run.run.name }
}

/// The overcommit ratio, if it is equal at all points.
pub fn overcommit(study: &Study) -> Option<String> {
    let mut ratios = study.points.iter().map(|point| names::overcommit(&point.point));
    let first = ratios.next()?;
    ratios.all(|ratio| ratio == first).then_some(first)
}

/// Last millisecond of the year 9999. Later times are shown as this time.
const LAST_MS: u64 = 253_402_300_799_999;

/// A UTC time, to the minute.
pub fn utc_minutes(at_ms: u64) -> String {
    let at = UNIX_EPOCH + Duration::from_millis(at_ms.min(LAST_MS));
    let text = humantime::format_rfc3339_seconds(at).to_string();
    let minutes: String = text.chars().take("2000-02-29T12:34".len()).collect();
    format!("{} UTC", minutes.replace('T', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utc_dates_are_correct() {
        assert_eq!(utc_minutes(0), "1970-01-01 00:00 UTC");
        assert_eq!(utc_minutes(951_827_696_000), "2000-02-29 12:34 UTC");
        assert_eq!(utc_minutes(1_760_000_000_000), "2025-10-09 08:53 UTC");
        assert!(!utc_minutes(u64::MAX).is_empty());
    }
}
