//! Briefs of made-up runs.

use proptest::{
    prelude::*,
    sample::{select, subsequence},
};

use super::*;
use crate::si::ratio;
use study::{
    findings::Axis,
    point::{GuestKind, HostKind},
    store::record::Outcome,
    testing::{Fixture, figures, record},
};

/// A run with a spec of its own, as each comparison of `make run` has.
fn run(name: &str, fixture: &Fixture) -> RunRecord {
    let mut run = record(fixture);
    run.contents.run.spec = format!("name = \"{name}\"\n");
    run
}

fn payload() -> RunRecord {
    run("payload", &Fixture { policies: vec!["host"], vcpus: vec![2, 4], ..Fixture::default() })
}

fn schedules() -> RunRecord {
    let policies = vec!["rr", "deferred", "kick-boost"];
    run("schedules", &Fixture { policies, vcpus: vec![4], ..Fixture::default() })
}

/// The cells of the payload by a Linux guest in the emulated host.
fn linux() -> RunRecord {
    let mut linux = payload();
    linux.contents.run.spec = "name = \"linux\"\n".into();
    for cell in &mut linux.contents.cells {
        (cell.point.guest, cell.point.host) = (GuestKind::Linux, HostKind::Emulated);
    }
    linux
}

fn answer_of(runs: &[RunRecord]) -> String {
    Brief::new(runs).answer(WIDTH)
}

fn line<'a>(text: &'a str, part: &str) -> &'a str {
    text.lines().find(|line| line.contains(part)).unwrap_or_else(|| panic!("no {part:?}\n{text}"))
}

/// Two lengths of the critical section under two schedules.
fn sections() -> RunRecord {
    let mut run = schedules();
    let mut cells = run.contents.cells.clone();
    for cell in &mut cells {
        cell.cell += run.contents.run.cells;
        cell.point.critical = 5000;
    }
    run.contents.run.cells *= 2;
    run.contents.cells.extend(cells);
    run
}

/// Regression: bars of different points had one name.
#[test]
fn no_two_bars_have_one_name() {
    let chart = Brief::new(&[sections()]).chart(WIDTH);
    let bars = chart.lines().filter_map(|line| line.split_once('\u{2588}'));
    let mut names: Vec<&str> = bars.map(|(name, _)| name.trim_start_matches("  payload")).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert!(names.len() == all && all > 6, "{chart}");
}

/// Regression: one row that was too wide left all others unaligned.
#[test]
fn ratios_are_aligned_beside_a_wide_row() {
    let text = answer_of(&[sections()]);
    let column = |line: &str| line.find("x (").map(|at| line[..at].rfind("  ").unwrap_or(0));
    let mut columns: Vec<_> =
        text.lines().filter(|line| line.contains(" / ")).filter_map(column).collect();
    columns.dedup();
    assert_eq!(columns.len(), 1, "{text}");
}

/// Every ratio is the one of the study of its run, which `compare` prints.
#[test]
fn it_says_what_pv_and_the_schedule_gain() {
    let runs = [payload(), schedules(), linux()];
    let text = answer_of(&runs);
    let head = "Ticketlocks, 2 vCPUs per CPU: ratios of medians (95 %), 8 runs each\n";
    assert!(text.starts_with(head), "{text}");
    for (run, axis, name) in [
        (0, Axis::Lock, "payload  PV / native "),
        (1, Axis::Policy, "deferred / rr, native "),
        (1, Axis::Policy, "deferred / rr, PV "),
        (2, Axis::Lock, "Linux    PV / native "),
    ] {
        let study = Study::new(std::slice::from_ref(&runs[run]));
        let value = line(&text, name).split_once(name).unwrap().1.trim();
        let is_it = |comparison: &&study::findings::Comparison| {
            let times = comparison.ratio.unwrap();
            let within = times.interval.unwrap();
            let [times_text, low, high] = [times.value, within.low, within.high].map(ratio);
            comparison.axis == axis
                && study.points[comparison.subject].point.overcommit() == 2.0
                && value == format!("{times_text} ({low} .. {high})")
        };
        assert!(
            study.comparisons.iter().any(|comparison| is_it(&comparison)),
            "{name}: {value}\n{text}"
        );
    }
    // kick-boost is as rr in the fixture.
    let alike = line(&text, "kick-boost / rr, native");
    assert!(alike.contains(" no difference shown (0.") && alike.ends_with("x)"), "{text}");
    let note = text.split_once("Note: ").unwrap().1.replace('\n', " ");
    assert_eq!(
        note,
        "Linux ran on emulated CPUs: an order, not speeds; not measured: Linux under other \
         schedules. "
    );
    assert_eq!(text.lines().count(), 9, "{text}");
}

