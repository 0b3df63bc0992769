//! The loop of a run: passes cells to workers, receives their reports, and stores results.

use std::{
    collections::{HashSet, VecDeque},
    time::Duration,
};

use tokio::{
    sync::mpsc::{self, Receiver},
    time::{Instant, sleep_until},
};

use super::{
    RunError, Summary, Watcher, WorkerPool,
    job::{Ended, Job, WorkerMessage},
    worker_handle::{Reports, WorkerHandle, WorkerReport},
};
use crate::host::{allowed_cpus, around::HostWatch};
use base::units::{CpuList, Nanos};
use machine::clock;
use os::signals::Listener;
use study::{
    host_window::{HostMoment, HostWindow},
    point::{HostKind, Point},
    spec::{Experiment, PlannedCell},
    store::{
        Store,
        record::{CellLine, Line, Load, Outcome},
    },
};

/// A cell counts as failed when this many emulated hosts have died while running it, or this many
/// workers before starting it.
const DEATHS: u32 = 3;

/// Capacity of the queue of workers' reports.
const REPORTS: usize = 64;

/// Time limit for workers to abort their cells when the run stops.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });

/// Runs all cells of `experiment` except the `finished` ones, and appends them to `store`.
pub async fn run(
    experiment: &Experiment,
    finished: &HashSet<u32>,
    store: &mut Store,
    workers: &dyn WorkerPool,
    watcher: &mut dyn Watcher,
    stop: Listener,
) -> Result<Summary, RunError> {
    let cells = experiment.cells();
    let mut run = RunLoop {
        experiment,
        store,
        workers,
        watcher,
        stop,
        stopping: None,
        summary: Summary::default(),
        own_cpus: allowed_cpus().ok(),
    };
    for host in [HostKind::Direct, HostKind::Emulated] {
        let is_on_host = |cell: &&PlannedCell| experiment.points[cell.point].host == host;
        let left = cells.iter().filter(|cell| !finished.contains(&cell.cell)).filter(is_on_host);
        run.on(host, left.copied().collect()).await?;
    }
    run.summary.stopped = run.stopping.is_some();
    Ok(run.summary)
}

struct RunLoop<'a> {
    experiment: &'a Experiment,
    store: &'a mut Store,
    workers: &'a dyn WorkerPool,
    watcher: &'a mut dyn Watcher,
    stop: Listener,
    /// Time at which the run stops waiting for its workers; set once the user ends the run.
    stopping: Option<Instant>,
    summary: Summary,
    /// CPUs of this host that the run had at its start.
    own_cpus: Option<CpuList>,
}

/// A parallel worker, started or not.
#[derive(Default)]
struct WorkerSlot {
    hand: Option<WorkerHandle>,
    /// The cell that it runs, with the number of workers that have died of it.
    cell: Option<(PlannedCell, u32)>,
    /// Whether the worker has reported the cell's start.
    begun: bool,
    /// State of this host when the cell was passed to an emulated host.
    below: Option<HostMoment>,
    /// A cell to run again because its worker died, with the number of deaths.
    again: Option<(PlannedCell, u32)>,
}

impl WorkerSlot {
    fn next(&mut self, queue: &mut VecDeque<PlannedCell>) -> Option<(PlannedCell, u32)> {
        self.again.take().or_else(|| queue.pop_front().map(|cell| (cell, 0)))
    }
}

