//! Experiments from specs: errors, execution and reports.

use crate::prelude::*;

tests![
    a_spec_is_dry_run,
    every_cell_is_run_and_stored_once,
    ctrl_c_stores_the_cell_as_aborted,
    a_store_is_not_written_twice,
    equal_runs_do_not_differ => Quiet("25 s: verdicts about rates"),
    pv_beats_native_under_overcommit => Quiet("a significance test of rates"),
    the_first_cell_of_each_point_is_traced,
    cells_of_both_hosts_are_run,
];

/// Twenty cells. The figures of a cell show its number of vCPUs and whether a schedule of pvticket ran.
pub(super) const TWENTY: &str = "
name = \"twenty\"
vcpus = [1, 2, 3, 4, 5]
locks = \"pv-ticket\"
policies = [\"host\", \"rr\"]
repetitions = 2
seconds = 0.15
";

pub(super) fn spec(folder: &Path, text: &str) -> anyhow::Result<PathBuf> {
    let file = folder.join("spec.toml");
    fs::write(&file, text)?;
    Ok(file)
}

/// Returns the complete lines of a store.
pub(super) fn lines(dir: &Path) -> anyhow::Result<Vec<Value>> {
    let text = fs::read_to_string(dir.join("cells.jsonl"))?;
    let complete = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    complete.map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
}

/// Returns the lines that describe cells.
pub(super) fn cells(dir: &Path) -> anyhow::Result<Vec<Value>> {
    let mut lines = lines(dir)?;
    lines.retain(|line| line["kind"] == "cell");
    Ok(lines)
}

fn cells_with(dir: &Path, status: &str) -> anyhow::Result<Vec<Value>> {
    let mut cells = cells(dir)?;
    cells.retain(|cell| cell["status"] == status);
    Ok(cells)
}

/// Returns the rows of the exported table, with their values by column.
pub(super) fn exported(dir: &Path) -> anyhow::Result<Vec<BTreeMap<String, String>>> {
    let ran = pvticket(["export", "--csv", "-"]).args([dir]).run()?.exits(0)?;
    let mut lines = ran.text()?.lines().map(|line| line.split(',').map(str::to_owned));
    let names: Vec<String> = lines.next().context("no header")?.collect();
    Ok(lines.map(|values| names.iter().cloned().zip(values).collect()).collect())
}

/// Builds a run of this spec with these options; returns its directory, `run` in the folder, too.
pub(super) fn run_in(
    folder: &TempDir,
    text: &str,
    options: &[&str],
) -> anyhow::Result<(Program, PathBuf)> {
    let (spec, dir) = (spec(folder.path(), text)?, folder.path().join("run"));
    Ok((pvticket(["run", "--dir"]).args([&dir, &spec]).args(options), dir))
}

/// A finished run of a spec.
pub(super) struct Run {
    pub folder: TempDir,
    pub dir: PathBuf,
    pub ran: RunResult,
}

impl Run {
    /// Runs this spec with these options.
    pub fn new(text: &str, options: &[&str]) -> anyhow::Result<Self> {
        let folder = files::scratch()?;
        let (run, dir) = run_in(&folder, text, options)?;
        let ran = run.limit(240).run()?.exits(0)?;
        Ok(Self { folder, dir, ran })
    }

    pub fn cells(&self) -> anyhow::Result<Vec<Value>> {
        cells(&self.dir)
    }
}

fn a_spec_is_dry_run() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let ran =
        pvticket(["run", "--dry-run"]).args([spec(folder.path(), TWENTY)?]).run()?.exits(0)?;
    let text = ran.text()?;
    ensure!(text.lines().count() == 11, "{}", ran.show());
    ensure!(text.contains("2 x payload lock, pv-ticket, 5 vCPUs on "), "{}", ran.show());
    ensure!(text.contains("20 cells of 10 points, about "), "{}", ran.show());
    for name in ["collapse", "preemption", "seeds"] {
        pvticket(["run", name, "--dry-run"]).run()?.exits(0)?;
    }
    let only = ["run", "collapse", "--dry-run", "--only", "vcpus=4x", "--only", "policies=rr"];
    let ran = pvticket(only).run()?.exits(0)?;
    ran.stdout_has(&["20 cells of 2 points"])
}

/// Checks that the store has each of the twenty cells once, with figures that fit the cell's point.
pub(super) fn check_twenty(dir: &Path) -> anyhow::Result<()> {
    let done = cells_with(dir, "done")?;
    let mut runs: BTreeMap<u64, u32> = BTreeMap::new();
    let mut points: BTreeMap<String, u32> = BTreeMap::new();
    for cell in &done {
        *runs.entry(cell["cell"].as_u64().context("no number")?).or_default() += 1;
        let (point, figures) = (&cell["point"], &cell["figures"]);
        *points.entry(format!("{} {}", point["vcpus"], point["policy"])).or_default() += 1;
        ensure!(
            point["vcpus"] == each_operations(figures).len(),
            "figures of another cell: {cell}"
        );
        // The host's scheduler may be observed.
        let is_unobserved = point["policy"] == "host" && figures["unobserved"].is_string();
        ensure!(is_unobserved == figures["schedule"].is_null(), "wrong policy: {cell}");
        ensure!(figures["violations"] == 0 && figures["disorder"] == 0, "broken promises: {cell}");
    }
    ensure!(runs.len() == 20 && runs.values().all(|count| *count == 1), "not once each: {runs:?}");
    ensure!(points.len() == 10 && points.values().all(|count| *count == 2), "mixed: {points:?}");
    Ok(())
}

