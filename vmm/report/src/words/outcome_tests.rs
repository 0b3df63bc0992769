//! One rule for the outcome of a comparison, in `report A B`, `report --diff` and `compare`.

use super::{tables, text, titles};
use crate::document::Document;
use study::{
    findings::{Axis, Diff, RunRecord, Study, compare::Outcome},
    testing::{Fixture, figures, record},
};

/// Rates of the two sides by repetition.
#[derive(Debug, Clone, Copy)]
enum Data {
    /// Each of the subject's rates is above all rates of the baseline.
    Above,
    /// The sides alternate.
    Mixed,
    /// The baseline completes no operation.
    Zero,
}

use Data::{Above, Mixed, Zero};

impl Data {
    fn rate(self, is_subject: bool, round: u32) -> f64 {
        let step = f64::from(round);
        match (self, is_subject) {
            (Zero, false) => 0.0,
            (Above | Zero, true) => 2000.0 + step,
            (Above, false) => 1000.0 + step,
            (Mixed, true) => 1000.0 + (7.0 * step) % 11.0,
            (Mixed, false) => 1000.5 + (7.0 * step) % 11.0,
        }
    }
}

/// A run with `repetitions` of each point. `is_subject` decides which side a lock is.
fn run(fixture: &Fixture, data: Data, side: fn(&str) -> bool, repetitions: [u32; 2]) -> RunRecord {
    let mut run = record(&Fixture { rounds: 8, policies: vec!["rr"], ..fixture.clone() });
    let is_kept = |lock: &str, round| round < repetitions[usize::from(!side(lock))];
    run.contents.cells.retain(|cell| is_kept(cell.point.lock.name(), cell.round));
    run.contents.run.cells = run.contents.cells.len() as u32;
    let rounds: Vec<u32> = run.contents.cells.iter().map(|cell| cell.round).collect();
    for ((point, figures), round) in figures(&mut run).zip(rounds) {
        match data.rate(side(point.lock.name()), round) {
            0.0 => figures.operations.iter_mut().for_each(|count| *count = 0),
            rate => figures.seconds = figures.all_operations() / rate,
        }
    }
    run
}

/// Returns the words in the outcome columns of a report's tables.
fn outcomes_in(text: &str) -> Vec<&str> {
    let words = ["more", "less", "unclear", "too few"];
    let last = |line: &'_ str| words.into_iter().find(|word| line.ends_with(&format!("  {word}")));
    text.lines().filter_map(last).collect()
}

/// Regression: with 7 repetitions against 4, a p of 0.012 was "no difference is significant", and 4 against 4
/// were too few in `report A B` and `compare`, but a regression in `report --diff`.
#[test]
fn the_outcome_is_the_same_in_each_command() {
    let lock_is_subject: fn(&str) -> bool = |lock| lock == "pv-ticket";
    for (repetitions, points, data, expected) in [
        // The lowest p is 2 of all ways to choose a side: 2/70, 2/330, 2/36, 2/45, 2/20, 2/924.
        ([4, 4], 1, Above, Outcome::More),
        ([4, 4], 2, Above, Outcome::TooFew),
        ([4, 4], 1, Mixed, Outcome::Unclear),
        ([4, 4], 1, Zero, Outcome::More),
        ([7, 4], 2, Above, Outcome::More),
        ([4, 7], 2, Above, Outcome::More),
        ([7, 4], 2, Mixed, Outcome::Unclear),
        ([7, 2], 1, Above, Outcome::TooFew),
        ([8, 2], 1, Above, Outcome::More),
        ([3, 3], 1, Above, Outcome::TooFew),
        ([6, 6], 2, Mixed, Outcome::Unclear),
        ([6, 6], 2, Above, Outcome::More),
    ] {
        let case = format!("{repetitions:?} in {points} with {data:?}");
        let vcpus = vec![3, 4][..points].to_vec();
        let locks = Fixture { vcpus, ..Fixture::default() };
        let one_lock = |seed| Fixture { seed, locks: vec![("ticket", "off")], ..locks.clone() };
        let record = run(&locks, data, lock_is_subject, repetitions);
        let study = Study::new(std::slice::from_ref(&record));
        let before = Study::new(&[run(&one_lock(2), data, |_| false, repetitions)]);
        let after = Study::new(&[run(&one_lock(3), data, |_| true, repetitions)]);
        let diff = Diff::new(before, after);
        // Only the locks' comparisons: the numbers of vCPUs have no baseline here.
        assert_eq!((study.comparisons.len(), diff.compared.len()), (points, points), "{case}");
        assert!(study.comparisons.iter().all(|pair| pair.outcome() == expected), "{case}");
        assert_eq!(diff.count(expected), points, "{case}");
        let documents =
            [Document::for_study(&study), Document::for_diff(&diff), Document::summary(&study)];
        let word = tables::outcome(expected, false);
        for (document, command) in documents.into_iter().zip(["report", "--diff", "compare"]) {
            let text = text::render(&document, text::Form::summary(200));
            let found = outcomes_in(&text);
            assert!(found.iter().all(|outcome| *outcome == word), "{case}: {found:?}\n{text}");
            assert!(found.len() == points || command == "compare", "{case}: {text}");
            let is_denied = text.contains("No difference") || text.contains("No significant");
            assert!(!is_denied || expected != Outcome::More, "{case}, {command}: {text}");
        }
        let title = titles::ratios(&study, Axis::Lock);
        assert!(
            !title.starts_with("No difference") || expected != Outcome::More,
            "{case}: {title}"
        );
    }
}