#[test]
fn what_was_not_measured_is_named() {
    let text = answer_of(&[payload()]);
    assert!(text.contains("Note: not measured: a Linux guest, other schedules.\n"), "{text}");
    assert!(!text.contains("Linux    "), "{text}");
    let text = answer_of(&[payload(), schedules()]);
    assert!(text.contains("Note: not measured: a Linux guest.\n"), "{text}");
    // There is room for what the schedules do.
    let text = text.replace('\n', " ");
    assert!(text.contains("deferred: a slice ends at the next moment out of any lock"), "{text}");
    let one = run("one", &Fixture { vcpus: vec![2], ..Fixture::default() });
    let brief = Brief::new(&[one]);
    let (answer, chart) = (brief.answer(WIDTH), brief.chart(WIDTH));
    assert!(answer.starts_with("Nothing was measured with more vCPUs than CPUs.\n"), "{answer}");
    assert!(chart.is_empty(), "{chart}");
}

#[test]
fn a_guest_that_failed_says_why() {
    let mut failed = linux();
    for cell in &mut failed.contents.cells {
        let (error, trace) = ("no kernel:\nmake kernel".to_owned(), String::new());
        cell.outcome = Outcome::Failed { error, trace };
    }
    let text = answer_of(&[payload(), failed]).replace('\n', " ");
    assert!(text.contains("Linux: none of 32 runs has figures: no kernel:?make kernel"), "{text}");
    assert!(text.contains("partial: 32 of 64 runs have figures"), "{text}");
}

#[test]
fn broken_locks_have_no_ratios() {
    let mut broken = payload();
    figures(&mut broken).next().unwrap().1.violations = 1;
    let text = answer_of(&[broken]);
    assert!(text.contains("Note: BROKEN: ") && !text.contains("PV / native"), "{text}");
}

/// A ratio is reported as a gain only if the rank-sum test confirms it, however large it is.
#[test]
fn what_the_test_does_not_confirm_is_unclear() {
    let studies = [payload()].map(|run| {
        let mut study = Study::new(&[run]);
        for comparison in &mut study.comparisons {
            comparison.verdict.significant = false;
            comparison.verdict.adjusted = Some(0.195);
        }
        study
    });
    let text = Brief::of(&studies).answer(WIDTH);
    assert!(line(&text, "PV / native").contains("unclear, p = 0.195 (7"), "{text}");
}

#[test]
fn too_few_runs_tell_nothing() {
    let few = Fixture { policies: vec!["host"], vcpus: vec![4], rounds: 3, ..Fixture::default() };
    let text = answer_of(&[run("few", &few)]);
    assert!(line(&text, "PV / native").ends_with("too few runs to tell"), "{text}");
    assert!(text.contains(", 3 runs each"), "{text}");
}

/// Without 2x, the ratio nearest above 1x; the guests need not have the same.
#[test]
fn each_guest_has_its_ratio() {
    let at = |vcpus| Fixture { policies: vec!["host"], vcpus, ..Fixture::default() };
    let mut other = run("linux", &at(vec![2, 3, 8]));
    for cell in &mut other.contents.cells {
        cell.point.guest = GuestKind::Linux;
    }
    let text = answer_of(&[run("payload", &at(vec![2, 3, 4, 8])), other]);
    assert!(text.starts_with("Ticketlocks, 2 vCPUs per CPU: "), "{text}");
    assert!(text.contains("\nLinux at 1.5x  PV / native "), "{text}");
}

