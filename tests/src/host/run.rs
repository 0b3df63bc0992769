//! Experiments from specs: what is refused, what is run, and what is left when a run is killed.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use rustix::process::Signal;
use serde_json::Value;

use crate::{
    expect_usually,
    facts::need_kvm,
    files,
    process::{Program, Running},
    product::pvticket,
    terminal::Terminal,
    tests,
};

tests![
    a_spec_is_dry_run,
    bad_specs_are_refused_with_their_line,
    every_cell_is_run_and_stored_once,
    a_killed_run_is_resumed_without_loss,
    a_torn_store_is_repaired_and_said,
    a_tampered_store_is_refused_in_one_line,
    ctrl_c_stores_the_cell_as_aborted,
    ctrl_c_restores_the_terminal,
    a_store_is_not_written_twice,
    a_thing_does_not_differ_from_itself,
    pv_beats_native_under_overcommit,
    a_run_is_traced,
    a_killed_runs_trace_goes_on_where_it_is_whole,
    cells_of_both_hosts_are_run,
];

/// Twenty cells whose figures tell them apart: by their vCPUs, and by who schedules them.
const TWENTY: &str = "
name = \"twenty\"
vcpus = [1, 2, 3, 4, 5]
locks = \"pv-ticket\"
policies = [\"host\", \"rr\"]
repetitions = 2
seconds = 0.15
";

fn spec(folder: &Path, text: &str) -> anyhow::Result<PathBuf> {
    let file = folder.join("spec.toml");
    fs::write(&file, text)?;
    Ok(file)
}

/// The lines of a store, of which the last may be torn.
pub(super) fn lines(dir: &Path) -> anyhow::Result<Vec<Value>> {
    let text = fs::read_to_string(dir.join("cells.jsonl"))?;
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
}

fn cells(dir: &Path, status: &str) -> anyhow::Result<Vec<Value>> {
    let mut lines = lines(dir)?;
    lines.retain(|line| line["kind"] == "cell" && line["status"] == status);
    Ok(lines)
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
    ensure!(ran.text()?.contains("20 cells of 2 points"), "{}", ran.show());
    Ok(())
}

fn bad_specs_are_refused_with_their_line() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    for (text, parts) in [
        ("vcpus = 2\nlock = \"ticket\"\n", ["line 2", "unknown key 'lock'"]),
        ("vcpus = [2,\n 0]\n", ["line 2", "vCPUs"]),
        ("locks = [\"ticket\"\n", ["line 1", "unclosed array"]),
        ("workloads = \"hot-line\"\nvcpus = 1\n", ["line 1", "[[exclude]]"]),
        ("vcpus = 2\n[[exclude]]\nvcpus = 7\n", ["line 3", "matches no cell"]),
    ] {
        let spec = spec(folder.path(), text)?;
        pvticket(["run"]).args([spec]).run()?.fails(2, &parts)?;
    }
    let none = folder.path().join("none.toml");
    pvticket(["run"]).args([none]).run()?.fails(2, &["none.toml"])?;
    pvticket(["run"]).run()?.fails(2, &["SPEC"])?;
    pvticket(["run", "collapse", "--only", "vcpu=3"]).run()?.fails(2, &["vcpu=3", "vcpus"])?;
    pvticket(["run", "collapse", "--jobs", "64"]).run()?.fails(2, &["--jobs 64"])?;
    pvticket(["run", "--resume"]).args([folder.path()]).run()?.fails(1, &["no run"])?;
    Ok(())
}

/// Every cell once, each with figures of its own point.
fn check_twenty(dir: &Path) -> anyhow::Result<()> {
    let done = cells(dir, "done")?;
    let mut seen: BTreeMap<u64, u32> = BTreeMap::new();
    let mut points: BTreeMap<String, u32> = BTreeMap::new();
    for cell in &done {
        *seen.entry(cell["cell"].as_u64().context("no number")?).or_default() += 1;
        let (point, figures) = (&cell["point"], &cell["figures"]);
        *points.entry(format!("{} {}", point["vcpus"], point["policy"])).or_default() += 1;
        let operations = figures["operations"].as_array().context("no operations")?;
        ensure!(point["vcpus"] == operations.len(), "figures of another cell: {cell}");
        ensure!((point["policy"] == "rr") != figures["schedule"].is_null(), "the same: {cell}");
        ensure!(figures["violations"] == 0 && figures["disorder"] == 0, "broken promises: {cell}");
    }
    ensure!(seen.len() == 20 && seen.values().all(|count| *count == 1), "not once each: {seen:?}");
    ensure!(points.len() == 10 && points.values().all(|count| *count == 2), "mixed: {points:?}");
    Ok(())
}

