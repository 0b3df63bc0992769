//! The loop of a run: passes cells to workers, receives their reports, and stores results.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque, btree_map::Entry},
    time::Duration,
};

use tokio::{
    sync::mpsc::{self, Receiver},
    time::{Instant, sleep_until},
};

use super::{
    RunError, Summary, Watcher, WorkerPool,
    job::{Ended, Job, WorkerMessage},
    worker_handle::{Reports, WorkerHandle, WorkerId, WorkerReport},
};
use crate::host::{allowed_cpus, around::HostWatch};
use base::units::{CpuList, Nanos};
use machine::clock;
use os::signals::Listener;
use study::{
    host_window::{HostMoment, HostWindow},
    point::{HostKernel, HostKind, Point},
    spec::{Experiment, PlannedCell},
    store::{
        Store,
        record::{CellLine, Line, Load, Outcome},
    },
};

/// A cell counts as failed when this many emulated hosts have died while running it, or this many
/// workers before starting it.
const MAX_DEATHS: u32 = 3;

/// Capacity of the queue of workers' reports.
const REPORTS: usize = 64;

/// Time limit for workers to abort their cells when the run stops.
const ABORT_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });

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
        stop_deadline: None,
        summary: Summary::default(),
        tried: HashMap::new(),
        own_cpus: allowed_cpus().ok(),
    };
    for host in [HostKind::Direct, HostKind::Emulated] {
        let is_on_host = |cell: &&PlannedCell| experiment.points[cell.point].host == host;
        let queue = cells.iter().filter(|cell| !finished.contains(&cell.cell)).filter(is_on_host);
        run.run_host(host, queue.copied().collect()).await?;
    }
    run.summary.stopped = run.stop_deadline.is_some();
    Ok(run.summary)
}

struct RunLoop<'a> {
    experiment: &'a Experiment,
    store: &'a mut Store,
    workers: &'a dyn WorkerPool,
    watcher: &'a mut dyn Watcher,
    stop: Listener,
    /// Time at which the run stops waiting for its workers; set once the user ends the run.
    stop_deadline: Option<Instant>,
    summary: Summary,
    /// Points with figures, and points of the user's guest kernels whose first cell failed, which are not run again.
    tried: HashMap<usize, bool>,
    /// CPUs of this host that the run could use at its start.
    own_cpus: Option<CpuList>,
}

/// A job with its workers.
#[derive(Default)]
struct WorkerSlot {
    /// A worker for each kernel of the emulated host.
    workers: BTreeMap<Option<HostKernel>, WorkerHandle>,
    /// The cell that the worker runs, with the number of workers that died before or during it.
    cell: Option<(PlannedCell, u32)>,
    /// Whether the worker has reported the cell's start.
    begun: bool,
    /// State of this host when the cell was passed to an emulated host.
    before: Option<HostMoment>,
    /// A cell to run again because its worker died, with the number of deaths.
    retry: Option<(PlannedCell, u32)>,
}

impl WorkerSlot {
    fn next(&mut self, queue: &mut VecDeque<PlannedCell>) -> Option<(PlannedCell, u32)> {
        self.retry.take().or_else(|| queue.pop_front().map(|cell| (cell, 0)))
    }
}

/// Closes the input of all workers.
fn close(slots: &mut [WorkerSlot]) {
    slots.iter_mut().flat_map(|slot| slot.workers.values_mut()).for_each(WorkerHandle::close);
}

