//! Rung 2 of the validation, `sim calibrate --validate`: compares cells measured on this host with their
//! simulation by the costs of `sim calibrate`. None of these cells was used to calibrate.

mod place;
mod tally;

use std::{
    ops::ControlFlow::{self, Break, Continue},
    slice,
};

use anyhow::Context;
use base::{plural::count, units::CpuList};

use crate::{
    Usage, calibrate,
    cell::simulated::machine,
    cpus,
    host::topology,
    host_choice::HostMode,
    measure::{Folder, exit_status, measure},
    plan::{Plan, Request},
    run::RunOptions,
};
use report::{columns::Columns, si::si};
use sim::{Machine, Noise, Picos};
use study::{
    findings::{PointStudy, RunRecord, Study},
    point::Point,
    spec::Form,
    stats,
};
use tally::{Tally, Verdict};

/// Locks of the cells.
const LOCKS: [&str; 4] = ["ticket", "pv-ticket", "queued", "pv-queued"];

/// The model of the host's own scheduler.
const HOST: &str = "host-eevdf";

/// Policies of the cells, as measured and as simulated.
const POLICIES: [(&str, &str); 3] = [("rr", "rr"), ("deferred", "deferred"), ("host", HOST)];

/// Locks whose rate depends on the phase between the host's run queue and the lock's queue. A simulation is one
/// sample of the phase, however long it takes, unless the host's noise mixes the two.
const NATIVE: [&str; 2] = ["ticket", "queued"];

/// Work of a cell. It takes the same time on all machines, although an increment takes 0.2 to 1.5 ns.
#[derive(Debug, Clone, Copy)]
struct Work {
    /// Increments with the lock held.
    critical: u32,
    /// Increments between two operations.
    think: u32,
}

impl Work {
    /// Time of the work with the lock held, and without it.
    const CRITICAL: Picos = Picos(70_000);
    const THINK: Picos = Picos(280_000);

    fn new(machine: &Machine) -> Self {
        let each = machine.costs.increment.0.max(1);
        let increments = |time: Picos| (time.0 / each).max(1) as u32;
        Self { critical: increments(Self::CRITICAL), think: increments(Self::THINK) }
    }
}

/// Amount of measurement and simulation.
#[derive(Debug, Clone, Copy)]
struct Extent {
    ratios: &'static [u32],
    rounds: u32,
    seconds: f64,
    /// Number of simulations of each cell.
    simulations: u32,
    /// Simulated seconds of most cells.
    short: f64,
    /// For native locks under the policy `host` with more vCPUs than CPUs: hundreds of queue rotations.
    long: f64,
}

const FULL: Extent = Extent {
    ratios: &[1, 2, 4, 8],
    rounds: 5,
    seconds: 0.5,
    simulations: 5,
    short: 0.3,
    long: 4.0,
};
const SHORT: Extent =
    Extent { ratios: &[1, 2], rounds: 2, seconds: 0.1, simulations: 3, short: 0.1, long: 1.0 };

/// The cells to be measured and simulated.
struct Cells {
    extent: Extent,
    work: Work,
    slots: u32,
}

impl Cells {
    fn spec(&self, ratios: &[u32], locks: &[&str], policies: &[&str]) -> String {
        let Self { slots, work: Work { critical, think }, .. } = self;
        let vcpus: Vec<u32> = ratios.iter().map(|ratio| ratio * slots).collect();
        format!(
            "slots = {slots}\ncritical = {critical}\nthink = {think}\nvcpus = {vcpus:?}\n\
             locks = {locks:?}\npolicies = {policies:?}\n"
        )
    }

    /// Returns the spec of the measurement on this host.
    fn measured(&self) -> String {
        let Extent { ratios, seconds, rounds, .. } = self.extent;
        let spec = self.spec(ratios, &LOCKS, &POLICIES.map(|(real, _)| real));
        format!("{spec}seconds = {seconds}\nrepetitions = {rounds}\n")
    }

    /// Returns the specs of the simulation, with the machine file's noise, each as long as its cells need.
    fn simulated(&self) -> Vec<String> {
        let (policies, host): (Vec<&str>, Vec<&str>) =
            POLICIES.map(|(_, model)| model).into_iter().partition(|model| *model != HOST);
        let pv: Vec<&str> = LOCKS.into_iter().filter(|lock| !NATIVE.contains(lock)).collect();
        let part = |ratios: &[u32], locks: &[&str], policies: &[&str], seconds: f64| {
            let spec = self.spec(ratios, locks, policies);
            let (machine, count) = (calibrate::NAME, self.extent.simulations);
            format!(
                "{spec}guests = \"sim\"\nmachines = \"{machine}\"\nwarm-up = 0.1\n\
                 seconds = {seconds}\nrepetitions = {count}\n"
            )
        };
        let Extent { ratios, short, long, .. } = self.extent;
        vec![
            part(ratios, &LOCKS, &policies, short),
            part(ratios, &pv, &host, short),
            part(&ratios[..1], &NATIVE, &host, short),
            part(&ratios[1..], &NATIVE, &host, long),
        ]
    }
}

