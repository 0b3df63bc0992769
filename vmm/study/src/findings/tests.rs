//! Studies of synthetic runs.

use super::{
    super::{
        point::GuestKind,
        store::record::Outcome as Ended,
        testing::{Fixture, record},
    },
    compare::Outcome,
    *,
};

fn study(fixture: &Fixture) -> Study {
    Study::new(&[record(fixture)])
}

fn find<'a>(study: &'a Study, lock: &str, policy: &str, vcpus: u32) -> &'a PointStudy {
    let is_point = |study: &&PointStudy| {
        let point = &study.point;
        point.lock.name() == lock && point.policy.name() == policy && point.vcpus.get() == vcpus
    };
    study.points.iter().find(is_point).unwrap()
}

/// Returns the point and the baseline of each comparison along `axis`.
fn compared(study: &Study, axis: Axis) -> Vec<(&Point, &Point)> {
    let comparisons = study.comparisons.iter().filter(|comparison| comparison.axis == axis);
    let point = |ix: usize| &study.points[ix].point;
    comparisons.map(|comparison| (point(comparison.subject), point(comparison.against))).collect()
}

/// Whether `holds` is true for the subject and the baseline of each comparison.
fn are_all(compared: &[(&Point, &Point)], holds: impl Fn(&Point, &Point) -> bool) -> bool {
    compared.iter().all(|(subject, against)| holds(subject, against))
}

/// Regression: a schedule that preempted no holder had no figure, so its published row was not scored.
#[test]
fn unpreempted_holders_have_a_lower_bound() {
    let study = study(&Fixture::default());
    let [mut base, mut changed] =
        [find(&study, "ticket", "rr", 8), find(&study, "ticket", "rr", 4)].map(Clone::clone);
    let windows = 8.0 * changed.point.duration.as_secs_f64();
    let mut set = |base_rate: f64, changed_rate: f64| {
        base.preempted.as_mut().unwrap().in_lock.lhp = base_rate;
        changed.preempted.as_mut().unwrap().in_lock.lhp = changed_rate;
        base.holder_preemptions_over(&changed)
    };
    assert_eq!(set(12.0, 3.0), Some(4.0));
    assert!((set(12.0, 0.0).unwrap() - 12.0 * windows).abs() < 1e-9, "one in all windows");
    assert_eq!((set(0.0, 3.0), set(0.0, 0.0)), (None, None));
    let host = find(&study, "ticket", "host", 8);
    assert_eq!(base.holder_preemptions_over(host), None, "not counted");
}

#[test]
fn points_have_all_their_repetitions() {
    let study = study(&Fixture::default());
    assert_eq!((study.points.len(), study.done(), study.cells()), (16, 128, 128));
    assert!(study.points.iter().all(|point| point.repetitions.len() == 8));
    assert_eq!(study.varying, [Axis::Lock, Axis::Backend, Axis::Policy, Axis::Vcpus]);
    let point = find(&study, "ticket", "rr", 8);
    let preempted = point.preempted.unwrap();
    assert!(
        preempted.in_lock.lwp > preempted.in_lock.lhp && preempted.wasted_share > Some(0.9),
        "{preempted:?}"
    );
    let (wasted, share) = preempted.wasted.zip(preempted.wasted_share).unwrap();
    assert!((wasted - 2.0 * share).abs() < 1e-9, "of two slots");
    assert_eq!(find(&study, "ticket", "host", 8).preempted, None);
    assert!(find(&study, "pv-ticket", "rr", 8).times_of(Timed::KickToGrant).is_some());
    assert!(find(&study, "ticket", "rr", 8).times_of(Timed::KickToGrant).is_none());
}

#[test]
fn repetitions_of_other_seeds_are_pooled() {
    let [mut a, b] = [1, 2].map(|seed| record(&Fixture { seed, ..Fixture::default() }));
    for cell in &mut a.contents.cells {
        cell.point.seed = 77;
    }
    let study = Study::new(&[a, b]);
    assert_eq!(study.points.len(), 16);
    assert!(study.points.iter().all(|point| point.repetitions.len() == 16));
    // Repetitions are paired if their run, round and seed are the same.
    assert!(study.comparisons.iter().all(|comparison| comparison.pairs == 16));
}