impl RunLoop<'_> {
    /// Runs the cells of one host.
    async fn on(
        &mut self,
        host: HostKind,
        mut queue: VecDeque<PlannedCell>,
    ) -> Result<(), RunError> {
        let (send, mut reports) = mpsc::channel(REPORTS);
        let mut benches: Vec<WorkerSlot> =
            (0..self.workers.jobs()).map(|_| WorkerSlot::default()).collect();
        loop {
            if self.watcher.has_enough() {
                self.summary.left += std::mem::take(&mut queue).len() as u32;
            }
            for (number, bench) in benches.iter_mut().enumerate() {
                if self.stopping.is_some() || bench.cell.is_some() {
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
                () = self.stop.raised(), if self.stopping.is_none() => self.abort(&mut benches),
                () = sleep_until(deadline), if self.stopping.is_some() => {
                    // Dropping the handle kills the worker, which is then reported as exited.
                    benches.iter_mut().for_each(|bench| bench.hand = None);
                    self.stopping = Some(Instant::now() + PATIENCE);
                }
            }
        }
        let again = benches.iter().filter(|bench| bench.again.is_some()).count();
        self.summary.left += (queue.len() + again) as u32;
        let at_work = benches.iter().filter(|bench| bench.hand.is_some()).count();
        // Workers exit at the end of their input.
        benches.iter_mut().filter_map(|bench| bench.hand.as_mut()).for_each(WorkerHandle::dismiss);
        wait_for(at_work, &mut reports).await;
        Ok(())
    }

    /// Passes a cell to a worker.
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
        bench.below = self.moment().filter(|_| host == HostKind::Emulated);
        let cpus = self.workers.cpus(host, number);
        let point = &self.experiment.points[cell.point];
        let method = self.experiment.method;
        self.watcher.started(&cell, point);
        let extras = self.workers.extras(&cell);
        let machine = self.experiment.machine_text(point).map(str::to_owned);
        let point = point.clone();
        let job = Job { cell: cell.cell, point, machine, method, cpus, extras };
        if let Some(hand) = &mut bench.hand {
            hand.give(&job).await?;
        }
        Ok(())
    }

    /// Makes the workers abort their cells.
    fn abort(&mut self, benches: &mut [WorkerSlot]) {
        self.watcher.stopping();
        self.stopping = Some(Instant::now() + PATIENCE);
        benches.iter_mut().filter_map(|bench| bench.hand.as_mut()).for_each(WorkerHandle::dismiss);
    }

    async fn hear(
        &mut self,
        bench: &mut WorkerSlot,
        report: WorkerReport,
        host: HostKind,
    ) -> Result<(), RunError> {
        match report {
            WorkerReport::WorkerMessage(WorkerMessage::Begun { cell: begun }) => {
                bench.begun |= bench.cell.is_some_and(|(cell, _)| cell.cell == begun);
                Ok(())
            }
            WorkerReport::WorkerMessage(WorkerMessage::Ended(mut ended)) => {
                if let Some((cell, _)) = &bench.cell {
                    self.add_below(bench.below, &self.experiment.points[cell.point], &mut ended);
                }
                if let Some((cell, _)) = bench.cell.take_if(|(cell, _)| cell.cell == ended.cell) {
                    self.keep(&cell, *ended)?;
                }
                Ok(())
            }
            WorkerReport::Gone(reason) => {
                bench.hand = None;
                let Some((cell, deaths)) = bench.cell.take() else { return Ok(()) };
                if self.stopping.is_some() {
                    return self.keep(&cell, nothing(&cell, Outcome::Aborted));
                }
                // On this host, a worker that dies within a cell is assumed to have died of it.
                let is_innocent = host == HostKind::Emulated || !bench.begun;
                if is_innocent && deaths + 1 < DEATHS {
                    self.watcher.died(&cell, &reason);
                    bench.again = Some((cell, deaths + 1));
                    return Ok(());
                }
                let outcome = Outcome::Failed { error: reason, trace: String::new() };
                self.keep(&cell, nothing(&cell, outcome))
            }
        }
    }

    /// Returns the current state of this host.
    fn moment(&self) -> Option<HostMoment> {
        self.own_cpus.as_ref().map(|cpus| HostWatch::below(cpus).moment())
    }

    /// Adds this host's activity while a cell ran in an emulated host.
    fn add_below(&self, before: Option<HostMoment>, point: &Point, ended: &mut Ended) {
        let Outcome::Done { figures } = &mut ended.outcome else { return };
        let seconds = figures.seconds;
        if let Some((before, after)) = before.zip(self.moment())
            && let Some(around) = &mut figures.around
        {
            let span = HostWindow { before, after, pause: Nanos::ZERO };
            let all = self.own_cpus.as_ref().map_or(0, |cpus| cpus.cpus().len() as u32);
            around.add_below(&span, all, point, (seconds, ended.took));
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
            node: None,
            outcome: ended.outcome,
        };
        match &line.outcome {
            Outcome::Done { figures } => {
                self.summary.done += 1;
                self.summary.broken += u32::from(figures.is_broken());
            }
            Outcome::Failed { .. } => self.summary.failed += 1,
            Outcome::Aborted => self.summary.left += 1,
        }
        match ended.trace {
            // Stored before the store records that the cell is done.
            Some(Ok(trace)) => self.workers.keep_trace(trace).map_err(RunError::Keep)?,
            Some(Err(error)) => self.watcher.untraced(cell, &error),
            None => {}
        }
        if let Some(recording) = ended.recording {
            self.workers.keep_recording(recording);
        }
        let line = Line::Cell(Box::new(line));
        self.store.append(&line)?;
        if let Line::Cell(line) = line {
            self.watcher.ended(&line);
        }
        Ok(())
    }
}

/// Waits until `at_work` workers have ended, for at most [`PATIENCE`].
async fn wait_for(mut at_work: usize, reports: &mut Receiver<(usize, WorkerReport)>) {
    let deadline = Instant::now() + PATIENCE;
    while at_work > 0 {
        tokio::select! {
            Some((_, report)) = reports.recv() => {
                at_work -= usize::from(matches!(report, WorkerReport::Gone(_)));
            }
            () = sleep_until(deadline) => return,
        }
    }
}

/// Returns the result of a cell whose worker has exited.
fn nothing(cell: &PlannedCell, outcome: Outcome) -> Ended {
    Ended {
        cell: cell.cell,
        at_ms: clock::since_1970(),
        took: 0.0,
        load: Load::default(),
        outcome,
        trace: None,
        recording: None,
    }
}