/// Measures and simulates the cells, and prints the results. Fails if a cell is off or not judged.
/// Returns the exit status of a signal, or 0.
pub fn validate(is_short: bool, mut print: impl FnMut(&str)) -> anyhow::Result<u8> {
    let extent = if is_short { SHORT } else { FULL };
    // Fails without a machine file before anything is measured.
    let machine = machine(calibrate::NAME)?;
    let allowed = cpus::choose_default(&topology(), None)?;
    let cpus = allowed.first(machine.cpus().min(allowed.cpus().len()));
    let cells = Cells { extent, work: Work::new(&machine), slots: cpus.cpus().len() as u32 };
    let measured = match place::measured(&cells, &machine, &cpus)? {
        Continue(study) => study,
        Break(status) => return Ok(status),
    };
    let simulated = match study_of("simulated", &cells.simulated(), &cpus)? {
        Continue((study, _)) => study,
        Break(status) => return Ok(status),
    };
    let mut tally = Tally::default();
    print(&heading(&cells, &machine));
    let mut columns = Columns::new(3..8);
    columns.row(HEAD);
    for point in &measured.points {
        let rates = place::rates(point, &machine);
        let pair = stats::median(&rates).zip(simulated_rate(&simulated, &point.point));
        let verdict = pair.map(|(rate, model)| Verdict::new(rate, model));
        tally.add(verdict);
        columns.row(row(point, &rates, pair, verdict));
    }
    print(&columns.text(2));
    print(&place::describe_places(&measured, &machine));
    print(&tally.summary());
    tally.result()
}

const HEAD: [&str; 9] =
    ["vCPUs", "policy", "lock", "N", "measured", "range", "simulated", "ratio", ""];

fn row(
    point: &PointStudy,
    rates: &[f64],
    pair: Option<(f64, f64)>,
    verdict: Option<Verdict>,
) -> [String; 9] {
    let Point { vcpus, policy, .. } = &point.point;
    let figures = pair.map(|(rate, model)| {
        let range = |pick: fn(f64, f64) -> f64| si(rates.iter().copied().fold(rate, pick));
        let range = format!("{} .. {}", range(f64::min), range(f64::max));
        [si(rate), range, si(model), format!("{:.2}x", model / rate)]
    });
    let [rate, range, model, times] = figures.unwrap_or_else(|| ["-"; 4].map(str::to_owned));
    let verdict = verdict.map_or(NOT_JUDGED, Verdict::name).to_owned();
    let (lock, count) = (point.point.lock_name(), rates.len().to_string());
    [vcpus.to_string(), policy.to_string(), lock, count, rate, range, model, times, verdict]
}

/// Verdict on a cell that lacks a figure.
const NOT_JUDGED: &str = "not judged: no repetition in the machine's place, or no simulation";

fn heading(cells: &Cells, machine: &Machine) -> String {
    let Cells { extent, work: Work { critical, think }, .. } = cells;
    format!(
        "\nRung 2: acquisitions/s on this host, {} of {} s, compared with the machine file this, {}\n\
         work: {critical} increments with the lock, {think} outside it: {} and {}\n{}",
        count(extent.rounds, "round"),
        extent.seconds,
        noise(machine),
        Work::CRITICAL,
        Work::THINK,
        doubts(machine),
    )
}

/// Returns the study of these specs and its record, or the exit status if a signal ended it.
fn study_of(
    name: &str,
    specs: &[String],
    cpus: &CpuList,
) -> anyhow::Result<ControlFlow<u8, (Study, RunRecord)>> {
    let mut plans = specs.iter().map(|spec| plan_spec(name, spec, cpus));
    let mut plan = plans.next().context("nothing to measure")??;
    for plan_part in plans {
        plan.add(plan_part?.experiment);
    }
    let options = RunOptions { ends_at_failure: true, ..RunOptions::default() };
    let measured = measure(plan, &Folder::new(None)?, options)?;
    let study = Study::new(slice::from_ref(&measured.record));
    Ok(match exit_status(&measured.summary, &study)? {
        0 => Continue((study, measured.record)),
        status => Break(status),
    })
}

