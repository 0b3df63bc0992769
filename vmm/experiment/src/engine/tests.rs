use super::*;
use os::signals::Interrupt;
use study::{
    spec::Experiment,
    store::{
        Store,
        record::{Figures, Outcome, RunLine},
    },
    testing::{Fixture, parse_spec, record},
};

/// Workers that are shell scripts.
struct Scripts {
    script: String,
    jobs: usize,
}

/// A script that takes jobs. It runs `before` with the cell's number in `$n`, reports that the cell has
/// begun, runs `each`, and reports that the cell is done.
fn script(before: &str, each: &str) -> String {
    let figures = serde_json::to_string(&Figures::default()).unwrap();
    let outcome = format!(r#"{{"status":"done","figures":{figures}}}"#);
    let ended = format!(
        r#"{{"word":"ended","cell":'$n',"at_ms":1,"took":0.5,"load":{{}},"outcome":{outcome}}}"#
    );
    let begun = r#"{"word":"begun","cell":'$n'}"#;
    format!(
        "while read -r job; do n=${{job#*'\"cell\":'}}; n=${{n%%,*}}; {before}; echo '{begun}'; \
         {each}; echo '{ended}'; done"
    )
}

impl WorkerPool for Scripts {
    fn worker(&self, _: HostKind, _: Option<HostKernel>) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", &self.script]);
        command
    }

    fn cpus(&self, _: HostKind, _: usize) -> Option<Vec<usize>> {
        None
    }

    fn jobs(&self) -> usize {
        self.jobs
    }

    fn extras(&self, _: &PlannedCell) -> Extras {
        Extras::default()
    }

    fn store_trace(&self, _: Bytes) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct Log {
    ended: Vec<(u32, String)>,
    died: Vec<String>,
}

impl Watcher for Log {
    fn started(&mut self, _: &PlannedCell, _: &Point) {}

    fn ended(&mut self, line: &CellLine) {
        let how = match &line.outcome {
            Outcome::Done { .. } => "done".to_owned(),
            Outcome::Failed { error, .. } => error.clone(),
            Outcome::Aborted => "aborted".to_owned(),
        };
        self.ended.push((line.cell, how));
    }

    fn died(&mut self, cell: &PlannedCell, reason: &str) {
        self.died.push(format!("cell {}: {reason}", cell.cell));
    }

    fn stopping(&mut self) {}
}

fn experiment(host: HostKind) -> Experiment {
    parse_spec("vcpus = [2, 3]\nrepetitions = 2", "0-1", host)
}

struct Run {
    summary: Summary,
    log: Log,
    stored: Vec<CellLine>,
}

/// Runs eight cells except the `finished` ones.
fn run_cells(host: HostKind, workers: &Scripts, finished: &[u32], interrupt: &Interrupt) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    let experiment = experiment(host);
    let run_line = RunLine { cells: 8, ..record(&Fixture::default()).contents.run };
    let mut store = Store::create(&dir, run_line).unwrap();
    let mut log = Log::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let finished = finished.iter().copied().collect();
    let summary = runtime
        .block_on(async {
            let stop = interrupt.listener().unwrap();
            run(&experiment, &finished, &mut store, workers, &mut log, stop).await
        })
        .unwrap();
    let stored = study::store::read(&dir).unwrap().cells;
    Run { summary, log, stored }
}

fn worker(each: &str) -> Scripts {
    Scripts { script: script(":", each), jobs: 1 }
}

#[test]
fn remaining_cells_run_once_and_are_stored() {
    let Run { summary, log, stored } =
        run_cells(HostKind::Direct, &worker(":"), &[0, 3], &Interrupt::never());
    assert_eq!(summary, Summary { done: 6, ..Summary::default() });
    let cells = |stored: &[CellLine]| stored.iter().map(|line| line.cell).collect::<Vec<_>>();
    assert_eq!(cells(&stored), [1, 2, 4, 5, 6, 7]);
    assert_eq!(log.ended.len(), 6);
    let side_by_side = Scripts { script: script(":", ":"), jobs: 3 };
    let stored = run_cells(HostKind::Direct, &side_by_side, &[], &Interrupt::never()).stored;
    let mut cells = cells(&stored);
    cells.sort_unstable();
    assert_eq!(cells, [0, 1, 2, 3, 4, 5, 6, 7]);
}

/// Counts done cells, failed cells and retries. `ONCE` holds only for the first worker. A cell that
/// ends its emulated host is retried a few times, and a worker that always dies is not restarted forever.
#[test]
fn dead_worker_costs_only_its_cell() {
    let (direct, emulated) = (HostKind::Direct, HostKind::Emulated);
    let dying = "[ $n = 2 ] && { echo gone >&2; exit 3; }";
    for (host, before, each, counts, reasons) in [
        (direct, ":", dying, (7, 1, 0), &["exit status: 3", "gone"][..]),
        (direct, ":", "[ $n = 1 ] && echo nonsense", (7, 1, 0), &["an invalid message"]),
        (direct, "[ $n = 3 ] && ONCE && exit 1", ":", (8, 0, 1), &[]),
        (direct, "exit 1", ":", (0, 8, 16), &[]),
        (emulated, ":", "[ $n = 1 ] && ONCE && exit 1", (8, 0, 1), &[]),
        (emulated, ":", "[ $n = 1 ] && exit 1", (7, 1, 2), &[]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let once = format!("mkdir {} 2>/dev/null", folder.path().join("once").display());
        let script = script(before, each).replace("ONCE", &once);
        let Run { summary, log, .. } =
            run_cells(host, &Scripts { script, jobs: 1 }, &[], &Interrupt::never());
        let actual = (summary.done, summary.failed, log.died.len());
        assert_eq!((actual, summary.remaining), (counts, 0), "{before} {each}");
        let is_named = |how: &str| reasons.iter().all(|reason| how.contains(reason));
        assert!(log.ended.iter().any(|(_, how)| is_named(how)), "{:?}", log.ended);
    }
}

/// A worker that ignores the end of its input is killed.
#[test]
fn stop_aborts_running_cells() {
    let interrupt = Interrupt::with_descriptor().unwrap();
    interrupt.raise();
    let Run { summary, log, stored } =
        run_cells(HostKind::Direct, &worker("sleep 600"), &[], &interrupt);
    assert_eq!((summary.done, summary.failed, summary.remaining, summary.stopped), (0, 0, 8, true));
    assert_eq!((log.ended.len(), stored.len()), (1, 1));
    assert_eq!(stored[0].outcome, Outcome::Aborted);
}
