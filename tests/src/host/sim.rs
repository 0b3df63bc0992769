//! Simulated machines: equal seeds give equal figures, and simulated results are marked as such.

use super::run::Run;
use crate::prelude::*;

tests![
    locks_and_machines_are_listed,
    equal_seeds_give_equal_figures,
    simulated_results_are_marked_in_the_report,
    a_simulation_has_a_timeline,
    optional_host_effects_are_simulated,
    faults_are_injected_into_simulations,
    a_run_keeps_its_machine_file,
    this_host_is_measured_and_simulated,
    a_signal_ends_a_validation_and_a_simulated_comparison,
];

const MACHINE: [&str; 6] = ["compare", "--guest", "sim", "--machine", "westmere-80", "--cpus"];

/// Neither list needs KVM.
fn locks_and_machines_are_listed() -> anyhow::Result<()> {
    let locks = ["ticket", "pv-ticket", "small-pv-ticket", "test-and-set", "queued", "pv-queued"];
    let locks = locks.map(|name| format!("\n  {name} "));
    pvticket(["locks"]).run()?.exits(0)?.stdout_has(&locks.each_ref().map(String::as_str))?;
    let machines = "westmere-80 opteron-48 haswell-ex-32 nehalem-16 thunderx2-28 skylake-80";
    pvticket(["sim"]).run()?.exits(0)?.stdout_has(&Vec::from_iter(machines.split(' ')))
}

/// Builds a comparison of two short cells on four of the machine's CPUs.
fn compare() -> Program {
    pvticket(MACHINE).args(["4", "--vcpus", "2x", "--runs", "1", "--seconds", "0.01"])
}

/// Returns the operations of every vCPU, cell by cell.
fn operations(seeds: &str) -> anyhow::Result<Vec<String>> {
    // `rr` treats all vCPUs alike, regardless of the seed.
    let runs = Compared::new(compare().args(["--policy", "host", "--set", seeds]))?.runs()?;
    ensure!(runs.len() == 2, "{runs:?}");
    Ok(runs.iter().map(|run| run["operations"].to_string()).collect())
}

fn equal_seeds_give_equal_figures() -> anyhow::Result<()> {
    let first = operations("seeds=1")?;
    ensure!(first.iter().all(|list| list != "null" && list != "[]"), "{first:?}");
    ensure!(operations("seeds=1")? == first, "the same seed gave other figures");
    ensure!(operations("seeds=2")? != first, "another seed gave the same figures");
    Ok(())
}

fn simulated_results_are_marked_in_the_report() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let [dir, page] = ["run", "page.html"].map(|name| folder.path().join(name));
    let ran = compare().args(["--dir"]).args([&dir]).run()?.exits(0)?;
    ran.stdout_has(&["simulated westmere-80 were not measured"])?;
    pvticket(["report"]).args([&dir]).run()?.exits(0)?.stdout_has(&["imulated"])?;
    pvticket(["report"]).args([&dir]).args(["--html"]).args([&page]).run()?.exits(0)?;
    ensure!(fs::read_to_string(page)?.contains("imulated"), "the page has no mark");
    Ok(())
}

/// The timeline belongs to a run with figures, has the schedule's slices, and is marked as simulated.
fn a_simulation_has_a_timeline() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let trace = folder.path().join("trace");
    let fixed = ["4", "--runs", "2", "--seconds", "0.02", "--vcpus", "2x", "--policy", "rr"];
    let words = [&MACHINE[..], &fixed, &["--locks", "pv-ticket"]].concat();
    pvticket(words).args(["--trace"]).args([&trace]).run()?.exits(0)?;
    let ran = pvticket(["trace"]).args([&trace]).run()?.exits(0)?;
    ran.stdout_has(&["SIMULATED cell", "westmere-80"])?;
    let ran = pvticket(["trace", "--json"]).args([&trace]).run()?.exits(0)?;
    ensure!(count(&ran.json()?, "runs/0/account/preemptions")? > 0, "{}", ran.show());
    Ok(())
}

