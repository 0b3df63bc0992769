//! Commands that report: `doctor` and `compare`, and `tiny` with guests that print or misuse hypercalls.

use crate::{facts::Kvm, prelude::*, product::Results};

tests![
    doctor_agrees_with_this_host,
    doctor_speaks_json,
    doctor_is_brief,
    compare_agrees_with_export_and_report,
    an_interrupted_comparison_is_resumed,
    the_smallest_guest_says_hello,
    misuse_of_hypercalls_is_counted_and_harmless,
];

fn doctor_agrees_with_this_host() -> anyhow::Result<()> {
    let ran = pvticket(["doctor"]).run()?;
    ensure!(matches!(ran.status()?, 0 | 1) && ran.stderr.is_empty(), "{}", ran.show());
    ran.stdout_has(&["KVM", "Where guests run", "linux", "payload", "qemu-system-x86_64"])
}

fn doctor_speaks_json() -> anyhow::Result<()> {
    let ran = pvticket(["doctor", "--json"]).run()?;
    let report = ran.json()?;
    let guests = report["guests"].as_array().context("no guests")?;
    let place = |name: &str| {
        guests.iter().find(|guest| guest["guest"] == name).map(|guest| guest["host"].clone())
    };
    let (linux, payload) = match Kvm::here() {
        Kvm::Hardware => ("direct", "direct"),
        Kvm::Software => ("emulated", "direct"),
        Kvm::Absent | Kvm::Denied => ("emulated", "emulated"),
    };
    ensure!(place("linux") == Some(linux.into()), "linux is not {linux}: {report:#}");
    ensure!(place("payload") == Some(payload.into()), "payload is not {payload}: {report:#}");
    Ok(())
}

fn doctor_is_brief() -> anyhow::Result<()> {
    let ran = pvticket(["doctor", "--brief"]).run()?;
    ensure!(matches!(ran.status()?, 0 | 1) && ran.stderr.is_empty(), "{}", ran.show());
    let lines: Vec<&str> = ran.text()?.lines().collect();
    let [host, guests, next] = lines[..] else { bail!("{}", ran.show()) };
    let begins = host.starts_with("host:   ") && guests.starts_with("guests: ");
    let ends = next.starts_with("next:   ") && next.contains("pvticket doctor");
    ensure!(begins && ends, "{}", ran.show());
    Ok(())
}

/// `compare` keeps its measurements in a store; its results equal the output of `export` and `report` on it.
fn compare_agrees_with_export_and_report() -> anyhow::Result<()> {
    need_kvm()?;
    let folder = files::scratch()?;
    let [dir, ours, exported] = ["run", "ours", "exported"].map(|name| folder.path().join(name));
    let words = ["compare", "--guest", "payload", "--vcpus", "1x,2x", "--runs", "6"];
    let compare = pvticket(words).args(["--seconds", "0.05", "--dir"]).args([&dir]);
    let compared = compare.args([Path::new("--json"), &ours]).run()?.exits(0)?;
    pvticket(["export", "--json"]).args([&exported, &dir]).run()?.exits(0)?;
    ensure!(fs::read(&ours)? == fs::read(&exported)?, "compare and export differ");
    compared.stdout_has(&["Min", "Max", "Median", "Avg", "Stddev"])?;
    let results = Results::read(&ours)?;
    let (levels, runs) = (results.levels()?, results.runs()?);
    ensure!(levels.len() == 2 && levels.iter().all(|rows| rows.len() == 2), "{levels:?}");
    ensure!(runs.len() == 24, "not six runs of each lock at each level: {runs:?}");
    for run in runs {
        ensure!(run["violations"] == 0, "mutual exclusion failed, or was not checked: {run}");
        expect_usually!(operations(&run) > 0, "the lock was never taken: {run}");
    }
    let document = files::json(&ours)?;
    let comparisons = document["comparisons"].as_array().context("no comparisons")?;
    ensure!(comparisons.len() == 2, "{comparisons:?}");
    let report = pvticket(["report"]).args([&dir]).run()?.exits(0)?;
    for comparison in comparisons {
        let words = match comparison["outcome"].as_str().unwrap_or_default() {
            "more" => "is faster than ticket",
            "less" => "is slower than ticket",
            "unclear" => "o significant difference",
            outcome => anyhow::bail!("{outcome}: {comparison}"),
        };
        for ran in [&compared, &report] {
            ensure!(ran.words()?.contains(words), "{comparison}: {}", ran.show());
        }
    }
    Ok(())
}

/// Measurements made before Ctrl-C are shown and kept; `--resume` makes the rest.
fn an_interrupted_comparison_is_resumed() -> anyhow::Result<()> {
    need_kvm()?;
    let folder = files::scratch()?;
    let json = folder.path().join("json");
    let words = ["compare", "--guest", "payload", "--vcpus", "2", "--runs", "2", "--seconds", "1"];
    let mut running = pvticket(words).args(["--json"]).args([&json]).start()?;
    running.wait_for_stderr("measured 1/4, about ")?;
    running.signal(Signal::INT)?;
    let ran = running.wait()?.exits(130)?;
    ran.stdout_has(&["Partial: "])?;
    let done = Results::read(&json)?.runs()?.len();
    ensure!((1..4).contains(&done), "{done} runs: {}", ran.show());
    let errors = ran.errors();
    let hint = "pvticket: resume with: pvticket compare --resume ";
    let mut hints = errors.lines().filter_map(|line| line.strip_prefix(hint));
    let dir = hints.next().with_context(|| ran.show())?.to_owned();
    let resume = pvticket(["compare", "--resume", &dir, "--json"]).args([&json]);
    let ran = resume.run()?.exits(0)?;
    fs::remove_dir_all(&dir)?;
    ensure!(Results::read(&json)?.runs()?.len() == 4, "{}", ran.show());
    ensure!(!ran.text()?.contains("partial"), "{}", ran.show());
    Ok(())
}

fn the_smallest_guest_says_hello() -> anyhow::Result<()> {
    need_kvm()?;
    let ran = pvticket(["tiny"]).run()?.exits(0)?;
    ensure!(ran.stdout.len() == 1 && ran.stderr.is_empty(), "{}", ran.show());
    Ok(())
}

fn misuse_of_hypercalls_is_counted_and_harmless() -> anyhow::Result<()> {
    need_kvm()?;
    let ran = pvticket(["tiny", "misuse"]).run()?.exits(0)?;
    // At both ports: writes of 8 and 16 bits and reads of 8, 16 and 32; and one kick of a missing vCPU.
    ran.one_line(&["kicked vCPUs that do not exist 1 time", "misused hypercall ports 10 times"])?;
    Ok(())
}