fn plan_spec(name: &str, spec: &str, cpus: &CpuList) -> anyhow::Result<Plan> {
    let spec = Form::parse(spec).map_err(Usage::from)?;
    let host = HostMode::Direct;
    Plan::new(Request { host, ..Request::new(name, spec, cpus.clone()) }, Usage::from)
}

/// Describes the doubts about the machine's costs, a line each.
fn doubts(machine: &Machine) -> String {
    let each = |doubt: &String| format!("the machine file this is DOUBTED: {doubt}\n");
    machine.doubts.iter().map(each).collect()
}

/// Describes how often the machine's host takes its CPUs for other threads.
fn noise(machine: &Machine) -> String {
    match machine.noise {
        Some(Noise { busy, idle }) => format!("whose CPUs are taken for {busy} every {idle}"),
        None => "whose CPUs are never taken away".to_owned(),
    }
}

fn simulated_rate(simulated: &Study, real: &Point) -> Option<f64> {
    let is_same = |candidate: &&PointStudy| is_model_of(&candidate.point, real);
    let point = simulated.points.iter().find(is_same)?;
    Some(point.rate.as_ref()?.median.value)
}

/// Whether `model` is the simulation of the cell `real`.
fn is_model_of(model: &Point, real: &Point) -> bool {
    let names = [real.policy.name(), model.policy.name()];
    let is_same = model.vcpus == real.vcpus && model.lock == real.lock;
    is_same && POLICIES.iter().any(|(measured, simulated)| names == [*measured, *simulated])
}

#[cfg(test)]
mod tests {
    use super::*;
    use study::{point::HostKind, spec::Experiment, testing::parse_spec};

    fn parse(spec: &str) -> Experiment {
        parse_spec(spec, "0-1", HostKind::Direct)
    }

    fn cells(extent: Extent) -> Cells {
        Cells { extent, work: Work { critical: 340, think: 1360 }, slots: 2 }
    }

    #[test]
    fn work_time_is_machine_independent() {
        let work_on = |increment: u64| {
            let mut machine = Machine::ideal(2);
            machine.costs.increment = Picos(increment);
            let Work { critical, think } = Work::new(&machine);
            (critical, think)
        };
        assert_eq!([work_on(1_400), work_on(205)], [(50, 200), (341, 1365)]);
        assert_eq!(work_on(0), (70_000, 280_000), "not measured");
    }

    /// Regression: rung 2 did not report that the calibration of its machine file had been doubted.
    #[test]
    fn heading_lists_machine_doubts() {
        let mut machine = Machine::ideal(2);
        assert!(!heading(&cells(SHORT), &machine).contains("DOUBTED"));
        machine.doubts = vec!["memory 51ns is too little".into(), "hop 1ns, too".into()];
        let text = heading(&cells(SHORT), &machine);
        for doubt in &machine.doubts {
            assert!(
                text.contains(&format!("\nthe machine file this is DOUBTED: {doubt}\n")),
                "{text}"
            );
        }
        assert_eq!(text.lines().count(), 5, "{text}");
    }

    #[test]
    fn every_cell_has_its_simulation() {
        for extent in [FULL, SHORT] {
            let real = parse(&cells(extent).measured()).points;
            let parts: Vec<Experiment> =
                cells(extent).simulated().iter().map(|spec| parse(spec)).collect();
            let models: Vec<&Point> = parts.iter().flat_map(|part| &part.points).collect();
            let ratios = cells(extent).extent.ratios;
            assert_eq!(real.len(), ratios.len() * LOCKS.len() * POLICIES.len());
            assert_eq!(real.len(), models.len());
            for point in &real {
                let is_model = |model: &&&Point| is_model_of(model, point);
                assert_eq!(models.iter().filter(is_model).count(), 1, "{point}");
            }
        }
    }

    /// Regression: two simulations of half a second each were two samples of a lasting order.
    #[test]
    fn native_locks_are_simulated_for_longer() {
        for spec in cells(FULL).simulated() {
            let part = parse(&spec);
            for point in &part.points {
                let is_native = NATIVE.contains(&point.lock_name().as_str());
                let is_overcommitted = point.vcpus.get() > point.slots;
                let is_long = point.policy.name() == HOST && is_native && is_overcommitted;
                assert_eq!(point.duration.as_secs_f64() >= 4.0, is_long, "{point}");
                assert!(part.repetitions > 2, "{point}");
            }
        }
    }
}
