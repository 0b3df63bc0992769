//! Counts of one in all texts about a run.

use super::text::{Form, render};
use crate::{document::Document, html};
use study::{
    findings::{Diff, RunRecord, Study},
    store::record::Outcome,
    testing::{Fixture, record},
};

/// Nouns that reports count.
const COUNTED: &str = "vCPUs CPUs slots cells points runs rounds repetitions comparisons costs nodes lines checks times \
                       tickets";

/// All texts about this run.
fn texts(run: &RunRecord) -> Vec<String> {
    let study = || Study::new(std::slice::from_ref(run));
    let diff = Diff::new(study(), study());
    vec![
        render(&Document::summary(&study()), Form::summary(100)),
        render(&Document::for_study(&study()), Form::terminal(100)),
        render(&Document::for_study(&study()), Form::MAIL),
        render(&Document::for_diff(&diff), Form::MAIL),
        html::page(&study(), None).unwrap(),
        html::document_page(Document::for_diff(&diff)).unwrap(),
        study().points[0].point.to_string(),
    ]
}

/// Regression (D3, D4 of tests/HISTORY.md): the command of a run was repeated below each of its figures, and
/// the CPUs of a host were listed one by one.
#[test]
fn commands_appear_once_and_cpus_are_ranges() {
    let mut run = record(&Fixture::default());
    run.contents.run.cpus = (0..128).chain(256..384).collect();
    for text in texts(&run) {
        let commands = text.matches(" --dir again").count();
        let distinct: std::collections::BTreeSet<&str> =
            text.lines().filter(|line| line.contains(" --dir again")).collect();
        // A page folds the command of each figure.
        let is_page = text.starts_with("<!");
        assert!(is_page || commands == distinct.len(), "{text}");
        assert!(!text.contains("126, 127") && !text.contains("126,127"), "{text}");
    }
}

/// Regression: `1 vCPUs on 2 CPUs`, `1 cells of 1 points`, `no ratios in 1 comparisons`.
#[test]
fn counts_of_one_are_singular() {
    let small = Fixture { rounds: 1, vcpus: vec![1], policies: vec!["rr"], ..Fixture::default() };
    let mut failed = record(&small);
    let error = "no kernel".to_owned();
    failed.contents.cells[0].outcome = Outcome::Failed { error, trace: String::new() };
    let alone = record(&Fixture { locks: vec![("ticket", "off")], ..small.clone() });
    for run in [record(&small), failed, alone] {
        for text in texts(&run) {
            let is_wrong = |line: &&str| {
                let words: Vec<&str> = line.split_whitespace().collect();
                words.windows(2).any(|pair| {
                    let noun = pair[1].trim_matches(|letter: char| !letter.is_alphanumeric());
                    pair[0].trim_start_matches('(') == "1"
                        && COUNTED.split(' ').any(|counted| counted == noun)
                })
            };
            assert_eq!(text.lines().find(is_wrong), None, "{text}");
        }
    }
}
