//! Timelines agree with the schedule's account, and Perfetto's trace processor reads them.

use crate::prelude::*;

kvm::tests![
    a_timeline_agrees_with_the_account,
    perfetto_finds_the_injected_preemptions,
    the_last_round_of_every_level_is_traced,
    the_hosts_schedule_has_no_slots_unless_observed,
];

/// Two vCPUs on two slots, whose holders are preempted for 4 ms, some forty times: often enough to preempt
/// some holders even on the busiest machine.
const INJECTED: [&str; 8] =
    ["--vcpus", "2", "--slots", "2", "--seconds", "1", "--policy", "lhp:50,4ms"];

/// A traced comparison of the payload.
struct Traced {
    folder: tempfile::TempDir,
    /// The runs of the comparison, from `--json`.
    runs: Vec<Value>,
}

impl Traced {
    fn make(options: &[&str]) -> anyhow::Result<Self> {
        let folder = files::scratch()?;
        let trace = folder.path().join("trace");
        let compare =
            pvticket(["compare", "--guest", "payload", "--host", "direct", "--runs", "1"]);
        let compared = Compared::new(compare.args(options).args(["--trace"]).args([trace]))?;
        Ok(Self { folder, runs: compared.runs()? })
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("trace")
    }

    /// Returns the account of the run with this title.
    fn account(&self, title: &str) -> anyhow::Result<&Value> {
        let is_it = |run: &&Value| {
            let lock = run["lock"].as_str().unwrap_or_default();
            title.contains(&format!(" {lock},"))
        };
        let run = self.runs.iter().find(is_it).with_context(|| format!("no run '{title}'"))?;
        Ok(&run["schedule"]["whole"])
    }

    /// Returns the JSON of `pvticket trace`, run by run.
    fn digest(&self, options: &[&str]) -> anyhow::Result<Vec<Value>> {
        let ran =
            pvticket(["trace", "--json"]).args([self.file()]).args(options).run()?.exits(0)?;
        ran.json()?["runs"].as_array().cloned().with_context(|| ran.show())
    }
}

/// Returns the account's number of injected preemptions of holders and their total time in nanoseconds.
/// Fails unless all preemptions of holders were injected.
fn injected(account: &Value) -> anyhow::Result<(u64, u64)> {
    ensure!(count(account, "injected")? == count(account, "lhp")?, "{account}");
    Ok((count(account, "lhp")?, count(account, "holders_off_ns")?))
}

/// Checks that these preemptions, by their time off in nanoseconds, match the account. The last may be
/// ongoing when the account is taken; then the timeline has it up to the timeline's end.
fn match_account(off: &[u64], account: &Value) -> anyhow::Result<()> {
    let (count, total) = injected(account)?;
    expect_usually!(count > 0, "no injected preemption of a holder: {account}");
    ensure!(off.len() as u64 == count, "{off:?} are not {count}: {account}");
    let (sum, longest) = (off.iter().sum::<u64>(), off.iter().max().copied().unwrap_or(0));
    ensure!(sum.abs_diff(total) <= longest, "{sum} ns drawn, {total} ns counted: {off:?}");
    Ok(())
}

fn a_timeline_agrees_with_the_account() -> anyhow::Result<()> {
    let traced = Traced::make(&INJECTED)?;
    let digests = traced.digest(&["--top", "100000"])?;
    ensure!(digests.len() == 2, "{digests:?}");
    for run in &digests {
        let account = traced.account(run["title"].as_str().unwrap_or_default())?;
        for name in ["grants", "preemptions", "lhp", "lwp", "injected", "holders_off_ns"] {
            ensure!(run["account"][name] == account[name], "{name}: {run}\n{account}");
        }
        ensure!(run["account"]["lost"] == 0, "{run}");
        let worst = run["worst_preemptions"].as_array().context("no preemptions")?;
        let holders = worst
            .iter()
            .filter(|preemption| preemption["kind"] == "LHP" && preemption["why"] == "injected");
        let times_off: Vec<u64> =
            holders.filter_map(|preemption| preemption["off_ns"].as_u64()).collect();
        match_account(&times_off, account)?;
    }
    let words = pvticket(["trace"]).args([traced.file()]).run()?.exits(0)?;
    let words = String::from_utf8_lossy(&words.stdout).into_owned();
    ensure!(words.contains("Worst preemptions") && words.contains("(LHP, injected)"), "{words}");
    Ok(())
}

