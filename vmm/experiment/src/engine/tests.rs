use std::{env, fs, path::PathBuf, process};

use super::*;
use os::signals::Interrupt;
use study::{
    spec::{Experiment, Setting},
    store::{
        Store,
        record::{FORMAT, Figures, Outcome, RunLine},
    },
};

/// Workers that are shell scripts.
struct Scripts {
    script: String,
    jobs: usize,
}

/// A script that takes jobs, runs `before` with the cell's number in `$n`, reports that the cell has
/// begun, runs `each`, and reports that it is done.
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
    fn worker(&self, _: HostKind) -> Command {
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

    fn keep_trace(&self, _: Bytes) -> io::Result<()> {
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
    let cpus = "0-1".parse().unwrap();
    let place = |_: &str, _, _| Ok(host);
    let setting = Setting::new(&cpus, &place);
    Experiment::parse("vcpus = [2, 3]\nrepetitions = 2", "test", &setting).unwrap()
}

struct Ran {
    summary: Summary,
    log: Log,
    stored: Vec<CellLine>,
}

/// Runs eight cells except the `finished` ones.
fn ran(
    name: &str,
    host: HostKind,
    workers: &Scripts,
    finished: &[u32],
    interrupt: &Interrupt,
) -> Ran {
    let dir = env::temp_dir().join(format!("pvticket-run-{}-{name}", process::id()));
    let _ = fs::remove_dir_all(&dir);
    let experiment = experiment(host);
    let run_line = RunLine {
        format: FORMAT,
        name: "test".into(),
        question: String::new(),
        spec: String::new(),
        only: Vec::new(),
        host: "auto".into(),
        host_kernel: Default::default(),
        guest_kernel: Default::default(),
        cpus: vec![0, 1],
        jobs: 1,
        seed: 1,
        cells: 8,
        part: None,
        at_ms: 1,
        machines: Vec::new(),
    };
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
    fs::remove_dir_all(dir).unwrap();
    Ran { summary, log, stored }
}

fn one(each: &str) -> Scripts {
    Scripts { script: script(":", each), jobs: 1 }
}

#[test]
fn every_cell_that_is_left_is_run_once_and_stored() {
    let Ran { summary, log, stored } =
        ran("all", HostKind::Direct, &one(":"), &[0, 3], &Interrupt::never());
    assert_eq!(summary, Summary { done: 6, ..Summary::default() });
    let cells: Vec<u32> = stored.iter().map(|line| line.cell).collect();
    assert_eq!(cells, [1, 2, 4, 5, 6, 7]);
    assert_eq!(log.ended.len(), 6);
    let side_by_side = Scripts { script: script(":", ":"), jobs: 3 };
    let mut cells: Vec<u32> =
        ran("jobs", HostKind::Direct, &side_by_side, &[], &Interrupt::never())
            .stored
            .iter()
            .map(|line| line.cell)
            .collect();
    cells.sort_unstable();
    assert_eq!(cells, [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn a_dead_worker_costs_its_cell_and_no_other() {
    let workers = one("[ $n = 2 ] && { echo gone >&2; exit 3; }");
    let Ran { summary, log, .. } =
        ran("dead", HostKind::Direct, &workers, &[], &Interrupt::never());
    assert_eq!((summary.done, summary.failed, summary.left), (7, 1, 0));
    let (_, how) = log.ended.iter().find(|(cell, _)| *cell == 2).unwrap();
    assert!(how.contains("exit status: 3") && how.contains("gone"), "{how}");
}

#[test]
fn an_unknown_message_ends_a_worker() {
    let workers = one("[ $n = 1 ] && echo nonsense");
    let Ran { summary, log, .. } =
        ran("nonsense", HostKind::Direct, &workers, &[], &Interrupt::never());
    assert_eq!((summary.done, summary.failed), (7, 1));
    assert!(log.ended.iter().any(|(_, how)| how.contains("an invalid message")), "{:?}", log.ended);
}

/// A marker file tells the second worker from the first.
#[test]
fn a_worker_that_dies_between_cells_costs_none() {
    let marker: PathBuf = env::temp_dir().join(format!("pvticket-between-{}", process::id()));
    let _ = fs::remove_file(&marker);
    let before =
        format!("[ $n = 3 ] && [ ! -e {0} ] && {{ touch {0}; exit 1; }}", marker.display());
    let workers = Scripts { script: script(&before, ":"), jobs: 1 };
    let Ran { summary, log, .. } =
        ran("between", HostKind::Direct, &workers, &[], &Interrupt::never());
    assert_eq!((summary.done, summary.failed, log.died.len()), (8, 0, 1));
    fs::remove_file(marker).unwrap();
    // A worker that always dies before its first cell is not restarted forever.
    let workers = Scripts { script: script("exit 1", ":"), jobs: 1 };
    let Ran { summary, log, .. } =
        ran("never", HostKind::Direct, &workers, &[], &Interrupt::never());
    assert_eq!((summary.done, summary.failed, log.died.len()), (0, 8, 16));
}

#[test]
fn what_costs_an_emulated_host_its_life_is_run_again_a_few_times() {
    let marker: PathBuf = env::temp_dir().join(format!("pvticket-died-{}", process::id()));
    let _ = fs::remove_file(&marker);
    let workers =
        one(&format!("[ $n = 1 ] && [ ! -e {0} ] && {{ touch {0}; exit 1; }}", marker.display()));
    let Ran { summary, log, .. } =
        ran("again", HostKind::Emulated, &workers, &[], &Interrupt::never());
    assert_eq!((summary.done, summary.failed), (8, 0));
    assert_eq!(log.died.len(), 1);
    fs::remove_file(marker).unwrap();
    let workers = one("[ $n = 1 ] && exit 1");
    let Ran { summary, log, .. } =
        ran("thrice", HostKind::Emulated, &workers, &[], &Interrupt::never());
    assert_eq!((summary.done, summary.failed, log.died.len()), (7, 1, 2));
}

/// A worker that ignores the end of its input is killed.
#[test]
fn stopped_it_aborts_what_is_under_way_and_leaves_the_rest() {
    let interrupt = Interrupt::with_bell().unwrap();
    interrupt.raise();
    let Ran { summary, log, stored } =
        ran("stop", HostKind::Direct, &one("sleep 600"), &[], &interrupt);
    assert_eq!((summary.done, summary.failed, summary.left, summary.stopped), (0, 0, 8, true));
    assert_eq!((log.ended.len(), stored.len()), (1, 1));
    assert_eq!(stored[0].outcome, Outcome::Aborted);
}