/// Regression: a run named twice had twice as many repetitions, and a tenth of its p.
#[test]
fn repeated_runs_count_once() {
    let run = RunRecord { source: "whole".into(), ..record(&Fixture::default()) };
    let mut part = RunRecord { source: "part".into(), ..run.clone() };
    part.contents.cells.truncate(3);
    let second = record(&Fixture { seed: 2, ..Fixture::default() });
    let (unique, repeats) = without_repeats(vec![part, run.clone(), second.clone(), run.clone()]);
    assert_eq!(unique, [run, second]);
    let repeat =
        |source: &str| Repeat { source: source.into(), first: "whole".into(), unique_cells: 0 };
    assert_eq!(repeats, [repeat("whole"), repeat("part")]);
}

/// Regression: if two copies were resumed separately, the copy with fewer cells was left out entirely.
#[test]
fn resumed_copies_add_their_cells() {
    let mut first = RunRecord { source: "first".into(), ..record(&Fixture::default()) };
    let mut copy = RunRecord { source: "copy".into(), ..first.clone() };
    let total = first.contents.cells.len();
    copy.contents.cells.truncate(total - 1);
    for cell in &mut copy.contents.cells[total - 3..] {
        cell.at_ms += 1_000_000;
    }
    let resumed = copy.contents.cells[total - 3..].to_vec();
    let (unique, repeats) = without_repeats(vec![copy, first.clone()]);
    assert_eq!(unique.len(), 2);
    assert_eq!((&unique[0], &unique[1].contents.cells), (&first, &resumed));
    let repeat = Repeat { source: "copy".into(), first: "first".into(), unique_cells: 2 };
    assert_eq!(repeats, [repeat]);
    // The shortest copy comes first, and the longest copy has its cells, too.
    let mut short = RunRecord { source: "short".into(), ..first.clone() };
    short.contents.cells = first.contents.cells[total - 2..].to_vec();
    let mut middle = RunRecord { source: "middle".into(), ..first.clone() };
    middle.contents.cells.truncate(total - 4);
    middle.contents.cells.extend(resumed.clone());
    let (unique, _) = without_repeats(vec![short, middle, first.clone()]);
    let cells = unique.iter().map(|record| record.contents.cells.len());
    assert_eq!(cells.collect::<Vec<_>>(), [total, resumed.len()]);
    // No cell is a repeat: both copies were continued from the start.
    first.contents.cells.truncate(4);
    let mut records = vec![first.clone(), RunRecord { source: "other".into(), ..first }];
    records[1].contents.cells.iter_mut().for_each(|cell| cell.at_ms += 1);
    assert_eq!(without_repeats(records.clone()), (records, Vec::new()));
}

/// Regression: only NaN was tested; the other lengths yielded figures of cells without duration.
#[test]
fn cells_without_duration_have_no_figures() {
    for seconds in [0.0, -1.0, f64::NAN, 1e-320] {
        let mut run = record(&Fixture::default());
        let point = run.contents.cells[0].point.clone();
        if let Ended::Done { figures } = &mut run.contents.cells[0].outcome {
            figures.seconds = seconds;
        }
        let study = Study::new(&[run]);
        assert_eq!(study.lost.len(), 1, "{seconds}");
        assert_eq!(study.lost[0].error.as_deref(), Some("its figures are impossible"));
        let measured = study.points.iter().find(|study| study.point == point).unwrap();
        assert!(measured.rates().iter().all(|rate| *rate > 0.0 && rate.is_finite()), "{seconds}");
    }
}

/// Regression: 16 processes on 16 vCPUs, and 20 threads on 20, were taken for one worker on each vCPU.
#[test]
fn fairness_compares_vcpus() {
    let fairness = |guest: GuestKind, workload: &str, vcpus: u32, operations: usize| {
        let mut run = record(&Fixture { vcpus: vec![vcpus], ..Fixture::default() });
        for cell in &mut run.contents.cells {
            cell.point.guest = guest;
            cell.point.workload = workload.into();
            if let Ended::Done { figures } = &mut cell.outcome {
                figures.operations.resize(operations, 1);
            }
        }
        Study::new(&[run]).points[0].fairness
    };
    let linux = GuestKind::Linux;
    for (workload, workers) in [("mmap", 16), ("messaging", 20), ("another", 4)] {
        assert_eq!(fairness(linux, workload, workers, workers as usize), None, "{workload}");
    }
    for workload in
        ["lock", "open-read-close", "allocate", "spawn", "futex", "eventfd", "shootdown"]
    {
        assert!(fairness(linux, workload, 16, 16).is_some(), "{workload}");
    }
    assert_eq!(fairness(linux, "futex", 16, 4), None, "a store is data");
    let payload = GuestKind::Payload;
    assert_eq!(fairness(payload, "hot-line", 4, 4), None, "the last one only reads");
    for (guest, workload) in [(payload, "mixed"), (GuestKind::Sim, "lock")] {
        assert!(fairness(guest, workload, 4, 4).is_some(), "{workload}");
    }
}

