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

/// The axis is the overcommit ratio if it varies, else the axis with most values, or with a baseline; locks
/// if nothing else varies. A spec may name axes that vary.
#[test]
fn axes_are_chosen_by_what_varies_or_named_by_the_spec() {
    use Axis::{Backend, Critical, Lock, Policy, Vcpus};
    let four = Fixture { critical: vec![5, 50, 500, 5000], ..policies() };
    let two = Fixture { policies: vec!["rr", "fair"], ..policies() };
    let locks = Fixture { policies: vec!["rr"], critical: vec![50], ..policies() };
    let one = Fixture { locks: vec![("ticket", "off")], ..locks.clone() };
    let of_locks = &[Lock, Backend][..];
    let and_critical = &[Lock, Backend, Critical][..];
    for (fixture, spec, x, facets, series) in [
        (Fixture::default(), "", Vcpus, &[Policy][..], of_locks),
        (policies(), "", Policy, &[Critical], of_locks),
        (four.clone(), "", Critical, &[Policy], of_locks),
        (two, "", Policy, &[Critical], of_locks),
        (locks.clone(), "", Lock, &[], &[]),
        (one, "", Lock, &[], &[]),
        (policies(), "x = \"policies\"\nfacets = \"locks\"", Policy, &[Lock], &[Critical]),
        (policies(), "x = \"critical\"", Critical, &[Policy], of_locks),
        (policies(), "facets = []", Policy, &[], and_critical),
        // An axis that does not vary would have a single value.
        (policies(), "x = \"vms\"\nfacets = [\"slots\"]\n", Policy, &[], and_critical),
    ] {
        let Layout { x: found, facets: found_facets, series: found_series, is_ratio, .. } =
            study(&fixture, spec).layout;
        assert_eq!((found, is_ratio), (x, x == Vcpus), "{fixture:?} {spec}");
        assert_eq!((&*found_facets, &*found_series), (facets, series), "{fixture:?} {spec}");
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
fn vcpus_that_follow_from_the_slots_are_no_axis() {
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
fn settings_that_come_with_the_guest_are_no_axes() {
    let mut runs = [record(&Fixture::default()), record(&Fixture::default())];
    for run in &mut runs {
        run.contents.run.spec = String::new();
    }
    for cell in &mut runs[1].contents.cells {
        cell.point.guest = GuestKind::Linux;
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
fn points_of_a_chart_are_together_and_findings_go_along_its_axis() {
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
fn a_family_on_an_axis_of_locks_has_its_own_finding() {
    let locks = ["ticket", "queued", "mutex", "mutex-queued"].map(|lock| (lock, "off")).to_vec();
    let fixture = Fixture { locks, policies: vec!["rr"], critical: vec![50], ..policies() };
    let study = study(&fixture, "");
    let baselines =
        study.findings.iter().map(|finding| study.comparisons[finding.comparisons[0]].against);
    let names: Vec<_> = baselines.map(|ix| study.points[ix].point.lock.name()).collect();
    assert_eq!(names, ["ticket", "mutex"]);
}