/// Returns the rows that Perfetto's trace processor finds for each of these SQL queries.
fn run_queries(file: &Path, questions: &[&str]) -> anyhow::Result<Vec<Vec<Vec<String>>>> {
    let Ok(wasm) = files::cached("trace-processor/current/trace_processor.wasm") else {
        return skip("no trace processor (make trace-processor)");
    };
    let folder = wasm.parent().context("no folder")?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("trace-processor/query.mjs");
    if !script.is_file() {
        return skip("the tests' sources are not here");
    }
    let node = Program::new(folder.join("node"));
    let ran = node.args([script.as_path(), folder, file]).args(questions).run()?.exits(0)?;
    let answers = String::from_utf8_lossy(&ran.stdout).into_owned();
    let answers: Vec<_> = answers.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    ensure!(answers.len() == questions.len(), "{}", ran.show());
    Ok(answers)
}

fn perfetto_finds_the_injected_preemptions() -> anyhow::Result<()> {
    let traced = Traced::make(&INJECTED)?;
    let questions: Vec<&str> = include_str!("trace.sql").split_terminator(";\n").collect();
    let answers = run_queries(&traced.file(), &questions)?;
    let [complaints, preempted, slots, overlaps, kicks, arrows, counters] = answers.as_slice()
    else {
        bail!("{answers:?}")
    };
    ensure!(complaints.is_empty(), "Perfetto complains: {complaints:?}");
    let titles = traced.digest(&[])?;
    for title in titles.iter().filter_map(|run| run["title"].as_str()) {
        let account = traced.account(title)?;
        let times_off: Vec<u64> = preempted
            .iter()
            .filter(|row| row[0] == title)
            .map(|row| row[1].parse())
            .collect::<Result<_, _>>()?;
        match_account(&times_off, account)?;
        let slices = slots.iter().filter(|row| row[0] == title).map(|row| row[2].parse::<u64>());
        let slices: u64 = slices.sum::<Result<_, _>>()?;
        ensure!(Some(slices) == account["grants"].as_u64(), "{slices} slices: {account}");
    }
    ensure!(slots.len() == 4 && slots.iter().all(|row| row[3] == "0"), "{slots:?}");
    ensure!(slots.iter().all(|row| !row[4].starts_with('-')), "a slice without end: {slots:?}");
    ensure!(overlaps[0][0] == "0", "{overlaps:?} slices overlap");
    expect_usually!(kicks[0][0] != "0", "no vCPU was kicked");
    ensure!(kicks[0] == arrows[0], "{kicks:?} kicks, {arrows:?} arrows");
    ensure!(counters[0][0] == "2", "{counters:?}");
    Ok(())
}

fn the_last_round_of_every_level_is_traced() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let file = folder.path().join("trace");
    let words = "compare --guest payload --host direct --vcpus 1,2 --seconds 0.1 --policy rr --runs 2 --trace";
    pvticket(words.split(' ')).args([&file]).run()?.exits(0)?;
    let digest = pvticket(["trace", "--json"]).args([file]).run()?.exits(0)?.json()?;
    let runs = digest["runs"].as_array().into_iter().flatten();
    let mut titles: Vec<&str> = runs.filter_map(|run| run["title"].as_str()).collect();
    titles.sort_unstable();
    // Two locks at two levels: cells 0 to 3 are the first round.
    let numbers: Vec<_> = titles.iter().filter_map(|title| title.split(':').next()).collect();
    ensure!(numbers == ["cell 4", "cell 5", "cell 6", "cell 7"], "{titles:?}");
    for point in
        [" ticket, 1 vCPU", " ticket, 2 vCPUs", " pv-ticket, 1 vCPU", " pv-ticket, 2 vCPUs"]
    {
        let point = format!("{point} on ");
        ensure!(
            titles.iter().filter(|title| title.contains(&point)).count() == 1,
            "{point}: {titles:?}"
        );
    }
    Ok(())
}

/// Nor does it where it cannot be observed.
fn the_hosts_schedule_has_no_slots_unless_observed() -> anyhow::Result<()> {
    let traced = Traced::make(&["--vcpus", "2x", "--seconds", "0.3", "--set", "observe=on,off"])?;
    let digests = traced.digest(&[])?;
    ensure!(digests.len() == 4, "{digests:?}");
    for run in &digests {
        let [title, note] = ["title", "note"].map(|name| run[name].as_str().unwrap_or_default());
        let has_slots = !run["account"]["slots"].is_null();
        ensure!(note.contains("no slots") != has_slots, "{run}");
        ensure!(!has_slots || !title.contains("not observed"), "{run}");
    }
    Ok(())
}