/// Regression: a cell that was stopped for four of its five seconds counted like any other.
#[test]
fn overlong_windows_are_marked() {
    let mut run = record(&Fixture::default());
    let quiet = Study::new(std::slice::from_ref(&run));
    assert!(quiet.points.iter().all(|point| point.disturbance.is_none()));
    let requested = run.contents.cells[0].point.duration.as_secs_f64();
    if let Ended::Done { figures } = &mut run.contents.cells[0].outcome {
        figures.seconds = requested * 1.2 + 0.051;
    }
    let study = Study::new(&[run]);
    let overlong = study.points.iter().filter_map(|point| point.disturbance.overlong);
    assert_eq!(overlong.collect::<Vec<_>>(), [(1, requested * 1.2 + 0.051)]);
}

#[test]
fn points_are_compared_with_their_baselines() {
    let study = study(&Fixture::default());
    let locks = compared(&study, Axis::Lock);
    assert_eq!(locks.len(), 8);
    assert!(are_all(&locks, |subject, against| {
        (subject.lock.name(), against.lock.name()) == ("pv-ticket", "ticket")
            && (&subject.policy, subject.vcpus) == (&against.policy, against.vcpus)
    }));
    let policies = compared(&study, Axis::Policy);
    assert_eq!(policies.len(), 8);
    assert!(are_all(&policies, |subject, against| !subject.policy.is_host()
        && against.policy.is_host()));
    assert_eq!(study.comparisons.len(), 16);
    assert_eq!(study.findings.len(), 4);
    assert!(study.findings.iter().all(|finding| finding.comparisons.len() == 4));
}

#[test]
fn the_specs_first_value_is_the_baseline() {
    let mut run = record(&Fixture::default());
    run.contents.run.spec = "policies = [\"rr\", \"host\"]\nvcpus = [2]\n".into();
    let study = Study::new(&[run]);
    let policies = compared(&study, Axis::Policy);
    assert!(are_all(&policies, |subject, against| subject.policy.is_host()
        && !against.policy.is_host()));
}

#[test]
fn equal_points_under_two_labels_do_not_differ() {
    let fixture = Fixture { labels: vec!["a", "b"], policies: vec!["rr"], ..Fixture::default() };
    let study = study(&fixture);
    let labels = compared(&study, Axis::Label);
    assert_eq!(labels.len(), 8);
    assert!(are_all(&labels, |subject, against| (&*subject.label, &*against.label) == ("b", "a")));
    let of_labels = study.comparisons.iter().filter(|comparison| comparison.axis == Axis::Label);
    assert!(of_labels.into_iter().all(|comparison| comparison.outcome() == Outcome::Unclear));
    // A lock is compared with the baseline of the same label.
    let locks = compared(&study, Axis::Lock);
    assert!(are_all(&locks, |subject, against| subject.label == against.label));
}

#[test]
fn outcomes_follow_the_figures() {
    let many = study(&Fixture::default());
    for comparison in many.comparisons.iter().filter(|comparison| comparison.axis == Axis::Lock) {
        let is_crowded = many.points[comparison.subject].point.overcommit() > 1.0;
        let expected = if is_crowded { Outcome::More } else { Outcome::Unclear };
        assert_eq!(comparison.outcome(), expected);
    }
    let few = study(&Fixture { rounds: 5, ..Fixture::default() });
    let too_few = |comparison: &Comparison| comparison.outcome() == Outcome::TooFew;
    assert!(few.comparisons.iter().all(too_few));
}

#[test]
fn the_last_outcome_of_a_cell_counts() {
    let mut run = record(&Fixture::default());
    let mut aborted = run.contents.cells[3].clone();
    aborted.outcome = Ended::Aborted;
    run.contents.cells.insert(0, aborted);
    let error = "4 vCPUs: a kick was lost".to_owned();
    run.contents.cells[9].outcome = Ended::Failed { error, trace: String::new() };
    let study = Study::new(&[run]);
    assert_eq!((study.done(), study.lost.len()), (127, 1));
    assert_eq!(study.lost[0].error.as_deref(), Some("4 vCPUs: a kick was lost"));
}

