//! Runs an experiment: cells to workers, what they gave to the store.

pub mod control;
mod estimate;
mod figures;
pub mod job;
mod live_reporter;
pub mod status;
pub mod worker;
mod worker_handle;

use std::{
    collections::{HashSet, VecDeque},
    fs::File,
    io::{self, Write},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use thiserror::Error;
use tokio::{
    process::Command,
    sync::mpsc::{self, Receiver, UnboundedReceiver},
    time::{Instant, sleep_until},
};

pub use worker_handle::HandError;

use super::{
    point::{HostKind, Point},
    spec::{Experiment, PlannedCell},
    store::{
        Store, StoreError,
        record::{CellLine, Line, Load, Outcome},
    },
};
use crate::clock;
use job::{Ended, Job, Live, WorkerMessage};
use worker_handle::{Report, Reports, WorkerHandle};

/// How often a cell may cost the emulated host its life, or its worker die before it is begun, before
/// it counts as failed.
const DEATHS: u32 = 3;

/// What workers have said and the run has not heard.
const REPORTS: usize = 64;

/// How long the workers have to end what they do.
const PATIENCE: Duration = Duration::from_secs(10);

/// A run that cannot go on.
#[derive(Debug, Error)]
pub enum RunError {
    /// What was measured cannot be kept.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is nobody to measure.
    #[error(transparent)]
    WorkerHandle(#[from] HandError),
    /// What happened in a cell cannot be kept.
    #[error("cannot write the trace: {0}")]
    Trace(io::Error),
    /// A cell cannot be told.
    #[error("cannot tell a worker what to run: {0}")]
    Job(#[from] serde_json::Error),
}

/// What a run can be told while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Begin no more cells.
    Pause,
    /// Go on.
    Resume,
    /// Abort the cells under way, and end.
    Stop,
}

/// Who runs cells.
pub trait WorkerPool {
    /// The command of a worker for a host; the number says which of those side by side it is.
    fn worker(&self, host: HostKind) -> Command;

    /// The CPUs for its cells; None: all it finds.
    fn cpus(&self, host: HostKind, number: usize) -> Option<Vec<usize>>;

    /// How many work side by side.
    fn jobs(&self) -> usize;

    /// What traces are appended to, if they are wanted: those of each point's first cell.
    fn traces(&self) -> Option<&File>;
}

/// Told how a run gets on.
pub trait Watcher {
    /// A cell is run from now on.
    fn started(&mut self, cell: &PlannedCell, point: &Point);
    /// It has ended, and is in the store.
    fn ended(&mut self, line: &CellLine);
    /// What it was run by has died, and so: it waits to be run again.
    fn died(&mut self, cell: &PlannedCell, why: &str);
    /// It has no trace though one was wanted, and why.
    fn untraced(&mut self, _: &PlannedCell, _: &str) {}
    /// Are the cells to say what they do meanwhile?
    fn wants_live(&self) -> bool {
        false
    }
    /// One does.
    fn live(&mut self, _: Live) {}
    /// It is told to pause, to go on, to stop.
    fn ordered(&mut self, order: Order);
}

/// How a run ended.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Cells with figures.
    pub done: u32,
    /// Cells that failed.
    pub failed: u32,
    /// Cells that are still to be run.
    pub left: u32,
    /// Cells in which a lock did not keep what it promises, which is a bug.
    pub broken: u32,
    /// It was stopped.
    pub stopped: bool,
}

/// How long the cells that are not `finished` may take.
pub fn estimate(experiment: &Experiment, finished: &HashSet<u32>, jobs: usize) -> Duration {
    let cells = experiment.cells();
    let left = cells.iter().filter(|cell| !finished.contains(&cell.cell));
    let points: Vec<&Point> = left.map(|cell| &experiment.points[cell.point]).collect();
    let cells: Duration =
        points.iter().map(|point| estimate::of_cell(point, &experiment.method)).sum();
    let boots = points.iter().any(|point| point.host == HostKind::Emulated);
    let boot = if boots { estimate::EMULATED_HOST } else { Duration::ZERO };
    cells.div_f64(jobs.max(1) as f64) + boot
}

/// How long this cell may take.
pub fn estimate_cell(experiment: &Experiment, point: &Point) -> Duration {
    estimate::of_cell(point, &experiment.method)
}

/// Runs all cells of `experiment` but those that are `finished`, into `store`.
pub async fn run(
    experiment: &Experiment,
    finished: &HashSet<u32>,
    store: &mut Store,
    workers: &dyn WorkerPool,
    watcher: &mut dyn Watcher,
    orders: UnboundedReceiver<Order>,
) -> Result<Summary, RunError> {
    let cells = experiment.cells();
    let mut run = Run {
        experiment,
        store,
        workers,
        watcher,
        orders,
        paused: false,
        stopping: None,
        summary: Summary::default(),
    };
    for host in [HostKind::Direct, HostKind::Emulated] {
        let here = |cell: &&PlannedCell| experiment.points[cell.point].host == host;
        let left = cells.iter().filter(|cell| !finished.contains(&cell.cell)).filter(here);
        run.on(host, left.copied().collect()).await?;
    }
    run.summary.stopped = run.stopping.is_some();
    Ok(run.summary)
}

struct Run<'a> {
    experiment: &'a Experiment,
    store: &'a mut Store,
    workers: &'a dyn WorkerPool,
    watcher: &'a mut dyn Watcher,
    orders: UnboundedReceiver<Order>,
    paused: bool,
    /// From when on nobody is waited for any more.
    stopping: Option<Instant>,
    summary: Summary,
}

