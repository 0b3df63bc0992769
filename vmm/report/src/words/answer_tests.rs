//! Tests of the answers, on made-up runs.

use super::{answer::answer, sentences::Tone, tables, text, titles};
use study::{
    findings::Study,
    testing::{Fixture, figures, record, schedules},
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

/// The figure and the interval of the answer are those of a significant comparison of the study.
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

/// Regression (B3 of tests/HISTORY.md): waiters two places back were preempted 416 times a second, which wasted 98 % of
/// the time. The table showed LHP/s 0 and LWP/s 0, under the title "No preemption hits a holder or the next in line".
#[test]
fn waiters_further_back_are_counted_where_holders_are() {
    let mut run = record(&Fixture { policies: vec!["rr"], vcpus: vec![4], ..Fixture::default() });
    let mut set = |queued: u64| {
        figures(&mut run).for_each(|(_, figures)| figures.seconds = 0.5);
        for (_, schedule) in schedules(&mut run) {
            (schedule.totals.lhp, schedule.totals.lwp) = (0, 0);
            schedule.totals.queued = queued;
        }
        Study::new(std::slice::from_ref(&run))
    };
    let study = set(208);
    let title = titles::preempted(&study);
    assert!(
        title.starts_with("A waiter further back is preempted up to 416 times a second: "),
        "{title}"
    );
    let all = tables::all(&study);
    let table = text::table(all.iter().find(|table| table.id == "behaviour").unwrap(), 120);
    let row = table.lines().find(|line| line.contains("pv-ticket")).unwrap();
    let figures: Vec<&str> = row.split_whitespace().collect();
    assert!(figures.windows(3).any(|three| three == ["0", "0", "416"]), "{table}");
    assert_eq!(titles::preempted(&set(0)), "No preemption hits a holder or a waiter");
    let policies = Fixture { policies: vec!["rr", "fair"], vcpus: vec![8], ..Fixture::default() };
    assert!(answers(&policies)[0].2.contains("; a waiter further back is preempted up to "));
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
    figures(&mut run).next().unwrap().1.violations = 1;
    assert!(answer(&Study::new(&[run])).is_empty());
}