/// Rounds selected by `is_fast` ran on a node that is ten times as fast.
fn on_two_nodes(fixture: &Fixture, is_fast: impl Fn(u32) -> bool) -> RunRecord {
    let mut run = record(fixture);
    for cell in &mut run.contents.cells {
        let is_fast = is_fast(cell.round);
        cell.node = Some(if is_fast { "fast" } else { "slow" }.to_owned());
        if let Ended::Done { figures } = &mut cell.outcome
            && is_fast
        {
            figures.seconds /= 10.0;
        }
    }
    run
}

#[test]
fn another_mix_of_nodes_is_no_regression() {
    let fixture = Fixture::default();
    let run = |is_fast: fn(u32) -> bool| Study::new(&[on_two_nodes(&fixture, is_fast)]);
    let few = Diff::new(run(|round| round < 6), run(|round| round < 2));
    assert_eq!((few.compared.len(), few.regressions().len()), (16, 0));
    let mut ratios = few.compared.iter().filter_map(|both| both.ratio);
    assert!(ratios.all(|ratio| (0.5..2.0).contains(&ratio.value)));
    let none = Diff::new(run(|_| true), run(|_| false));
    assert!(none.gaps().iter().all(|(_, gap)| *gap == diff::Gap::Apart), "{:?}", none.gaps());
    assert!(none.regressions().is_empty() && none.compared.iter().all(|both| both.ratio.is_none()));
}

/// Every second round ran on a node that is ten times as fast. Nodes are blocks, so differences within both
/// are found.
#[test]
fn nodes_are_blocks() {
    let mut run = on_two_nodes(&Fixture::default(), |round| round % 2 == 1);
    let significant = |run: &RunRecord| {
        let study = Study::new(std::slice::from_ref(run));
        let pv = find(&study, "pv-ticket", "rr", 8).blocks(find(&study, "ticket", "rr", 8));
        let count =
            study.comparisons.iter().filter(|comparison| comparison.verdict.significant).count();
        (pv.iter().map(|(a, b)| (a.len(), b.len())).collect::<Vec<_>>(), count)
    };
    let (blocks, by_node) = significant(&run);
    assert_eq!(blocks, [(4, 4), (4, 4)]);
    run.contents.cells.iter_mut().for_each(|cell| cell.node = None);
    let (blocks, pooled) = significant(&run);
    assert_eq!(blocks, [(8, 8)]);
    assert!(by_node > pooled, "{by_node} differences by node, {pooled} without");
}

#[test]
fn diffs_list_common_and_missing_points() {
    let complete = study(&Fixture::default());
    let slow = Fixture { seed: 5, speed: 0.25, policies: vec!["rr"], ..Fixture::default() };
    let mut run = record(&slow);
    run.contents.sessions[0].host.kernel = "6.19".into();
    run.contents.sessions[0].host.load_average = vec![9.0];
    let diff = Diff::new(complete, Study::new(&[run]));
    assert_eq!((diff.compared.len(), diff.only_before.len(), diff.only_after.len()), (8, 8, 0));
    assert!(diff.compared.iter().all(|both| both.ratio.unwrap().value < 1.0));
    assert!(diff.compared.iter().filter(|both| both.verdict.significant).count() >= 6);
    let facts: Vec<&str> = diff.differences.iter().map(|differs| differs.fact.as_str()).collect();
    assert_eq!(facts, ["kernel"]);
}

/// A4 of tests/HISTORY.md: with Linux guests, the schedule's account covers another interval than the window
/// in which operations are counted.
#[test]
fn schedule_rates_use_the_accounted_time() {
    let mut run = record(&Fixture::default());
    let rate = |run: &RunRecord| {
        find(&Study::new(std::slice::from_ref(run)), "ticket", "rr", 8)
            .preempted
            .unwrap()
            .in_lock
            .lwp
    };
    let in_window = rate(&run);
    for cell in &mut run.contents.cells {
        if let Ended::Done { figures } = &mut cell.outcome {
            let window = figures.seconds;
            if let Some(schedule) = &mut figures.schedule {
                schedule.seconds = 2.0 * window;
            }
        }
    }
    assert!((rate(&run) - in_window / 2.0).abs() < 1e-9 * in_window, "{in_window}");
}
