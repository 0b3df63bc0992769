//! Answers of synthetic runs.

use super::{
    answer::answer,
    sentences::Sentence,
    tables,
    text::{self, tests::golden},
    titles,
};
use sched::driver::DriverKind;
use study::{
    findings::Study,
    testing::{Fixture, figures, record, schedules},
};

/// The answer has the figure and interval of a significant comparison of the study.
#[test]
fn answers_match_a_comparison() {
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

/// Regression (B3 of tests/HISTORY.md): waiters two places back were preempted 416 times a second, which wasted 98 % of
/// the time. The table showed LHP/s 0 and LWP/s 0, under the title "No preemption hits a holder or the next in line".
#[test]
fn queued_preemptions_are_reported() {
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
    let tables = tables::for_study(&study);
    let table = text::table(tables.iter().find(|table| table.id == "behaviour").unwrap(), 120);
    let row = table.lines().find(|line| line.contains("pv-ticket")).unwrap();
    let figures: Vec<&str> = row.split_whitespace().collect();
    assert!(figures.windows(3).any(|three| three == ["0", "0", "416"]), "{table}");
    assert_eq!(titles::preempted(&set(0)), "No preemption hits a holder or a waiter");
    let policies = Fixture { policies: vec!["rr", "fair"], vcpus: vec![8], ..Fixture::default() };
    let text = &answer(&Study::new(&[record(&policies)]))[0].text;
    assert!(text.contains("; a waiter further back is preempted up to "), "{text}");
}

/// Regression: the column LHP/s of a kernel without telemetry had the few holders that are observed. Old versions of
/// the driver `bpf` did not count wasted time either, but read telemetry.
#[test]
fn observed_preemptions_have_names_of_their_own() {
    let fixture = Fixture { policies: vec!["rr"], vcpus: vec![4], ..Fixture::default() };
    let row = |driver, is_uncounted| {
        let mut run = record(&fixture);
        run.contents.cells.iter_mut().for_each(|cell| cell.point.driver = driver);
        for (_, schedule) in schedules(&mut run) {
            schedule.waste_uncounted = is_uncounted;
            schedule.seconds = 1.0;
            (schedule.totals.lhp, schedule.totals.lwp, schedule.totals.queued) = (1, 2, 3);
        }
        let study = Study::new(&[run]);
        let tables = tables::for_study(&study);
        let table = text::table(tables.iter().find(|table| table.id == "behaviour").unwrap(), 160);
        let json = serde_json::to_value(study.points[0].preempted).unwrap();
        (table, json, titles::preempted(&study))
    };
    let (table, json, title) = row(DriverKind::User, true);
    assert!(title.contains(" times a second (observed): "), "{title}");
    assert!(table.contains("Jain  observed LHP/s  observed LWP/s  observed queued/s"), "{table}");
    let figures: Vec<&str> = table.lines().last().unwrap().split_whitespace().collect();
    assert!(figures.ends_with(&["1.00", "2.00", "3.00"]), "{table}");
    assert_eq!((&json["observed_lhp"], &json["lhp"]), (&1.0.into(), &serde_json::Value::Null));
    for published in [(DriverKind::User, false), (DriverKind::Bpf, true)] {
        let (table, json, title) = row(published.0, published.1);
        assert!(!table.contains("observed") && !title.contains("observed"), "{title}: {table}");
        assert_eq!((&json["lwp"], &json["observed_lwp"]), (&2.0.into(), &serde_json::Value::Null));
    }
}

/// In `golden/answers.txt`: the effects and targets of policies on the axis, and no answer with too few
/// repetitions or broken locks.
#[test]
fn answers_match_golden_file() {
    let fixture = |policies| Fixture { policies, vcpus: vec![8], ..Fixture::default() };
    let few = Fixture { rounds: 3, ..Fixture::default() };
    let mut broken = record(&few);
    figures(&mut broken).next().unwrap().1.violations = 1;
    let mut text = String::new();
    for (name, run) in [
        ("three policies", record(&fixture(vec!["rr", "fair", "deferred"]))),
        ("two policies", record(&fixture(vec!["rr", "fair"]))),
        ("three rounds", record(&few)),
        ("broken", broken),
    ] {
        text += &format!("== {name}\n");
        for Sentence { tone, figure, text: sentence } in answer(&Study::new(&[run])) {
            text += &format!("{tone:?} [{figure}] {sentence}\n");
        }
    }
    golden("answers", &text);
}
