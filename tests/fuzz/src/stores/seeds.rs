//! Stores as pvticket writes them, and with content that it would not write.

use std::fs;

use base::units::CpuList;
use study::{
    point::HostKind,
    spec::{Experiment, Setting},
    store::{
        FILE, Store,
        record::{CellLine, Figures, Line, Load, Outcome, SessionLine},
    },
};
use tempfile::TempDir;

use super::run;

/// Returns the experiment that the spec of [`run`] plans.
fn experiment() -> Experiment {
    let cpus = CpuList::new(&[0]).unwrap();
    let place = |_: &str, _, _| Ok(HostKind::Emulated);
    let setting = Setting::new(&cpus, &place);
    Experiment::parse(&run().spec, "fuzz", &setting).unwrap()
}

fn cell_line(experiment: &Experiment, cell: u32, outcome: Outcome) -> Line {
    let place = &experiment.cells()[cell as usize];
    Line::Cell(Box::new(CellLine {
        cell,
        round: place.round,
        point: experiment.points[place.point].clone(),
        at_ms: 2,
        took: 0.5,
        load: Load::default(),
        node: None,
        outcome,
    }))
}

fn done() -> Outcome {
    let figures = Figures { seconds: 0.5, operations: vec![3, 4], ..Figures::default() };
    Outcome::Done { figures: Box::new(figures) }
}

fn session() -> SessionLine {
    SessionLine { at_ms: 1, command: Vec::new(), host: Default::default() }
}

/// A store with three of four cells, and variants of it, most of them faulty.
pub fn store_seeds() -> Vec<Vec<u8>> {
    let (experiment, dir) = (experiment(), TempDir::new().unwrap());
    let mut run = run();
    (run.seed, run.cells) = (experiment.seed, experiment.cells().len() as u32);
    let path = |name: &str| dir.path().join(name);
    let mut store = Store::create(&path("run"), run.clone()).unwrap();
    let failed = Outcome::Failed { error: "it died".into(), trace: String::new() };
    let lines = [
        Line::Session(Box::new(session())),
        cell_line(&experiment, 0, done()),
        cell_line(&experiment, 2, failed),
        cell_line(&experiment, 1, Outcome::Aborted),
        cell_line(&experiment, 1, done()),
    ];
    lines.iter().for_each(|line| store.append(line).unwrap());
    let complete = fs::read_to_string(path("run").join(FILE)).unwrap();
    let replaced = |from: &str, to: &str| complete.replacen(from, to, 1);
    let first = complete.lines().next().unwrap_or_default();
    let last = complete.lines().next_back().unwrap_or_default();
    let variants = vec![
        replaced("\"jobs\":1", "\"jobs\":2"),
        replaced("\"cpus\":[0]", "\"cpus\":[]"),
        replaced("\"cpus\":[0]", "\"cpus\":[0,999]"),
        replaced("\"host\":\"emulated\"", "\"host\":\"moon\""),
        replaced("\"host\":\"emulated\"", "\"host\":\"direct\""),
        replaced("\"host\":\"emulated\"", "\"host\":\"auto\""),
        replaced("repetitions = 4", "repetitions = 5"),
        replaced("repetitions = 4", "repetitions = 0"),
        replaced("vcpus = 2", "host = \\\"moon\\\""),
        replaced("\"only\":[]", "\"only\":[\"vcpus=3\"]"),
        replaced("\"only\":[]", "\"only\":[\"x\"]"),
        replaced("\"format\":2", "\"format\":1"),
        replaced("\"cell\":0", "\"cell\":9"),
        replaced("\"cell\":2", "\"cell\":0"),
        replaced("\"cells\":4", "\"cells\":2,\"part\":\"1/2\""),
        replaced("\"cells\":4", "\"cells\":4,\"part\":\"1/1\""),
        replaced("\"cells\":4", "\"cells\":0,\"part\":\"9/9\""),
        replaced("\"cells\":4", "\"cells\":4,\"part\":\"3/2\""),
        format!("{complete}{first}\n"),
        complete[..complete.len() - 9].to_owned(),
        format!("{first}\n{last}\n"),
    ];
    [complete].into_iter().chain(variants).map(String::into_bytes).collect()
}
