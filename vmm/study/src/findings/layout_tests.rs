//! Placement of axes.

use std::time::Duration;

use super::{
    layout::{Layout, Role},
    *,
};
use crate::{
    point::GuestKind,
    testing::{Fixture, record},
};
use sched::driver::DriverKind;

/// Returns the study of a fixture with a spec of these lines only.
fn study(fixture: &Fixture, spec: &str) -> Study {
    let mut run = record(fixture);
    run.contents.run.spec = spec.into();
    Study::new(&[run])
}

/// Policies at one overcommit ratio, with short and long critical sections.
fn policies() -> Fixture {
    Fixture {
        policies: vec!["rr", "fair", "gang"],
        vcpus: vec![4],
        critical: vec![50, 5000],
        ..Fixture::default()
    }
}

/// The axis is the overcommit ratio if it varies, else the axis with most values, on a tie with a baseline;
/// locks if nothing else varies. A spec may name axes that vary.
#[test]
fn chooses_axes_by_variation_or_spec() {
    use Axis::{Backend, Critical, Lock, Policy, Vcpus};
    let four = Fixture { critical: vec![5, 50, 500, 5000], ..policies() };
    let two = Fixture { policies: vec!["rr", "fair"], ..policies() };
    let locks = Fixture { policies: vec!["rr"], critical: vec![50], ..policies() };
    let single_lock = Fixture { locks: vec![("ticket", "off")], ..locks.clone() };
    let lock_axes = &[Lock, Backend][..];
    let and_critical = &[Lock, Backend, Critical][..];
    for (fixture, spec, x, facets, series) in [
        (Fixture::default(), "", Vcpus, &[Policy][..], lock_axes),
        (policies(), "", Policy, &[Critical], lock_axes),
        (four.clone(), "", Critical, &[Policy], lock_axes),
        (two, "", Policy, &[Critical], lock_axes),
        (locks.clone(), "", Lock, &[], &[]),
        (single_lock, "", Lock, &[], &[]),
        (policies(), "x = \"policies\"\nfacets = \"locks\"", Policy, &[Lock], &[Critical]),
        (policies(), "x = \"critical\"", Critical, &[Policy], lock_axes),
        (policies(), "facets = []", Policy, &[], and_critical),
        // An axis that does not vary would have a single value.
        (policies(), "x = \"vms\"\nfacets = [\"slots\"]\n", Policy, &[], and_critical),
    ] {
        let Layout { x: actual_x, facets: actual_facets, series: actual_series, is_ratio, .. } =
            study(&fixture, spec).layout;
        assert_eq!((actual_x, is_ratio), (x, x == Vcpus), "{fixture:?} {spec}");
        assert_eq!((&*actual_facets, &*actual_series), (facets, series), "{fixture:?} {spec}");
    }
    let places = |fixture: &Fixture| -> Vec<Option<f64>> {
        let study = study(fixture, "");
        study.points.iter().map(|point| study.layout.position(&point.point)).collect()
    };
    assert_eq!(places(&Fixture::default())[..4], [Some(1.0), Some(1.5), Some(2.0), Some(4.0)]);
    assert_eq!((places(&four)[0], places(&locks)[0]), (Some(5.0), None));
    // ticket has no backend and pv-ticket has one: the lock determines it.
    assert_eq!(study(&locks, "").layout.role(Backend), Role::None);
}

/// Each policy with both drivers: both are in one chart, and compared under each policy.
#[test]
fn drivers_are_series() {
    let fixture = Fixture { critical: vec![50], policies: vec!["rr", "deferred"], ..policies() };
    let mut run = record(&fixture);
    let cells = run.contents.cells.clone();
    let by_kernel = cells.into_iter().map(|mut cell| {
        cell.point.driver = DriverKind::Bpf;
        cell.cell += 1000;
        cell
    });
    run.contents.cells.extend(by_kernel);
    run.contents.run.spec = String::new();
    let study = Study::new(&[run]);
    assert_eq!((study.layout.x, study.layout.facets.len()), (Axis::Policy, 0));
    assert!(study.layout.series.contains(&Axis::Driver), "{:?}", study.layout);
    let drivers = study.comparisons.iter().filter(|comparison| comparison.axis == Axis::Driver);
    assert_eq!(drivers.count(), 4, "two locks under two policies");
    let order: Vec<String> = study.points.iter().map(|point| point.point.schedule_name()).collect();
    assert_eq!(order[0], "rr");
    assert!(order.windows(2).filter(|two| two[0] != two[1]).count() == 3, "{order:?}");
}

#[test]
fn vcpus_determined_by_slots_are_no_axis() {
    let mut run = record(&Fixture { policies: vec!["rr"], ..policies() });
    for cell in &mut run.contents.cells {
        if cell.point.critical == 50 {
            (cell.point.slots, cell.point.vcpus) = (1, 2.try_into().unwrap());
        }
        cell.point.critical = 50;
    }
    run.contents.run.spec = "x = \"slots\"".into();
    let layout = Study::new(&[run]).layout;
    assert_eq!((layout.x, layout.is_ratio, layout.facets.len()), (Axis::Slots, false, 0));
    assert_eq!(layout.role(Axis::Vcpus), Role::None);
}

/// Two runs of `compare`, with different guests. Regression: each name included the threshold and the window.
#[test]
fn guest_defaults_are_no_axes() {
    let mut runs = [record(&Fixture::default()), record(&Fixture::default())];
    for run in &mut runs {
        run.contents.run.spec = String::new();
    }
    for cell in &mut runs[1].contents.cells {
        cell.point.guest = GuestKind::Linux;
        cell.point.steal_time = cell.point.default_steal();
        cell.point.spin_threshold = 512;
        cell.point.duration = Duration::from_millis(800);
    }
    let layout = Study::new(&runs).layout;
    assert_eq!((layout.x, &*layout.facets), (Axis::Vcpus, &[Axis::Guest, Axis::Policy][..]));
    assert_eq!(layout.series, [Axis::Lock, Axis::Backend]);
    runs[1].contents.cells[0].point.spin_threshold = 1024;
    let layout = Study::new(&runs).layout;
    assert!(layout.facets.contains(&Axis::SpinThreshold), "{layout:?}");
}

#[test]
fn groups_points_by_chart() {
    let study = study(&policies(), "");
    let facets: Vec<_> = study.points.iter().map(|point| point.point.critical).collect();
    assert_eq!(facets, [[50; 6], [5000; 6]].concat());
    let along: Vec<usize> =
        study.findings.iter().map(|finding| finding.comparisons.len()).collect();
    // Each lock's policies compared with the first policy, and the locks under each policy.
    assert_eq!(study.findings.len(), 6);
    assert_eq!(along.iter().sum::<usize>(), 2 * (2 * 2 + 3));
}

#[test]
fn each_lock_family_has_a_finding() {
    let locks = ["ticket", "queued", "mutex", "mutex-queued"].map(|lock| (lock, "off")).to_vec();
    let fixture = Fixture { locks, policies: vec!["rr"], critical: vec![50], ..policies() };
    let study = study(&fixture, "");
    let baselines =
        study.findings.iter().map(|finding| study.comparisons[finding.comparisons[0]].against);
    let names: Vec<_> = baselines.map(|ix| study.points[ix].point.lock.name()).collect();
    assert_eq!(names, ["ticket", "mutex"]);
}
