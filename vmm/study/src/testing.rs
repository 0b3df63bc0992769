//! Made-up runs, for tests of what reads, studies and shows them.

#![allow(clippy::unwrap_used, reason = "only tests use it")]

use std::path::Path;

use crate::{
    findings::RunRecord,
    live::{CellView, Live, Phase, SlotView, VcpuView},
    point::{HostKind, Point},
    spec::{Experiment, Setting},
    status::{AtWork, RunState, Status, VERSION},
    store::{
        self, StoreError,
        record::{Figures, Outcome, ScheduleFigures},
    },
};
use base::units::{Nanos, SlotId};
use sched::{LockActivity, LockId, core::State};

/// The generator, shared with the end-to-end tests.
#[path = "../../../tests/src/fixture.rs"]
pub mod fixture;

pub use fixture::Fixture;

/// A fixture, read as a store.
pub fn record(fixture: &Fixture) -> RunRecord {
    parse(&fixture.text()).unwrap()
}

/// The figures of a run with their points, to change them.
pub fn figures(run: &mut RunRecord) -> impl Iterator<Item = (&Point, &mut Figures)> {
    run.contents.cells.iter_mut().filter_map(|cell| match &mut cell.outcome {
        Outcome::Done { figures } => Some((&cell.point, &mut **figures)),
        Outcome::Failed { .. } | Outcome::Aborted => None,
    })
}

/// The accounts of a run's schedules with their points, to change them.
pub fn schedules(run: &mut RunRecord) -> impl Iterator<Item = (&Point, &mut ScheduleFigures)> {
    figures(run).filter_map(|(point, figures)| Some((point, figures.schedule.as_mut()?)))
}

/// Parses this text as a store.
pub fn parse(text: &str) -> Result<RunRecord, StoreError> {
    let contents = store::read_from(text.as_bytes(), Path::new("runs/a/cells.jsonl"))?;
    Ok(RunRecord { source: "runs/a".into(), contents })
}

/// An experiment of four cells.
pub fn experiment() -> Experiment {
    let text = "locks = [\"ticket\", \"pv-ticket\"]\nvcpus = 2\nrepetitions = 2\nseconds = 0.5\n";
    let cpus = "0-1".parse().unwrap();
    let place = |_: &str, _, _| Ok(HostKind::Direct);
    Experiment::parse(text, "four", &Setting::new(&cpus, &place)).unwrap()
}

/// Cells in whatever shape.
pub fn live(cell: u32) -> Live {
    let vcpu = |vcpu, state, locks| VcpuView {
        vm: 0,
        vcpu,
        state,
        locks,
        operations: Some(1000),
        taken: None,
        exits: 10,
        halts: 5,
        kicks: 4,
    };
    let lock = LockId(u64::MAX - 1);
    let waits = |ticket, distance, halted| LockActivity::Waiting {
        lock,
        ticket,
        distance,
        since: Nanos(1),
        halted,
    };
    let held = LockActivity::Holding { lock: Some(lock), depth: 1 };
    let view = CellView {
        phase: Phase::Measured,
        at: Nanos(1_000_001),
        vcpus: vec![
            vcpu(0, Some(State::Running(SlotId(0))), held),
            vcpu(1, Some(State::Ready), waits(12, Some(1), false)),
            vcpu(2, Some(State::Held(Nanos(u64::MAX))), waits(14, None, false)),
            vcpu(3, Some(State::Halted), waits(16, Some(3), true)),
            vcpu(4, None, LockActivity::Unknown),
        ],
        slots: vec![SlotView { cpu: 3, vcpu: Some(0) }, SlotView { cpu: 4, vcpu: None }],
        totals: Some(sched::accounting::Totals { grants: 7, ..Default::default() }),
    };
    Live { cell, seconds: 1.5, view }
}

/// The status of [`experiment`] while its first cell is measured.
pub fn status() -> Status {
    let experiment = experiment();
    let cell = experiment.cells()[0];
    let at_work = AtWork {
        cell: cell.cell,
        round: cell.round,
        point: experiment.points[cell.point].clone(),
        seconds: 0.0,
        live: Some(live(cell.cell)),
    };
    Status {
        version: VERSION,
        name: experiment.name.clone(),
        dir: "runs/four".into(),
        state: RunState::Running,
        cells: 4,
        done: 0,
        failed: 0,
        aborted: 0,
        left: 4,
        seconds: 0.0,
        eta: 0.0,
        at_work: vec![at_work],
        last: Default::default(),
    }
}