fn every_cell_is_run_and_stored_once() -> anyhow::Result<()> {
    need_kvm()?;
    let folder = files::scratch()?;
    let dir = folder.path().join("run");
    let ran =
        pvticket(["run", "--dir"]).args([&dir, &spec(folder.path(), TWENTY)?]).run()?.exits(0)?;
    ensure!(
        ran.errors().lines().filter(|line| line.starts_with("cell ")).count() == 20,
        "{}",
        ran.show()
    );
    check_twenty(&dir)?;
    let lines = lines(&dir)?;
    ensure!(lines[0]["kind"] == "run" && lines[1]["kind"] == "session", "{:?}", &lines[..2]);
    ensure!(
        lines[1]["host"]["binary"]["sha256"].is_string(),
        "no hash of the binary: {}",
        lines[1]
    );
    // Resumed, it has nothing to do.
    pvticket(["run", "--resume"]).args([&dir]).run()?.exits(0)?;
    check_twenty(&dir)
}

/// A generator of spans that differ: of a linear congruence, seeded by the caller.
fn span(state: &mut u64, most: Duration) -> Duration {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    most.mul_f64((*state >> 40) as f64 / (1_u64 << 24) as f64)
}

/// Fifty times: killed at a random moment, resumed. A run that is done before is followed by another.
fn a_killed_run_is_resumed_without_loss() -> anyhow::Result<()> {
    need_kvm()?;
    let folder = files::scratch()?;
    let spec = spec(folder.path(), TWENTY)?;
    let (mut state, mut kills, mut runs) = (20_121_117, 0, 0);
    while kills < 50 {
        let dir = folder.path().join(format!("run-{runs}"));
        runs += 1;
        let begun = || pvticket(["run", "--dir"]).args([&dir, &spec]).start();
        let resumed = || pvticket(["run", "--resume"]).args([&dir]).start();
        while kills < 50 {
            let has_begun = lines(&dir).is_ok_and(|lines| !lines.is_empty());
            let _ = (!has_begun).then(|| fs::remove_dir_all(&dir));
            let running = if has_begun { resumed()? } else { begun()? };
            if is_killed(running, span(&mut state, Duration::from_millis(1200)))? {
                kills += 1;
            } else {
                break;
            }
        }
        if lines(&dir).is_ok_and(|lines| !lines.is_empty()) {
            resumed()?.wait()?.exits(0)?;
        } else {
            let _ = fs::remove_dir_all(&dir);
            begun()?.wait()?.exits(0)?;
        }
        check_twenty(&dir)?;
    }
    Ok(())
}

/// False: it had ended by itself, and well.
fn is_killed(running: Running, after: Duration) -> anyhow::Result<bool> {
    let deadline = Instant::now() + after;
    while Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
    // It may be gone: then there is nobody to signal.
    let _ = running.signal(Signal::KILL);
    let ran = running.wait()?;
    match ran.status() {
        Ok(_) => ran.exits(0).map(|_| false),
        Err(_) => Ok(true),
    }
}

fn a_torn_store_is_repaired_and_said() -> anyhow::Result<()> {
    need_kvm()?;
    let folder = files::scratch()?;
    let dir = folder.path().join("run");
    pvticket(["run", "--dir"]).args([&dir, &spec(folder.path(), TWENTY)?]).run()?.exits(0)?;
    let store = dir.join("cells.jsonl");
    let bytes = fs::read(&store)?;
    fs::write(&store, &bytes[..bytes.len() - 100])?;
    let ran = pvticket(["run", "--resume"]).args([&dir]).run()?.exits(0)?;
    ensure!(ran.errors().contains("torn"), "{}", ran.show());
    check_twenty(&dir)?;
    // Damage in its midst is nothing that a kill does.
    let text = fs::read_to_string(&store)?.replacen("\"kind\":\"cell\"", "\"kind\":\"sell\"", 1);
    fs::write(&store, text)?;
    pvticket(["run", "--resume"]).args([&dir]).run()?.fails(1, &["damaged in line 3"])?;
    Ok(())
}

