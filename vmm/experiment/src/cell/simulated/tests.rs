use super::*;
use base::units::Nanos;
use study::{point::HostKind, spec::Experiment, testing::parse_spec};

fn experiment(spec: &str) -> Experiment {
    parse_spec(spec, "0-7", HostKind::Direct)
}

#[test]
fn simulation_is_deterministic_per_cell() {
    let experiment = experiment(
        "guests = \"sim\"\nmachines = \"haswell-ex-32\"\nlocks = \"pv-queued\"\npolicies = \"rr\"\n\
         vcpus = \"2x\"\nseconds = 0.002\nwarm-up = 0.002\nhandoffs = \"none\"\n",
    );
    let interrupt = Interrupt::default();
    let cpus = "0".parse().unwrap();
    let spec = || RunSpec::new(&experiment.points[0], &experiment.method, &cpus);
    let run = |cell| simulate(&spec(), cell, &interrupt).unwrap().figures;
    let figures = run(3);
    assert_eq!(figures, run(3));
    assert_ne!(figures, run(4));
    assert_eq!((figures.seconds, figures.operations.len()), (0.002, 16));
    assert!(figures.all_operations() > 100.0 && figures.violations == 0, "{figures:?}");
    assert!(figures.schedule.as_ref().is_some_and(|schedule| schedule.totals.grants > 0));
    let traced = RunSpec { trace: true, ..spec() };
    let Measurement { figures: figures_traced, timeline, .. } =
        simulate(&traced, 3, &interrupt).unwrap();
    assert_eq!(figures, figures_traced, "a timeline changes nothing");
    let timeline = timeline.expect("a timeline");
    let millis = |ms| Nanos::millis(ms).after(Nanos(1));
    assert_eq!(timeline.span.to, millis(4));
    assert_eq!(timeline.measured.map(|span| span.from), Some(millis(2)));
    let schedule = timeline.schedule.expect("it is of a schedule");
    assert_eq!(schedule.slices.len() as u64, schedule.totals.grants);
    assert_eq!(schedule.preemptions.len() as u64, schedule.totals.preemptions);
    let is_in = |slice: &sched::log::Slice| slice.at <= timeline.span.to;
    assert!(schedule.slices.iter().all(is_in), "{:?}", schedule.slices);
    let counted: u64 = timeline.progress.last().expect("it has samples").done;
    assert!(counted as f64 >= figures.all_operations(), "of the warm-up, too: {counted}");
    interrupt.raise();
    let ended = simulate(&spec(), 3, &interrupt);
    assert!(matches!(ended, Err(SimCellError::Interrupted)), "{ended:?}");
}

/// Regression: with two vCPUs on separate CPUs, a third of the acquisitions had to wait. The payload's vCPUs
/// take turns, and a hundredth has to wait (measured).
#[test]
fn work_is_as_steady_as_the_payloads() {
    let experiment = experiment(
        "guests = \"sim\"\nmachines = \"haswell-ex-32\"\nlocks = \"ticket\"\npolicies = \"rr\"\n\
         vcpus = 2\nslots = 2\nseconds = 0.01\nwarm-up = 0.002\ncritical = 1000\nthink = 4000\n",
    );
    let (interrupt, cpus) = (Interrupt::default(), "0".parse().unwrap());
    let spec = RunSpec::new(&experiment.points[0], &experiment.method, &cpus);
    let figures = simulate(&spec, 0, &interrupt).unwrap().figures;
    let waited = figures.slow.unwrap() as f64 / figures.all_operations();
    assert!(figures.all_operations() > 1e3 && waited < 0.1, "{waited}");
}

#[test]
fn timeline_has_kicks_that_ended_a_halt() {
    let experiment = experiment(
        "guests = \"sim\"\nmachines = \"haswell-ex-32\"\nlocks = \"pv-ticket\"\npolicies = \"rr\"\n\
         vcpus = \"2x\"\nseconds = 0.002\nwarm-up = 0.002\nhandoffs = \"none\"\n\
         spin-threshold = 4\n",
    );
    let (interrupt, cpus) = (Interrupt::default(), "0".parse().unwrap());
    let spec =
        RunSpec { trace: true, ..RunSpec::new(&experiment.points[0], &experiment.method, &cpus) };
    let Measurement { figures, timeline, .. } = simulate(&spec, 3, &interrupt).unwrap();
    let handoffs = timeline.and_then(|timeline| timeline.schedule).expect("a schedule").handoffs;
    // Includes the handoffs of the warm-up. A kick before its halt ends no halt.
    assert!(figures.kicks > 0 && handoffs.len() as u64 > figures.kicks / 2, "{figures:?}");
    let granted: Vec<_> =
        handoffs.iter().filter_map(|handoff| Some((handoff.at, handoff.granted?))).collect();
    assert!(granted.len() + 16 >= handoffs.len(), "all but the last of each vCPU");
    assert!(granted.iter().all(|(at, granted)| granted >= at), "{granted:?}");
    assert!(handoffs.iter().all(|handoff| handoff.by != Some(handoff.to)), "none kicks itself");
}

#[test]
fn several_machines_share_the_simulated_cpus() {
    let experiment = experiment(
        "guests = \"sim\"\nmachines = \"haswell-ex-32\"\nlocks = \"pv-ticket\"\npolicies = \"rr\"\n\
         vcpus = 3\nvms = 2\nslots = 2\nseconds = 0.02\nwarm-up = 0.002\nhandoffs = \"none\"\n",
    );
    let point = &experiment.points[0];
    assert_eq!((point.vms, point.vcpus.get(), point.slots), (2, 3, 2));
    let spec = sim_spec(point, machine(&point.machine).unwrap(), 0).unwrap();
    assert_eq!((spec.guests, spec.vcpus, spec.cpus), (2, 3, 2));
    let alone = sim_spec(&Point { vms: 1, ..point.clone() }, spec.machine.clone(), 0).unwrap();
    assert_eq!((spec.starts, alone.starts), (STARTS, Picos::ZERO), "only several guests are apart");
    let figures = Sim::new(&spec).unwrap().finish().unwrap();
    assert_eq!(figures.operations.len(), 6, "of both");
}

#[test]
fn systems_have_one_name_in_both_libraries() {
    for system in System::ALL {
        let simulated: Result<sim::System, _> = system.name().parse();
        assert_eq!(simulated.map(sim::System::name), Ok(system.name()));
    }
}