/// Each effect is counted in the cells and named in the table's heading.
fn optional_host_effects_are_simulated() -> anyhow::Result<()> {
    for (options, heading, name) in [
        (
            &["--vcpus", "2x", "--policy", "host", "--set", "ple=8192"][..],
            "PLE 8192",
            "pause_exits",
        ),
        // The host polls while no vCPU waits for a CPU.
        (
            &["--vcpus", "1x", "--set", "spin-threshold=4", "--set", "halt-poll=on"],
            "halt polling on",
            "polled",
        ),
        (
            &["--vcpus", "2x", "--set", "noise=50us+450us"],
            "background noise 50us+450us",
            "stolen_ns",
        ),
    ] {
        let fixed = ["4", "--runs", "1", "--seconds", "0.02", "--locks", "pv-ticket"];
        let compared = Compared::new(pvticket(MACHINE).args(fixed).args(options))?;
        compared.ran.stdout_has(&[heading])?;
        let sim = &compared.run()?["sim"];
        ensure!(count(sim, name)? > 0, "{name}: {sim}");
    }
    Ok(())
}

fn faults_are_injected_into_simulations() -> anyhow::Result<()> {
    let pv = ["4", "--runs", "1", "--seconds", "0.01", "--vcpus", "2x", "--locks", "pv-ticket"];
    let words = [&MACHINE[..], &pv, &["--set", "spin-threshold=4", "--set"]].concat();
    let compare_with = |faults: &str| pvticket(words.iter()).args([faults]);
    let late = compare_with("faults=kick-delay:5us,kick-dup:0.2,halt-delay:1us,spurious:0.1");
    let compared = Compared::new(late)?;
    compared.ran.stdout_has(&["faults   kick-delay:5us"])?;
    let faults = &compared.run()?["faults"];
    for name in ["delayed", "duplicated", "halts_delayed", "spurious"] {
        ensure!(count(faults, name)? > 0, "{name}: {faults}");
    }
    // No lock survives the loss of all kicks, and the simulation reports it.
    let ran = compare_with("faults=kick-drop:1").run()?.exits(1)?;
    ensure!(ran.errors().contains("a lost wakeup"), "{}", ran.show());
    Ok(())
}

/// A resumed run needs no machine file, and a changed file does not mislead it.
fn a_run_keeps_its_machine_file() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vmm/sim/machines/opteron-48.toml");
    let text = fs::read_to_string(shipped)?;
    let file = files::put(&folder, "mine.toml", text.as_bytes())?;
    let spec = format!(
        "guests = \"sim\"\nmachines = \"{}\"\nslots = 2\nvcpus = \"2x\"\npolicies = \"rr\"\n\
         repetitions = 2\nseconds = 0.002\n",
        file.display()
    );
    let Run { folder: _folder, dir, ran } = Run::new(&spec, &[])?;
    ensure!(ran.words()?.contains("not validated"), "{ran:?}");
    let store = dir.join("cells.jsonl");
    let lines = fs::read_to_string(&store)?;
    // The run looks killed before its last cell.
    let (rest, last) = lines.trim_end().rsplit_once('\n').context("one line")?;
    fs::write(&store, format!("{rest}\n"))?;
    fs::write(&file, text.replace("mhz = ", "mhz = 1"))?;
    pvticket(["run", "--resume"]).args([&dir]).run()?.exits(0)?;
    let again = fs::read_to_string(&store)?;
    let operations = |line: &str| -> anyhow::Result<Value> {
        Ok(serde_json::from_str::<Value>(line)?["figures"]["operations"].take())
    };
    let new = operations(again.trim_end().lines().last().context("no line")?)?;
    ensure!(new == operations(last)? && new.is_array(), "another machine was simulated: {new}");
    fs::remove_file(&file)?;
    pvticket(["run", "--resume"]).args([&dir]).run()?.exits(0)?;
    let ran = pvticket(["report"]).args([&dir]).run()?.exits(0)?;
    ensure!(ran.words()?.contains("not validated"), "{ran:?}");
    Ok(())
}