/// Nothing is written to it before it is found to be sound.
fn a_tampered_store_is_refused_in_one_line() -> anyhow::Result<()> {
    need_kvm()?;
    let folder = files::scratch()?;
    let dir = folder.path().join("run");
    let text = "vcpus = 1\nlocks = \"ticket\"\nrepetitions = 2\nseconds = 0.05\n";
    pvticket(["run", "--dir"]).args([&dir, &spec(folder.path(), text)?]).run()?.exits(0)?;
    let store = dir.join("cells.jsonl");
    let whole = fs::read_to_string(&store)?;
    // The last of the two cells is left to be run.
    let (kept, _) = whole.trim_end().rsplit_once('\n').context("one line")?;
    for (from, to, what) in [
        ("\"jobs\":1", "\"jobs\":0", "0 jobs, of 1 to"),
        ("\"jobs\":1", "\"jobs\":3000", "3000 jobs, of 1 to"),
        ("\"cells\":2", "\"cells\":3", "comes to other cells"),
        ("\"host\":\"auto\"", "\"host\":\"moon\"", "'moon' is no host"),
        ("\"seed\":1", "\"seed\":7", "comes to other cells"),
    ] {
        ensure!(kept.contains(from), "no {from} in {kept}");
        let tampered = format!("{}\n", kept.replacen(from, to, 1));
        fs::write(&store, &tampered)?;
        pvticket(["run", "--resume"]).args([&dir]).run()?.fails(1, &[what])?;
        ensure!(fs::read_to_string(&store)? == tampered, "{to}: it was written to");
    }
    Ok(())
}

/// A cell of a minute, so that it is under way for certain.
const LONG: &str = "vcpus = 2\nlocks = \"ticket\"\nrepetitions = 2\nseconds = 60\n";

fn ctrl_c_stores_the_cell_as_aborted() -> anyhow::Result<()> {
    need_kvm()?;
    let folder = files::scratch()?;
    let dir = folder.path().join("run");
    let spec = spec(folder.path(), LONG)?;
    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let _ = fs::remove_dir_all(&dir);
        let mut running = pvticket(["run", "--dir"]).args([&dir, &spec]).start()?;
        running.wait_until("a session", || lines(&dir).is_ok_and(|lines| lines.len() == 2))?;
        running.signal(signal)?;
        let ran = running.wait()?.exits(status)?;
        ensure!(ran.errors().contains("pvticket run --resume "), "{}", ran.show());
        let aborted = cells(&dir, "aborted")?.len();
        ensure!(aborted == 1 && cells(&dir, "done")?.is_empty(), "{}", ran.show());
    }
    Ok(())
}

fn ctrl_c_restores_the_terminal() -> anyhow::Result<()> {
    need_kvm()?;
    let folder = files::scratch()?;
    let dir = folder.path().join("run");
    let terminal = Terminal::open()?;
    let program = pvticket(["run", "--dir"]).args([&dir, &spec(folder.path(), LONG)?]);
    let mut running = terminal.start(program)?;
    terminal.wait_for(&mut running, "0/2 cells")?;
    // What the terminal makes of Ctrl-C.
    running.signal(Signal::INT)?;
    running.wait()?.exits(130)?;
    ensure!(terminal.has_shown("--resume"), "{}", terminal.shown());
    terminal.is_restored()
}

fn a_store_is_not_written_twice() -> anyhow::Result<()> {
    need_kvm()?;
    let folder = files::scratch()?;
    let dir = folder.path().join("run");
    let spec = spec(folder.path(), LONG)?;
    let mut running = pvticket(["run", "--dir"]).args([&dir, &spec]).start()?;
    running.wait_until("a session", || lines(&dir).is_ok_and(|lines| lines.len() == 2))?;
    pvticket(["run", "--resume"]).args([&dir]).run()?.fails(1, &["in use"])?;
    pvticket(["run", "--dir"]).args([&dir, &spec]).run()?.fails(1, &["a run already"])?;
    running.signal(Signal::INT)?;
    running.wait()?.exits(130).map(drop)
}

/// The report that a run of this spec ends with.
fn reported(text: &str) -> anyhow::Result<String> {
    need_kvm()?;
    let folder = files::scratch()?;
    let dir = folder.path().join("run");
    let ran =
        pvticket(["run", "--dir"]).args([&dir, &spec(folder.path(), text)?]).run()?.exits(0)?;
    ensure!(dir.join("report.html").is_file(), "no page: {}", ran.show());
    ran.text().map(str::to_owned)
}

/// By chance one in twenty may: so at most one of three.
fn a_thing_does_not_differ_from_itself() -> anyhow::Result<()> {
    let mut loud = Vec::new();
    for seed in 1..=3 {
        let text = reported(&format!(
            "labels = [\"this\", \"itself\"]\nlocks = \"pv-ticket\"\nvcpus = [\"1x\", \"2x\"]\n\
             policies = \"rr\"\nrepetitions = 8\nseconds = 0.1\nseeds = {seed}\n"
        ))?;
        ensure!(text.contains("No significant difference") || text.contains(" gives "), "{text}");
        if text.contains(" gives more than ") || text.contains(" gives less than ") {
            loud.push(text);
        }
    }
    expect_usually!(loud.len() < 2, "{}", loud.join("\n"));
    Ok(())
}