#[test]
fn other_locks_keep_their_names() {
    let locks = vec![("ticket", "off"), ("pv-ticket", "doorbell"), ("queued", "off")];
    let fixture = Fixture { locks, policies: vec!["rr"], vcpus: vec![4], ..Fixture::default() };
    let text = answer_of(&[run("locks", &fixture)]);
    assert!(text.starts_with("2 vCPUs per CPU: "), "{text}");
    assert!(
        text.contains("pv-ticket-doorbell / ticket, rr ") && text.contains("queued / ticket, rr "),
        "{text}"
    );
}

/// A longer bar is a greater rate, and each has its rate at its end.
#[test]
fn bars_are_as_long_as_rates_are_great() {
    let chart = Brief::new(&[payload(), schedules(), linux()]).chart(WIDTH);
    let lines: Vec<&str> = chart.lines().collect();
    assert_eq!((lines.len(), lines[0]), (chart::MOST_LINES, ""), "{chart}");
    assert!(lines[11].starts_with("acquisitions/s, log "), "{chart}");
    assert!(lines[11].contains("1k") && lines[11].contains("1M"), "{chart}");
    assert!(lines[1].starts_with("  payload host, native "), "{chart}");
    assert!(lines[10].starts_with("          host, PV "), "{chart}");
    let full = |line: &str| line.matches('\u{2588}').count();
    let rate = |line: &str| {
        let text = line.rsplit(' ').next().unwrap();
        let number = |text: &str| text.parse::<f64>().unwrap();
        match (text.strip_suffix('M'), text.strip_suffix('k')) {
            (Some(text), _) => number(text) * 1e6,
            (_, Some(text)) => number(text) * 1e3,
            _ => number(text),
        }
    };
    let mut bars: Vec<(f64, usize)> =
        lines[1..11].iter().map(|line| (rate(line), full(line))).collect();
    bars.sort_by(|a, b| a.0.total_cmp(&b.0));
    assert!(bars.windows(2).all(|two| two[0].1 <= two[1].1), "{bars:?}\n{chart}");
    assert!(bars[0].1 > 0 && bars[0].1 * 2 < bars[9].1, "{bars:?}\n{chart}");
}

/// Runs of one spec are one study; a run that is named twice is not shown twice.
#[test]
fn runs_of_one_spec_are_pooled() {
    let text = answer_of(&[payload(), payload()]);
    assert!(text.contains(", 16 runs each"), "{text}");
    assert_eq!(text.matches("PV / native").count(), 1, "{text}");
}

/// Some windows of a run that were nine times as long as asked.
fn stopped(mut run: RunRecord, is_stopped: impl Fn(&study::point::Point) -> bool) -> RunRecord {
    let stopped = figures(&mut run).filter(|(point, _)| is_stopped(point));
    stopped.for_each(|(_, figures)| figures.seconds *= 9.0);
    run
}

#[test]
fn the_answer_is_one_sentence() {
    let answer = Brief::new(&[payload(), schedules(), linux()]).sentence;
    let part = |part: &str| answer.find(part).unwrap_or_else(|| panic!("no {part:?}: {answer}"));
    let places = [
        part("With 2 vCPUs per CPU, PV ticketlocks have "),
        part("x the throughput of native ones in the payload and "),
        part("x in Linux; native ticketlocks have "),
        part("x the throughput under deferred that they have under rr."),
    ];
    assert!(places.is_sorted() && places[0] == 0 && answer.ends_with('.'), "{answer}");
    let one = run("one", &Fixture { vcpus: vec![2], ..Fixture::default() });
    let nothing = Brief::new(&[one]).sentence;
    assert_eq!(nothing, "Nothing was measured with more vCPUs than CPUs.");
}

