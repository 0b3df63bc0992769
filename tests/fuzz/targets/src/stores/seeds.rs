//! Stores and parts as pvticket writes them, and with what it would not write.

use std::fs;

use base::units::CpuList;
use study::{
    point::HostKind,
    spec::{Experiment, Setting},
    store::{
        FILE, Store,
        record::{CellLine, Figures, Line, Load, Outcome, SessionLine},
        sweep::{PARTS, names, record::Attempt},
    },
};
use tempfile::TempDir;

use super::{CUT, run, sweep};

/// What the spec of [`run`] plans.
fn planned() -> Experiment {
    let cpus = CpuList::new(&[0]).unwrap();
    let place = |_: &str, _, _| Ok(HostKind::Emulated);
    let setting = Setting::new(&cpus, &place);
    Experiment::parse(&run().spec, "fuzz", &setting).unwrap()
}

fn cell_line(planned: &Experiment, cell: u32, outcome: Outcome) -> Line {
    let place = &planned.cells()[cell as usize];
    Line::Cell(Box::new(CellLine {
        cell,
        round: place.round,
        point: planned.points[place.point].clone(),
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

fn session(attempt: Option<Attempt>) -> SessionLine {
    SessionLine { at_ms: 1, command: Vec::new(), host: Default::default(), attempt }
}

/// A store with three of four cells; and with each thing that a reader has to refuse.
pub fn store_seeds() -> Vec<Vec<u8>> {
    let (planned, dir) = (planned(), TempDir::new().unwrap());
    let mut run = run();
    (run.seed, run.cells) = (planned.seed, planned.cells().len() as u32);
    let path = |name: &str| dir.path().join(name);
    let mut store = Store::create(&path("run"), run.clone()).unwrap();
    let failed = Outcome::Failed { error: "it died".into(), trace: String::new() };
    let lines = [
        Line::Session(Box::new(session(None))),
        cell_line(&planned, 0, done()),
        cell_line(&planned, 2, failed),
        cell_line(&planned, 1, Outcome::Aborted),
        cell_line(&planned, 1, done()),
    ];
    lines.iter().for_each(|line| store.append(line).unwrap());
    let whole = fs::read_to_string(path("run").join(FILE)).unwrap();
    let heads = ["local", "manual", "slurm", "moon"].map(|engine| {
        let sweep = study::store::sweep::record::SweepLine { engine: engine.into(), ..sweep() };
        Store::create_sweep(&path(engine), run.clone(), sweep).unwrap();
        fs::read_to_string(path(engine).join(FILE)).unwrap()
    });
    let replaced = |from: &str, to: &str| whole.replacen(from, to, 1);
    let first = whole.lines().next().unwrap_or_default();
    let last = whole.lines().next_back().unwrap_or_default();
    let mut changed = vec![
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
        replaced("\"format\":1", "\"format\":99"),
        replaced("\"cell\":0", "\"cell\":9"),
        replaced("\"cell\":2", "\"cell\":0"),
        replaced("\"kind\":\"session\"", "\"kind\":\"unit\",\"unit\":0,\"cells\":1,\"sum\":1"),
        replaced("\"kind\":\"run\"", "\"kind\":\"unit\",\"unit\":0,\"sum\":1"),
        format!("{whole}{first}\n"),
        whole[..whole.len() - 9].to_owned(),
        heads[0].replace("\"cells\":2", "\"cells\":0"),
        format!("{}{last}\n", heads[0]),
        format!("{whole}{}", heads[0].lines().next_back().unwrap_or_default()) + "\n",
    ];
    for host in ["direct", "auto"] {
        let on = format!("\"host\":\"{host}\"");
        changed.extend(heads.each_ref().map(|head| head.replacen("\"host\":\"emulated\"", &on, 1)));
    }
    [whole].into_iter().chain(heads).chain(changed).map(String::into_bytes).collect()
}

/// Parts as tasks write them: two whole ones of one unit, one of another, and half a one.
pub fn part_seeds() -> Vec<Vec<u8>> {
    let (planned, dir) = (planned(), TempDir::new().unwrap());
    fs::create_dir(dir.path().join(PARTS)).unwrap();
    for (name, unit, restart, is_whole) in
        [("a", 0, 1, true), ("b", 0, 0, true), ("c", 1, 0, true), ("d", 1, 1, false)]
    {
        let attempt = Attempt {
            sweep: sweep().id,
            unit,
            submission: 0,
            restart,
            node: name.into(),
            job: None,
        };
        let mut part = Store::part(dir.path(), name, session(Some(attempt))).unwrap();
        for cell in [unit * 2 + 1, unit * 2] {
            part.append(&cell_line(&planned, cell, done())).unwrap();
        }
        if is_whole {
            part.end_part(unit, sweep().units[unit as usize]).unwrap();
        }
    }
    let text = |name: &String| fs::read(dir.path().join(PARTS).join(name)).unwrap();
    let all: Vec<Vec<u8>> = names(dir.path()).unwrap().iter().map(text).collect();
    vec![all.join(CUT), all[0].clone(), all[2..].join(CUT)]
}