fn pv_beats_native_under_overcommit() -> anyhow::Result<()> {
    let text = reported("vcpus = \"2x\"\npolicies = \"rr\"\nrepetitions = 8\nseconds = 0.1\n")?;
    expect_usually!(text.contains("pv-ticket gives more than ticket"), "{text}");
    Ok(())
}

fn a_run_is_traced() -> anyhow::Result<()> {
    need_kvm()?;
    let folder = files::scratch()?;
    let (dir, trace) = (folder.path().join("run"), folder.path().join("trace"));
    let spec = spec(folder.path(), TWENTY)?;
    pvticket(["run", "--dir"])
        .args([&dir, &spec])
        .args(["--only", "vcpus=3,4", "--trace"])
        .args([&trace])
        .run()?
        .exits(0)?;
    let ran = pvticket(["trace", "--json"]).args([&trace]).run()?.exits(0)?;
    let digest: Value = serde_json::from_str(ran.text()?)?;
    let runs = digest["runs"].as_array().with_context(|| ran.show())?;
    // The first cell of each of its four points.
    ensure!(runs.len() == 4, "{} runs\n{digest:#}", runs.len());
    Ok(())
}

/// What a kill leaves: a trace cut off in a run; one of a cell that did not reach the store.
fn a_killed_runs_trace_goes_on_where_it_is_whole() -> anyhow::Result<()> {
    need_kvm()?;
    let folder = files::scratch()?;
    let [dir, trace, store] =
        ["run", "trace", "run/cells.jsonl"].map(|name| folder.path().join(name));
    let text = "vcpus = [2, 3, 4]\nlocks = \"pv-ticket\"\nrepetitions = 1\nseconds = 0.1\n";
    let spec = spec(folder.path(), text)?;
    let traced = |run: Program| run.args(["--trace".into(), trace.clone()]);
    traced(pvticket(["run", "--dir"]).args([&dir, &spec])).run()?.exits(0)?;
    let told = |status: &str| -> anyhow::Result<usize> {
        let ran = pvticket(["trace", "--json"]).args([&trace]).run()?.exits(0)?;
        let digest: Value = serde_json::from_str(ran.text()?)?;
        let is_cut = !digest["cut_off_at"].is_null();
        ensure!(is_cut == (status == "cut off"), "{status}: {digest:#}");
        Ok(digest["runs"].as_array().with_context(|| ran.show())?.len())
    };
    ensure!(told("whole")? == 3);
    for cut in [0, 7] {
        let lines = fs::read_to_string(&store)?;
        let (kept, _) = lines.trim_end().rsplit_once('\n').context("one line")?;
        fs::write(&store, format!("{kept}\n"))?;
        let bytes = fs::read(&trace)?;
        fs::write(&trace, &bytes[..bytes.len() - cut])?;
        if cut > 0 {
            ensure!(told("cut off")? == 2);
            let ran = pvticket(["trace"]).args([&trace]).run()?.exits(0)?;
            ensure!(ran.text()?.contains("ends too early"), "{}", ran.show());
        }
        traced(pvticket(["run", "--resume"]).args([&dir])).run()?.exits(0)?;
        ensure!(told("whole")? == 3, "cut by {cut}");
    }
    // What is something else is left as it is.
    let before = fs::read(&store)?;
    let other = files::put(&folder, "other", b"not a timeline")?;
    let run = pvticket(["run", "--resume"]).args([&dir]).args(["--trace".into(), other.clone()]);
    run.run()?.fails(1, &["--trace", "no trace of pvticket"])?;
    ensure!(fs::read(&other)? == b"not a timeline" && fs::read(&store)? == before);
    Ok(())
}

/// Those that need ring 0 run in the emulated host where this one's KVM has none.
fn cells_of_both_hosts_are_run() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let dir = folder.path().join("run");
    let text = "vcpus = 2\nlocks = \"pv-ticket\"\nbackends = [\"vmm\", \"kvm\"]\nrepetitions = 1\n\
                seconds = 0.1\n";
    let spec = spec(folder.path(), text)?;
    pvticket(["run", "--dir"]).args([&dir, &spec]).limit(240).run()?.exits(0)?;
    let done = cells(&dir, "done")?;
    ensure!(done.len() == 2, "{done:?}");
    let hosts: Vec<_> = done.iter().map(|cell| cell["point"]["host"].clone()).collect();
    ensure!(hosts[0] == hosts[1], "what is compared runs at one place: {hosts:?}");
    let taken = |cell: &Value| cell["figures"]["operations"][0].as_u64() > Some(0);
    expect_usually!(done.iter().all(taken), "{done:?}");
    Ok(())
}
