//! Studies of measurements in several places: nodes of parts, hosts, simulations.

use super::{
    super::{
        point::GuestKind,
        store::record::Outcome as Ended,
        testing::{Fixture, record},
    },
    compare::Outcome,
    diff::Gap,
    *,
};

/// One comparison: a native and a PV lock under one schedule.
fn small(rounds: u32) -> Fixture {
    Fixture { rounds, policies: vec!["rr"], vcpus: vec![4], ..Fixture::default() }
}

fn set_rate(cell: &mut CellLine, rate: f64) {
    if let Ended::Done { figures } = &mut cell.outcome {
        figures.seconds = figures.all_operations() / rate;
    }
}

/// Sets the rate of each cell, by its lock and its round.
fn with_rates(fixture: &Fixture, rate: impl Fn(&str, u32) -> f64) -> RunRecord {
    let mut run = record(fixture);
    for cell in &mut run.contents.cells {
        set_rate(cell, rate(cell.point.lock.name(), cell.round));
    }
    run
}

/// Sets the node of each cell, by its lock and its round.
fn on_nodes(fixture: &Fixture, node: impl Fn(&str, u32) -> String) -> RunRecord {
    let mut run = record(fixture);
    for cell in &mut run.contents.cells {
        cell.node = Some(node(cell.point.lock.name(), cell.round));
    }
    run
}

fn node(is_first: bool) -> String {
    if is_first { "a" } else { "b" }.to_owned()
}

/// Asserts that the comparison finds a rate higher by half.
fn assert_half_more(comparison: &Comparison) {
    assert_eq!(comparison.outcome(), Outcome::More, "{comparison:?}");
    let ratio = comparison.ratio.unwrap().value;
    assert!((1.4..1.6).contains(&ratio), "{ratio}");
}

fn on_another_host(mut run: RunRecord) -> RunRecord {
    run.contents.sessions.iter_mut().for_each(|session| session.host.cpu = "another CPU".into());
    run
}

/// Retains the rounds for which `is_kept` is true.
fn retain_rounds(run: &mut RunRecord, is_kept: impl Fn(&str, u32) -> bool) {
    run.contents.cells.retain(|cell| is_kept(cell.point.lock.name(), cell.round));
}

/// A PV lock is 1.5 times as fast as the native lock on both hosts, but one host is ten times as fast as the
/// other. The PV lock was measured mostly on the slow host, the native lock mostly on the fast host.
fn unequal_mix(fast: u32, slow: u32) -> [RunRecord; 2] {
    let rate = |speed: f64| {
        move |lock: &str, round: u32| {
            let times = if lock == "ticket" { 1.0 } else { 1.5 };
            speed * times * (1.0 + f64::from(round) / 1000.0)
        }
    };
    let is_kept = |native: u32, pv: u32| {
        move |lock: &str, round: u32| round < if lock == "ticket" { native } else { pv }
    };
    let mut on_fast = with_rates(&small(fast + slow), rate(10e3));
    retain_rounds(&mut on_fast, is_kept(fast, slow));
    let mut on_slow = with_rates(&Fixture { seed: 2, ..small(fast + slow) }, rate(1e3));
    retain_rounds(&mut on_slow, is_kept(slow, fast));
    [on_fast, on_slow]
}

/// Regression: runs of two hosts were one block if they had no nodes.
#[test]
fn hosts_are_blocks() {
    let [fast, slow] = unequal_mix(6, 2);
    let study = Study::new(&[fast, on_another_host(slow)]);
    let [comparison] = &study.comparisons[..] else { panic!("{:?}", study.comparisons) };
    let (pv, native) = (&study.points[comparison.subject], &study.points[comparison.against]);
    let median = |point: &PointStudy| point.rate.unwrap().median.value;
    assert!(median(pv) < median(native), "by pooled medians it is the other way round");
    let sizes: Vec<_> = pv.blocks(native).iter().map(|(a, b)| (a.len(), b.len())).collect();
    assert_eq!(sizes, [(2, 6), (6, 2)]);
    assert_half_more(comparison);
}