fn every_cell_is_run_and_stored_once() -> anyhow::Result<()> {
    need_kvm()?;
    let Run { folder: _folder, dir, ran } = Run::new(TWENTY, &[])?;
    // Without a terminal, a line for each tenth of the cells.
    let errors = ran.errors();
    let progress: Vec<&str> = errors
        .lines()
        .filter(|line| line.starts_with("cell ") || line.starts_with("measured "))
        .collect();
    let begins = |ix: usize| format!("measured {}/20, ", 2 * (ix + 1));
    let is_it = |(ix, line): (usize, &&str)| line.starts_with(&begins(ix));
    ensure!(progress.len() == 10 && progress.iter().enumerate().all(is_it), "{}", ran.show());
    ensure!(progress[0].ends_with(" left") && progress[9].contains(", after "), "{}", ran.show());
    check_twenty(&dir)?;
    let lines = lines(&dir)?;
    ensure!(lines[0]["kind"] == "run" && lines[1]["kind"] == "session", "{:?}", &lines[..2]);
    ensure!(
        lines[1]["host"]["binary"]["sha256"].is_string(),
        "no hash of the binary: {}",
        lines[1]
    );
    // A resume has nothing left to do.
    pvticket(["run", "--resume"]).args([&dir]).run()?.exits(0)?;
    check_twenty(&dir)
}

/// A cell of a minute, so that it is certainly running.
const LONG: &str = "vcpus = 2\nlocks = \"ticket\"\nrepetitions = 2\nseconds = 60\n";

fn ctrl_c_stores_the_cell_as_aborted() -> anyhow::Result<()> {
    need_kvm()?;
    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let folder = files::scratch()?;
        let (run, dir) = run_in(&folder, LONG, &[])?;
        let mut running = run.start()?;
        running.wait_until("a session", || lines(&dir).is_ok_and(|lines| lines.len() == 2))?;
        running.signal(signal)?;
        let ran = running.wait()?.exits(status)?;
        ensure!(ran.errors().contains("pvticket run --resume "), "{}", ran.show());
        let aborted = cells_with(&dir, "aborted")?.len();
        ensure!(aborted == 1 && cells_with(&dir, "done")?.is_empty(), "{}", ran.show());
    }
    Ok(())
}

fn a_store_is_not_written_twice() -> anyhow::Result<()> {
    need_kvm()?;
    let folder = files::scratch()?;
    let (run, dir) = run_in(&folder, LONG, &[])?;
    let mut running = run.start()?;
    running.wait_until("a session", || lines(&dir).is_ok_and(|lines| lines.len() == 2))?;
    pvticket(["run", "--resume"]).args([&dir]).run()?.fails(1, &["in use"])?;
    run_in(&folder, LONG, &[])?.0.run()?.fails(1, &["already has a run"])?;
    running.signal(Signal::INT)?;
    running.wait()?.exits(130).map(drop)
}

/// Returns the report printed at the end of a run of this spec.
fn reported(text: &str) -> anyhow::Result<String> {
    need_kvm()?;
    let run = Run::new(text, &[])?;
    ensure!(run.dir.join("report.html").is_file(), "no page: {}", run.ran.show());
    run.ran.words()
}

/// One comparison in twenty may differ by chance: at most one of the three here.
fn equal_runs_do_not_differ() -> anyhow::Result<()> {
    let mut differing = Vec::new();
    for seed in 1..=3 {
        let text = reported(&format!(
            "labels = [\"this\", \"itself\"]\nlocks = \"pv-ticket\"\nvcpus = [\"1x\", \"2x\"]\n\
             policies = \"rr\"\nrepetitions = 8\nseconds = 0.1\nseeds = {seed}\n"
        ))?;
        let differs = text.contains(" is faster than ") || text.contains(" is slower than ");
        ensure!(differs || text.contains("No significant difference"), "{text}");
        if differs {
            differing.push(text);
        }
    }
    expect_usually!(differing.len() < 2, "{}", differing.join("\n"));
    Ok(())
}

fn pv_beats_native_under_overcommit() -> anyhow::Result<()> {
    let text = reported("vcpus = \"2x\"\npolicies = \"rr\"\nrepetitions = 8\nseconds = 0.1\n")?;
    expect_usually!(text.contains("pv-ticket is faster than ticket"), "{text}");
    Ok(())
}

fn the_first_cell_of_each_point_is_traced() -> anyhow::Result<()> {
    need_kvm()?;
    let folder = files::scratch()?;
    let trace = folder.path().join("trace");
    let (run, _) = run_in(&folder, TWENTY, &["--only", "vcpus=3,4", "--trace"])?;
    run.args([&trace]).run()?.exits(0)?;
    let ran = pvticket(["trace", "--json"]).args([&trace]).run()?.exits(0)?;
    let digest = ran.json()?;
    let runs = digest["runs"].as_array().with_context(|| ran.show())?;
    ensure!(runs.len() == 4, "{} runs\n{digest:#}", runs.len());
    Ok(())
}

/// If a cell needs ring 0 and this host's KVM lacks it, all compared cells run in the emulated host.
fn cells_of_both_hosts_are_run() -> anyhow::Result<()> {
    let text = "vcpus = 2\nlocks = \"pv-ticket\"\nbackends = [\"vmm\", \"kvm\"]\nrepetitions = 1\n\
                seconds = 0.3\n";
    let done = cells_with(&Run::new(text, &[])?.dir, "done")?;
    ensure!(done.len() == 2, "{done:?}");
    let hosts: Vec<_> = done.iter().map(|cell| cell["point"]["host"].clone()).collect();
    ensure!(hosts[0] == hosts[1], "compared cells ran on different hosts: {hosts:?}");
    let has_operations = |cell: &Value| cell["figures"]["operations"][0].as_u64() > Some(0);
    expect_usually!(done.iter().all(has_operations), "{done:?}");
    Ok(())
}
