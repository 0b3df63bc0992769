//! Answers of made-up runs.

use super::{answer::answer, sentences::Tone};
use study::{
    findings::Study,
    store::record::Outcome,
    testing::{Fixture, record},
};

fn answers(fixture: &Fixture) -> Vec<(Tone, String, String)> {
    let all = answer(&Study::new(&[record(fixture)]));
    all.into_iter().map(|sentence| (sentence.tone, sentence.figure, sentence.text)).collect()
}

#[test]
fn overcommit_costs_this_much_and_the_lock_saves_that() {
    let all = answers(&Fixture::default());
    let [(Tone::Less, _, fall), (Tone::More, figure, gain)] = &all[..] else { panic!("{all:?}") };
    let parts =
        ["ticket (under ", " falls from ", "M acquisitions/s (95 % ", ") at 1x to ", ") at 4x."];
    assert!(parts.iter().all(|part| fall.contains(part)), "{fall}");
    let begin = format!("pv-ticket has {figure} the throughput of ticket at 1.5x (under the host");
    assert!(gain.starts_with(&begin) && gain.contains(" (95 % "), "{gain}");
    assert!(gain.ends_with(" 6 of 8 differences by lock are significant."), "{gain}");
}

/// The figures and the p of the answer are those of the comparison that it names.
#[test]
fn an_answer_is_judged_as_the_tables_are() {
    let study = Study::new(&[record(&Fixture::default())]);
    let sentence = answer(&study).pop().unwrap();
    let ratio = crate::si::ratio;
    let is_it = |comparison: &&study::findings::Comparison| {
        comparison.verdict.significant
            && comparison.ratio.is_some_and(|times| ratio(times.value) == sentence.figure)
    };
    let comparison = study.comparisons.iter().find(is_it).unwrap();
    let within = comparison.ratio.unwrap().interval.unwrap();
    let within = format!("95 % {} .. {}", ratio(within.low), ratio(within.high));
    assert!(sentence.text.contains(&within), "{}", sentence.text);
}

#[test]
fn policies_on_the_axis_are_compared_and_their_preemptions_said() {
    let policies = vec!["rr", "fair", "deferred"];
    let all = answers(&Fixture { policies, vcpus: vec![8], ..Fixture::default() });
    let [(Tone::Neutral, _, hits), (Tone::More, figure, gain)] = &all[..] else {
        panic!("{all:?}")
    };
    assert!(hits.starts_with("A lock's holder is preempted up to "), "{hits}");
    assert!(hits.contains("; the next in line is preempted up to "), "{hits}");
    let begin = format!("deferred has {figure} the throughput of rr (ticket) (95 % ");
    assert!(gain.starts_with(&begin) && gain.contains("). 2 of 4"), "{gain}");
    assert!(gain.ends_with("2 of 4 differences by policy are significant."), "{gain}");
}

#[test]
fn no_difference_is_said_with_its_range() {
    let policies = vec!["rr", "fair"];
    let all = answers(&Fixture { policies, vcpus: vec![8], ..Fixture::default() });
    let text = &all.last().unwrap().2;
    assert!(text.starts_with("No difference by policy is significant: "), "{text}");
}

#[test]
fn too_few_repetitions_and_broken_locks_answer_nothing() {
    let few = Fixture { rounds: 3, ..Fixture::default() };
    let all = answers(&few);
    assert!(all.last().unwrap().2.starts_with("No difference can be significant"), "{all:?}");
    let mut run = record(&few);
    if let Outcome::Done { figures } = &mut run.contents.cells[0].outcome {
        figures.violations = 1;
    }
    assert!(answer(&Study::new(&[run])).is_empty());
}