impl RunLoop<'_> {
    async fn run_host(
        &mut self,
        host: HostKind,
        mut queue: VecDeque<PlannedCell>,
    ) -> Result<(), RunError> {
        let (send, mut reports) = mpsc::channel(REPORTS);
        let mut slots: Vec<WorkerSlot> =
            (0..self.workers.jobs()).map(|_| WorkerSlot::default()).collect();
        loop {
            if self.watcher.has_enough() {
                self.summary.remaining += std::mem::take(&mut queue).len() as u32;
            }
            for (number, slot) in slots.iter_mut().enumerate() {
                if self.stop_deadline.is_some() || slot.cell.is_some() {
                    continue;
                }
                let is_hopeless = |cell: &PlannedCell| self.tried.get(&cell.point) == Some(&false);
                while queue.pop_front_if(|cell| is_hopeless(cell)).is_some() {
                    self.summary.remaining += 1;
                }
                if let Some(next) = slot.next(&mut queue) {
                    self.begin(slot, next, host, number, &send).await?;
                }
            }
            let all_idle = slots.iter().all(|slot| slot.cell.is_none());
            let queue_is_empty = queue.is_empty() && slots.iter().all(|slot| slot.retry.is_none());
            if all_idle && (queue_is_empty || self.stop_deadline.is_some()) {
                break;
            }
            let deadline = self.stop_deadline.unwrap_or_else(|| Instant::now() + ABORT_TIMEOUT);
            tokio::select! {
                Some((number, report)) = reports.recv() => {
                    let (number, kernel) = number;
                    self.handle_report(&mut slots[number], kernel, report, host).await?;
                }
                () = self.stop.raised(), if self.stop_deadline.is_none() => self.abort(&mut slots),
                () = sleep_until(deadline), if self.stop_deadline.is_some() => {
                    // Dropping the handle kills the worker, which is then reported as exited.
                    slots.iter_mut().for_each(|slot| slot.workers.clear());
                    self.stop_deadline = Some(Instant::now() + ABORT_TIMEOUT);
                }
            }
        }
        let retries = slots.iter().filter(|slot| slot.retry.is_some()).count();
        self.summary.remaining += (queue.len() + retries) as u32;
        let running = slots.iter().map(|slot| slot.workers.len()).sum();
        // Workers exit at the end of their input.
        close(&mut slots);
        wait_for(running, &mut reports).await;
        Ok(())
    }

    /// Passes a cell to a worker.
    async fn begin(
        &mut self,
        slot: &mut WorkerSlot,
        (cell, deaths): (PlannedCell, u32),
        host: HostKind,
        number: usize,
        reports: &Reports,
    ) -> Result<(), RunError> {
        let point = &self.experiment.points[cell.point];
        let kernel = point.host_kernel;
        let worker = match slot.workers.entry(kernel) {
            Entry::Occupied(worker) => worker.into_mut(),
            Entry::Vacant(place) => {
                let command = self.workers.worker(host, kernel);
                let id = (number, kernel);
                place.insert(WorkerHandle::start(command, id, reports.clone())?)
            }
        };
        (slot.cell, slot.begun) = (Some((cell, deaths)), false);
        slot.before = self.moment().filter(|_| host == HostKind::Emulated);
        let cpus = self.workers.cpus(host, number);
        let method = self.experiment.method;
        self.watcher.started(&cell, point);
        let extras = self.workers.extras(&cell);
        let machine = self.experiment.machine_text(point).map(str::to_owned);
        let point = point.clone();
        let job = Job { cell: cell.cell, point, machine, method, cpus, extras };
        Ok(worker.send(&job).await?)
    }

    /// Makes the workers abort their cells.
    fn abort(&mut self, slots: &mut [WorkerSlot]) {
        self.watcher.stopping();
        self.stop_deadline = Some(Instant::now() + ABORT_TIMEOUT);
        close(slots);
    }

    async fn handle_report(
        &mut self,
        slot: &mut WorkerSlot,
        kernel: Option<HostKernel>,
        report: WorkerReport,
        host: HostKind,
    ) -> Result<(), RunError> {
        match report {
            WorkerReport::Message(WorkerMessage::Begun { cell: begun }) => {
                slot.begun |= slot.cell.is_some_and(|(cell, _)| cell.cell == begun);
                Ok(())
            }
            WorkerReport::Message(WorkerMessage::Ended(mut ended)) => {
                if let Some((cell, _)) = &slot.cell {
                    self.add_host(slot.before, &self.experiment.points[cell.point], &mut ended);
                }
                if let Some((cell, _)) = slot.cell.take_if(|(cell, _)| cell.cell == ended.cell) {
                    self.store_result(&cell, *ended)?;
                }
                Ok(())
            }
            WorkerReport::Exited(reason) => {
                slot.workers.remove(&kernel);
                let is_own =
                    |cell: &PlannedCell| self.experiment.points[cell.point].host_kernel == kernel;
                let Some((cell, deaths)) = slot.cell.take_if(|(cell, _)| is_own(cell)) else {
                    return Ok(());
                };
                if self.stop_deadline.is_some() {
                    return self.store_result(&cell, empty_result(&cell, Outcome::Aborted));
                }
                // On this host, a worker that dies within a cell is assumed to have died of it.
                let is_innocent = host == HostKind::Emulated || !slot.begun;
                if is_innocent && deaths + 1 < MAX_DEATHS {
                    self.watcher.died(&cell, &reason);
                    slot.retry = Some((cell, deaths + 1));
                    return Ok(());
                }
                let outcome = Outcome::Failed { error: reason, trace: String::new() };
                self.store_result(&cell, empty_result(&cell, outcome))
            }
        }
    }

    /// Returns the current state of this host.
    fn moment(&self) -> Option<HostMoment> {
        self.own_cpus.as_ref().map(|cpus| HostWatch::for_emulated(cpus).moment())
    }

    /// Adds this host's activity while a cell ran in an emulated host.
    fn add_host(&self, before: Option<HostMoment>, point: &Point, ended: &mut Ended) {
        let Outcome::Done { figures } = &mut ended.outcome else { return };
        let seconds = figures.seconds;
        if let Some((before, after)) = before.zip(self.moment())
            && let Some(around) = &mut figures.around
        {
            let span = HostWindow { before, after, pause: Nanos::ZERO };
            let cpu_count = self.own_cpus.as_ref().map_or(0, |cpus| cpus.cpus().len() as u32);
            around.add_outer(&span, cpu_count, point, (seconds, ended.took));
        }
    }

    fn store_result(&mut self, cell: &PlannedCell, ended: Ended) -> Result<(), RunError> {
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
        let is_done = matches!(line.outcome, Outcome::Done { .. });
        if is_done || line.point.guest_kernel.is_own() {
            self.tried.entry(cell.point).or_insert(is_done);
        }
        match &line.outcome {
            Outcome::Done { figures } => {
                self.summary.done += 1;
                self.summary.broken += u32::from(figures.is_broken());
            }
            Outcome::Failed { .. } => self.summary.failed += 1,
            Outcome::Aborted => self.summary.remaining += 1,
        }
        match ended.trace {
            // Stored before the store records that the cell is done.
            Some(Ok(trace)) => self.workers.store_trace(trace).map_err(RunError::Trace)?,
            Some(Err(error)) => self.watcher.untraced(cell, &error),
            None => {}
        }
        if let Some(recording) = ended.recording {
            self.workers.store_recording(recording);
        }
        let line = Line::Cell(Box::new(line));
        self.store.append(&line)?;
        if let Line::Cell(line) = line {
            self.watcher.ended(&line);
        }
        Ok(())
    }
}

/// Waits until `running` workers have ended, for at most [`ABORT_TIMEOUT`].
async fn wait_for(mut running: usize, reports: &mut Receiver<(WorkerId, WorkerReport)>) {
    let deadline = Instant::now() + ABORT_TIMEOUT;
    while running > 0 {
        tokio::select! {
            Some((_, report)) = reports.recv() => {
                running -= usize::from(matches!(report, WorkerReport::Exited(_)));
            }
            () = sleep_until(deadline) => return,
        }
    }
}

/// Returns the result of a cell whose worker has exited.
fn empty_result(cell: &PlannedCell, outcome: Outcome) -> Ended {
    Ended {
        cell: cell.cell,
        at_ms: clock::unix_millis(),
        took: 0.0,
        load: Load::default(),
        outcome,
        trace: None,
        recording: None,
    }
}