/// Regression: an interrupted validation failed with 1.
fn a_signal_ends_a_validation_and_a_simulated_comparison() -> anyhow::Result<()> {
    need_kvm()?;
    let cache = files::scratch()?;
    let shipped =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../vmm/sim/machines/westmere-80.toml");
    fs::create_dir(cache.path().join("machines"))?;
    fs::copy(shipped, cache.path().join("machines/this.toml"))?;
    let validation = &["sim", "calibrate", "--validate", "--short"][..];
    let sizes = ["--cpus", "80", "--vcpus", "128", "--seconds", "100"];
    let comparison = [&MACHINE[..5], &sizes].concat();
    for words in [validation, &comparison] {
        let mut running = pvticket(words).env("PVTICKET_CACHE", cache.path()).start()?;
        let process = running.pid();
        running.wait_until("its worker", || !children(process).is_empty())?;
        thread::sleep(Duration::from_millis(500));
        let mut watch = Stopwatch::start(running.pid());
        running.signal(Signal::TERM)?;
        running.wait_by(&mut watch, Duration::from_secs(60))?;
        ensure!(watch.net() < Duration::from_secs(3), "{words:?} ended after {:?}", watch.net());
        let ran = running.wait()?;
        ensure!(ran.shell_status() == Some(143), "{words:?}: {}", ran.show());
    }
    Ok(())
}

/// The costs are a busy host's, so this checks only that they are present and positive.
fn this_host_is_measured_and_simulated() -> anyhow::Result<()> {
    need_kvm()?;
    let cache = files::scratch()?;
    let in_cache = |words: &[&str]| pvticket(words.iter()).env("PVTICKET_CACHE", cache.path());
    let ran = in_cache(&["sim", "calibrate"]).run()?.exits(0)?;
    let text = ran.text()?;
    // Store costs may be zero between hyperthreads of one core.
    for cost in ["exit", "switch", "wakeup", "pause", "memory", "load-modified", "hop"] {
        let start = format!("\n{cost} = {{ ns = ");
        let (_, rest) = text.split_once(start.as_str()).with_context(|| ran.show())?;
        let nanos = rest.split(',').next().and_then(|nanos| nanos.parse::<f64>().ok());
        ensure!(nanos.is_some_and(|nanos| nanos > 0.0), "{cost}: {}", ran.show());
    }
    // Regression: `switch` was a futex handoff between two threads.
    let switch = text.lines().find(|line| line.starts_with("switch = ")).unwrap_or_default();
    ensure!(
        switch.contains("to the entry of the next vCPU") && switch.contains("9 rounds"),
        "{switch}"
    );
    let has_noise = text.contains("\n[noise]\nbusy = { ns = ");
    expect_usually!(has_noise, "no CPU was taken away for a moment: {}", ran.show());
    if cfg!(debug_assertions) {
        ran.stderr_has(&["not optimised"])?;
    } else {
        // Other tests run in parallel, and take more CPU time than any host's noise.
        let is_doubt = |line: &str| {
            line.contains("repeat with nothing else") && !line.contains("pvticket: noise.")
        };
        expect_usually!(!ran.errors().lines().any(is_doubt), "{}", ran.errors());
    }
    let listed = in_cache(&["sim"]).run()?.exits(0)?;
    listed.stdout_has(&["this ", "westmere-80"])?;
    let options = ["--vcpus", "1x", "--locks", "ticket", "--runs", "1", "--seconds", "0.01"];
    let words = [&["compare", "--guest", "sim", "--machine", "this"][..], &options].concat();
    let compared = in_cache(&words).run()?.exits(0)?;
    // A command that uses the file repeats its doubts.
    let doubts = |text: &str| text.matches("DOUBTED: ").count();
    let (listed_doubts, compared_doubts) = (doubts(listed.text()?), doubts(compared.text()?));
    ensure!(listed_doubts == compared_doubts, "{} {}", listed.show(), compared.show());
    ensure!(listed_doubts > 0 || !cfg!(debug_assertions), "{}", listed.show());
    Ok(())
}