/// A place for a worker.
#[derive(Default)]
struct WorkerSlot {
    hand: Option<WorkerHandle>,
    /// What it runs, and how many workers that has cost.
    cell: Option<(PlannedCell, u32)>,
    /// The worker has begun it.
    begun: bool,
    /// What is to be run again, because a worker died of it.
    again: Option<(PlannedCell, u32)>,
}

impl WorkerSlot {
    fn next(&mut self, queue: &mut VecDeque<PlannedCell>) -> Option<(PlannedCell, u32)> {
        self.again.take().or_else(|| queue.pop_front().map(|cell| (cell, 0)))
    }
}

impl Run<'_> {
    /// Runs cells of one host.
    async fn on(
        &mut self,
        host: HostKind,
        mut queue: VecDeque<PlannedCell>,
    ) -> Result<(), RunError> {
        let (send, mut reports) = mpsc::channel(REPORTS);
        let mut benches: Vec<WorkerSlot> =
            (0..self.workers.jobs()).map(|_| WorkerSlot::default()).collect();
        loop {
            for (number, bench) in benches.iter_mut().enumerate() {
                if self.paused || self.stopping.is_some() || bench.cell.is_some() {
                    continue;
                }
                if let Some(next) = bench.next(&mut queue) {
                    self.begin(bench, next, host, number, &send).await?;
                }
            }
            let all_idle = benches.iter().all(|bench| bench.cell.is_none());
            let none_waits = queue.is_empty() && benches.iter().all(|bench| bench.again.is_none());
            if all_idle && (none_waits || self.stopping.is_some()) {
                break;
            }
            let deadline = self.stopping.unwrap_or_else(|| Instant::now() + PATIENCE);
            tokio::select! {
                Some((number, report)) = reports.recv() => {
                    self.hear(&mut benches[number], report, host).await?;
                }
                Some(order) = self.orders.recv() => self.obey(order, &mut benches),
                () = sleep_until(deadline), if self.stopping.is_some() => {
                    // Dropped, a hand is killed, and says so.
                    benches.iter_mut().for_each(|bench| bench.hand = None);
                    self.stopping = Some(Instant::now() + PATIENCE);
                }
            }
        }
        let again = benches.iter().filter(|bench| bench.again.is_some()).count();
        self.summary.left += (queue.len() + again) as u32;
        let at_work = benches.iter().filter(|bench| bench.hand.is_some()).count();
        // They end by themselves at the end of their input.
        benches.iter_mut().filter_map(|bench| bench.hand.as_mut()).for_each(WorkerHandle::dismiss);
        wait_for(at_work, &mut reports).await;
        Ok(())
    }

    /// Has a worker run a cell.
    async fn begin(
        &mut self,
        bench: &mut WorkerSlot,
        (cell, deaths): (PlannedCell, u32),
        host: HostKind,
        number: usize,
        reports: &Reports,
    ) -> Result<(), RunError> {
        if bench.hand.is_none() {
            let command = self.workers.worker(host);
            bench.hand = Some(WorkerHandle::start(command, number, reports.clone())?);
        }
        (bench.cell, bench.begun) = (Some((cell, deaths)), false);
        let cpus = self.workers.cpus(host, number);
        let point = &self.experiment.points[cell.point];
        let method = self.experiment.method;
        self.watcher.started(&cell, point);
        let live = self.watcher.wants_live();
        let trace = cell.round == 0 && self.workers.traces().is_some();
        let job = Job { cell: cell.cell, point: point.clone(), method, cpus, live, trace };
        if let Some(hand) = &mut bench.hand {
            hand.give(&job).await?;
        }
        Ok(())
    }

    fn obey(&mut self, order: Order, benches: &mut [WorkerSlot]) {
        self.watcher.ordered(order);
        match order {
            Order::Pause => self.paused = true,
            Order::Resume => self.paused = false,
            Order::Stop if self.stopping.is_none() => {
                self.stopping = Some(Instant::now() + PATIENCE);
                benches
                    .iter_mut()
                    .filter_map(|bench| bench.hand.as_mut())
                    .for_each(WorkerHandle::dismiss);
            }
            // Said twice, nobody is waited for.
            Order::Stop => self.stopping = Some(Instant::now()),
        }
    }

    async fn hear(
        &mut self,
        bench: &mut WorkerSlot,
        report: Report,
        host: HostKind,
    ) -> Result<(), RunError> {
        match report {
            Report::WorkerMessage(WorkerMessage::Begun { cell: begun }) => {
                bench.begun |= bench.cell.is_some_and(|(cell, _)| cell.cell == begun);
                Ok(())
            }
            Report::WorkerMessage(WorkerMessage::Ended(ended)) => {
                if let Some((cell, _)) = bench.cell.take_if(|(cell, _)| cell.cell == ended.cell) {
                    self.keep(&cell, *ended)?;
                }
                Ok(())
            }
            Report::WorkerMessage(WorkerMessage::Live(live)) => {
                if bench.cell.is_some_and(|(cell, _)| cell.cell == live.cell) {
                    self.watcher.live(*live);
                }
                Ok(())
            }
            Report::Gone(why) => {
                bench.hand = None;
                let Some((cell, deaths)) = bench.cell.take() else { return Ok(()) };
                if self.stopping.is_some() {
                    return self.keep(&cell, nothing(&cell, Outcome::Aborted));
                }
                // Here a cell that was begun is what its worker died of.
                let is_innocent = host == HostKind::Emulated || !bench.begun;
                if is_innocent && deaths + 1 < DEATHS {
                    self.watcher.died(&cell, &why);
                    bench.again = Some((cell, deaths + 1));
                    return Ok(());
                }
                let outcome = Outcome::Failed { error: why, trace: String::new() };
                self.keep(&cell, nothing(&cell, outcome))
            }
        }
    }

    fn keep(&mut self, cell: &PlannedCell, ended: Ended) -> Result<(), RunError> {
        let line = CellLine {
            cell: cell.cell,
            round: cell.round,
            point: self.experiment.points[cell.point].clone(),
            at_ms: ended.at_ms,
            took: ended.took,
            load: ended.load,
            outcome: ended.outcome,
        };
        match &line.outcome {
            Outcome::Done { figures } => {
                self.summary.done += 1;
                self.summary.broken += u32::from(figures.violations + figures.disorder > 0);
            }
            Outcome::Failed { .. } => self.summary.failed += 1,
            Outcome::Aborted => self.summary.left += 1,
        }
        match (self.workers.traces(), ended.trace) {
            // Before the store says that the cell is done.
            (Some(file), Some(Ok(trace))) => append(file, &trace).map_err(RunError::Trace)?,
            (Some(_), Some(Err(why))) => self.watcher.untraced(cell, &why),
            _ => {}
        }
        let line = Line::Cell(Box::new(line));
        self.store.append(&line)?;
        if let Line::Cell(line) = line {
            self.watcher.ended(&line);
        }
        Ok(())
    }
}

/// Appends a trace in base64 to the file of traces.
fn append(mut file: &File, trace: &str) -> io::Result<()> {
    let bytes = BASE64_STANDARD.decode(trace).map_err(io::Error::other)?;
    file.write_all(&bytes)?;
    file.sync_data()
}

/// Until so many workers have ended, or have had the time to.
async fn wait_for(mut at_work: usize, reports: &mut Receiver<(usize, Report)>) {
    let deadline = Instant::now() + PATIENCE;
    while at_work > 0 {
        tokio::select! {
            Some((_, report)) = reports.recv() => {
                at_work -= usize::from(matches!(report, Report::Gone(_)));
            }
            () = sleep_until(deadline) => return,
        }
    }
}

/// Of a cell whose worker says nothing more.
fn nothing(cell: &PlannedCell, outcome: Outcome) -> Ended {
    Ended {
        cell: cell.cell,
        at_ms: clock::since_1970(),
        took: 0.0,
        load: Load::default(),
        outcome,
        trace: None,
    }
}

#[cfg(test)]
mod tests;