/// An answer does not hold if it rests on disturbed windows.
#[test]
fn an_answer_stands_or_falls_with_its_windows() {
    use crate::words::sentences::Tone;
    let standing = |runs: &[RunRecord]| {
        let sentence = Brief::new(runs).standing;
        (sentence.tone, sentence.text)
    };
    let (tone, text) = standing(&[payload()]);
    assert_eq!(tone, Tone::Neutral);
    assert!(text.starts_with("The answer holds: 1 of 1 difference is confirmed"), "{text}");
    assert!(text.ends_with("no window was disturbed."), "{text}");
    let first = stopped(payload(), |point| point.vcpus.get() == 2);
    let (_, text) = standing(&[first]);
    assert!(text.ends_with("without the disturbed windows, too."), "{text}");
    let native = |point: &study::point::Point| point.lock == locks::System::NativeTicket;
    let (tone, text) = standing(&[stopped(payload(), native)]);
    assert_eq!(tone, Tone::Caution);
    assert!(text.ends_with("this difference is not confirmed: payload: PV / native."), "{text}");
    let mut broken = payload();
    figures(&mut broken).next().unwrap().1.violations = 1;
    assert_eq!(standing(&[broken]).0, Tone::Bad);
    let few = Fixture { policies: vec!["host"], vcpus: vec![4], rounds: 3, ..Fixture::default() };
    let (tone, text) = standing(&[run("few", &few)]);
    assert_eq!((tone, text.contains("no answer yet")), (Tone::Caution, true), "{text}");
}

fn any_run() -> impl Strategy<Value = RunRecord> {
    let policies = "host rr fair:1,2,3,4,5,6,7,8,9,10,11,12,13,14 gang kick-boost deferred";
    let pv = ["vmm", "kvm"].map(|backend| ("pv-ticket", backend));
    let others = ["ticket", "queued", "mutex"].map(|lock| (lock, "off"));
    let odd = "a label without end, \u{1b}[31m and with a line\nfeed in the midst of its name";
    let fixture = (
        subsequence(policies.split(' ').collect::<Vec<_>>(), 1..6),
        subsequence([&pv[..], &others].concat(), 1..5),
        subsequence(vec![1, 2, 3, 4, 8], 1..5),
        select(vec![vec![""], vec![odd, "b"]]),
        subsequence(vec![5, 50, 5000], 1..3),
        select(vec![1, 6]),
    );
    let varied = (fixture, select(GuestKind::ALL.to_vec()), any::<bool>());
    varied.prop_map(|((policies, locks, vcpus, labels, critical, rounds), guest, fails)| {
        let fixture =
            Fixture { seed: 1, rounds, locks, policies, vcpus, critical, speed: 1.0, labels };
        let mut run = run(&format!("{fixture:?}"), &fixture);
        for cell in &mut run.contents.cells {
            cell.point.guest = guest;
            if fails && cell.cell % 2 == 0 {
                let error = "an error that is longer than a line and has no end, ".repeat(9);
                cell.outcome = Outcome::Failed { error, trace: String::new() };
            }
        }
        run
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn never_more_than_ten_lines_nor_wider_than_the_width(
        runs in prop::collection::vec(any_run(), 0..4),
        width in 0..200usize,
    ) {
        let brief = Brief::new(&runs);
        let (answer, chart) = (brief.answer(width), brief.chart(width));
        // The page's path has a line, too.
        prop_assert!(answer.lines().count() < MOST_LINES, "{answer}");
        prop_assert!(!answer.is_empty());
        prop_assert!(chart.lines().count() <= chart::MOST_LINES, "{chart}");
        let most = width.clamp(NARROWEST, WIDTH);
        for line in answer.lines().chain(chart.lines()) {
            prop_assert!(line.chars().count() <= most, "{most}: {line}");
            prop_assert!(!line.contains(base::shown::is_hidden), "{line:?}");
        }
    }
}
