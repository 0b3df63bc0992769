//! Differences by ranks with medians in the opposite direction.

use super::{answer::answer, diff as diff_words, regressions, sentences, tables, text, titles};
use crate::{brief, document::Document};
use study::{
    findings::{Axis, Diff, RunRecord, Study, compare::Outcome},
    testing::{Fixture, figures, record},
};

/// Bimodal rates: ticketlocks have a middle and a low mode, the others a slightly lower middle mode and a
/// high mode. The middle mode has one repetition more.
fn rate(lock: &str, round: u32) -> f64 {
    let jitter = f64::from(round) / 1000.0;
    match (lock, round < 11) {
        ("ticket", true) => 1000.0 + jitter,
        ("ticket", false) => 100.0 + jitter,
        (_, true) => 990.0 + jitter,
        (_, false) => 2000.0 + jitter,
    }
}

fn two_modes() -> RunRecord {
    let fixture =
        Fixture { rounds: 21, policies: vec!["rr"], vcpus: vec![4], ..Fixture::default() };
    let mut run = record(&fixture);
    let rounds: Vec<u32> = run.contents.cells.iter().map(|cell| cell.round).collect();
    for ((point, figures), round) in figures(&mut run).zip(rounds) {
        figures.seconds = figures.all_operations() / rate(point.lock.name(), round);
    }
    run
}

const OTHER_WAY: &str = "by ranks: the medians are in the opposite order";

/// Regression: "pv-ticket beats ticket 0.99x (p = 0.01)".
#[test]
fn contrary_ratios_are_reported() {
    let run = two_modes();
    let study = Study::new(std::slice::from_ref(&run));
    let comparison = &study.comparisons[0];
    assert_eq!(comparison.outcome(), Outcome::More);
    assert!(comparison.ratio.unwrap().value < 1.0 && comparison.is_contrary(), "{comparison:?}");
    let texts = [
        sentences::findings(&study)[0].text.clone(),
        sentences::comparison(&study, comparison),
        answer(&study).last().unwrap().text.clone(),
        titles::ratios(&study, Axis::Lock),
        text::render(&Document::for_study(&study), text::Form::MAIL).replace("\n  ", " "),
    ];
    for text in texts {
        assert!(text.contains(OTHER_WAY), "{text}");
    }
    // The figures next to sentences are coloured by the direction.
    assert!(sentences::findings(&study)[0].figure.is_empty());
    assert!(answer(&study).last().unwrap().figure.is_empty());
    let tables = tables::for_study(&study);
    let table = tables.iter().find(|table| table.id == "comparisons").unwrap();
    assert!(text::table(table, 120).contains("more (ranks)"));
    assert!(brief::Brief::new(&[run]).answer(100).contains("more by ranks, medians 0.99x"));
}

/// The same for two runs: a regression with a ratio above 1.
#[test]
fn regressions_by_ranks_are_marked() {
    let only = |lock: &str| {
        let mut run = two_modes();
        run.contents.cells.retain(|cell| cell.point.lock.name() == lock);
        for cell in &mut run.contents.cells {
            cell.point.lock = "ticket".parse().unwrap();
            cell.point.backend = "off".parse().unwrap();
        }
        Study::new(&[run])
    };
    let diff = Diff::new(only("pv-ticket"), only("ticket"));
    let [regression] = &regressions::lines(&diff)[..] else { panic!("{:?}", diff.compared) };
    assert!(regression.starts_with("1.01x") && regression.contains(OTHER_WAY), "{regression}");
    assert!(diff_words::verdict(&diff)[0].text.contains(OTHER_WAY));
    assert!(diff_words::verdict(&diff)[0].figure.is_empty());
    let table = text::table(&diff_words::tables(&diff)[0], 120);
    assert!(table.contains("less (ranks)"), "{table}");
    assert!(text::render(&Document::for_diff(&diff), text::Form::MAIL).contains("1.01x (ranks)"));
}