/// Nodes of parts are blocks, too.
#[test]
fn directions_follow_the_nodes() {
    let [mut run, mut slow] = unequal_mix(6, 2);
    for (of_node, name) in [(&mut run, "fast"), (&mut slow, "slow")] {
        of_node.contents.cells.iter_mut().for_each(|cell| cell.node = Some(name.into()));
    }
    // Cells of one run have unique numbers.
    for (cell, number) in slow.contents.cells.iter_mut().zip(1000..) {
        cell.cell = number;
    }
    run.contents.cells.extend(slow.contents.cells);
    let comparisons = Study::new(&[run]).comparisons;
    let [comparison] = &comparisons[..] else { panic!("{comparisons:?}") };
    assert_half_more(comparison);
}

/// Two runs on one host are one block although the path of a file differs.
#[test]
fn runs_on_one_host_are_one_block() {
    let runs = [1, 2].map(|seed| {
        let mut run = record(&Fixture { seed, ..small(8) });
        let host = &mut run.contents.sessions[0].host;
        host.load_average = vec![seed as f64];
        let path = format!("pvticket-{seed}");
        host.binary = Some(crate::host_facts::FileFacts { path, ..Default::default() });
        run
    });
    let study = Study::new(&runs);
    let [pv, native] = [1, 0].map(|ix| &study.points[ix]);
    assert_eq!(pv.blocks(native).len(), 1);
}

/// A simulated run whose rounds are distributed over nodes, which does not affect their figures.
fn simulated(seed: u64, node: impl Fn(&str, u32) -> String) -> RunRecord {
    let mut run = on_nodes(&Fixture { seed, ..small(8) }, node);
    for cell in &mut run.contents.cells {
        cell.point.guest = GuestKind::Sim;
        cell.point.machine = "epyc-2".into();
    }
    run
}

/// Regression: simulated cells of two nodes were not compared, nor were parts with the parts of another run.
#[test]
fn simulations_do_not_depend_on_nodes() {
    let by_lock = Study::new(&[simulated(1, |lock, _| lock.to_owned())]);
    assert_eq!(by_lock.comparisons[0].outcome(), Outcome::More, "{:?}", by_lock.comparisons);
    let diff = Diff::new(by_lock, Study::new(&[simulated(2, |_, round| format!("node-{round}"))]));
    assert_eq!(diff.gaps(), []);
    assert!(diff.compared.iter().all(|both| both.verdict.p.is_some()), "{:?}", diff.compared);
}

/// Regression: if each node had only one lock, which permits no comparison, the verdict was "no difference".
#[test]
fn points_without_common_place_have_no_verdict() {
    let study = Study::new(&[on_nodes(&small(8), |lock, _| lock.to_owned())]);
    assert_eq!(study.comparisons[0].outcome(), Outcome::Apart);
    assert!(study.comparisons[0].ratio.is_none() && study.comparisons[0].verdict.p.is_none());
}

/// Regression: 8 and 8 repetitions of a point can differ, but 7 and 1 against 1 and 7 cannot.
#[test]
fn counts_repetitions_by_place() {
    let rounds = |lock: &str| if lock == "ticket" { 7 } else { 1 };
    let run = on_nodes(&Fixture::default(), |lock, round| node(round < rounds(lock)));
    let study = Study::new(&[run]);
    let of_locks = study.comparisons.iter().filter(|comparison| comparison.axis == Axis::Lock);
    for comparison in of_locks {
        assert_eq!(comparison.outcome(), Outcome::TooFew, "{comparison:?}");
        assert_eq!(comparison.min_repetitions(), 7, "spread evenly");
    }
}

/// Regression: a diff with too few repetitions in common places was reported as free of regressions.
#[test]
fn too_few_repetitions_per_node_are_a_gap() {
    let run = |rounds| Study::new(&[on_nodes(&small(8), |_, round| node(round < rounds))]);
    let diff = Diff::new(run(7), run(1));
    let few = Gap::Few { have: (8, 8), need: (8, 4) };
    assert!(diff.gaps().iter().all(|(_, gap)| *gap == few), "{:?}", diff.gaps());
}
