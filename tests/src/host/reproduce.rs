//! Published rows, measured here and simulated.

use super::run::lines;
use crate::prelude::*;

tests![
    a_measured_and_a_simulated_row_have_a_score,
    an_interrupted_reproduction_is_resumed,
    an_unavailable_row_states_the_reason,
    all_rows_are_listed,
];

const MEASURED: &str = "pgbench: PV on, scale 1, 1 client";
const SIMULATED: &str = "build-haswell: pv-ticket, 1.5x by 1x";

fn reproduce(out: &Path, words: &[&str]) -> Program {
    pvticket(["reproduce", "--out"]).args([out]).args(words)
}

/// Returns the printed lines without the time of the report.
fn figures(ran: &RunResult) -> anyhow::Result<Vec<&str>> {
    Ok(ran.text()?.lines().filter(|line| !line.contains(" UTC")).collect())
}

/// Returns the figures of a row: published, source, ours, and the rest.
fn figures_of<'a>(ran: &'a RunResult, row: &str) -> anyhow::Result<Vec<&'a str>> {
    let mut lines = ran.text()?.lines().skip_while(|line| !line.trim_start().starts_with(row));
    let line = lines.next().with_context(|| ran.show())?.trim_start();
    // A long name has a separate line.
    let words = |line: &'a str| line.split_whitespace().collect::<Vec<_>>();
    match line.strip_prefix(row).map(str::trim) {
        Some("") => Ok(words(lines.next().with_context(|| ran.show())?)),
        Some(rest) => Ok(words(rest)),
        None => anyhow::bail!("{}", ran.show()),
    }
}

/// Returns the median rate of each lock in a store, computed from its lines.
fn medians(dir: &Path) -> anyhow::Result<BTreeMap<String, f64>> {
    let mut rates: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for line in lines(dir)?.iter().filter(|line| line["status"] == "done") {
        let figures = &line["figures"];
        let seconds = figures["seconds"].as_f64().context("seconds")?;
        let rate = operations(figures) as f64 / seconds;
        let lock = line["point"]["lock"].as_str().context("lock")?;
        rates.entry(lock.to_owned()).or_default().push(rate);
    }
    let median = |mut rates: Vec<f64>| {
        rates.sort_by(f64::total_cmp);
        let upper = rates.len() / 2;
        (rates[(rates.len() - 1) / 2] + rates[upper]) / 2.0
    };
    Ok(rates.into_iter().map(|(lock, rates)| (lock, median(rates))).collect())
}

fn a_measured_and_a_simulated_row_have_a_score() -> anyhow::Result<()> {
    need_kvm()?;
    let folder = files::scratch()?;
    let [out, html] = ["out", "page.html"].map(|name| folder.path().join(name));
    let short = ["--short", "--runs", "2", "--seconds", "0.05"];
    let words = [&["--row", MEASURED, "--row", SIMULATED][..], &short].concat();
    let ran = reproduce(&out, &words).args(["--html"]).args([&html]).run()?.exits(0)?;
    let text = ran.text()?;
    let score = text.lines().next().with_context(|| ran.show())?;
    ensure!(score.starts_with("order and sign: ") && score.contains(" of 2 rows; "), "{score}");
    let (mail, _) = text.split_once("\npage: ").with_context(|| ran.show())?;
    ensure!(mail.lines().all(|line| line.chars().count() <= 72), "{}", ran.show());
    ensure!(fs::read_to_string(out.join("reproduce.txt"))? == mail, "{}", ran.show());
    ensure!(ran.words()?.contains("by the 1x column of build: think"), "{}", ran.show());

    // The measured ratio equals the ratio of the medians in the store, which `report` reads, too.
    let store = out.join("measured-pgbench");
    let row_words = figures_of(&ran, "PV on, scale 1, 1 client")?;
    ensure!(row_words[..2] == ["1.02x", "here"], "{row_words:?}");
    let medians = medians(&store)?;
    let [base, changed] = ["ticket", "pv-ticket"].map(|lock| medians[lock]);
    let ratio: f64 = row_words[2].trim_end_matches('x').parse()?;
    ensure!((ratio * base / changed - 1.0).abs() < 0.02, "{row_words:?}: {medians:?}");
    pvticket(["report"]).args([&store]).run()?.exits(0)?;
    // Overcommit lowers the throughput.
    let row_words = figures_of(&ran, "pv-ticket, 1.5x by 1x")?;
    ensure!(row_words[..2] == ["0.10x", "model"] && row_words.contains(&"yes"), "{row_words:?}");
    for page in [&html, &out.join("reproduce.html")] {
        ensure!(fs::read_to_string(page)?.contains(score), "{}", page.display());
    }

    // Nothing is measured or simulated again unless it is missing.
    let (cells, state) = (fs::read(store.join("cells.jsonl"))?, out.join("reproduce.json"));
    let again = reproduce(&out, &["--resume"]).run()?.exits(0)?;
    ensure!(figures(&again)? == figures(&ran)?, "{}{}", ran.show(), again.show());
    let mut saved = files::json(&state)?;
    let simulated = saved["cells"].as_array_mut().context("cells")?;
    ensure!(simulated.len() == 2 && simulated.pop().is_some(), "{simulated:?}");
    fs::write(&state, saved.to_string())?;
    let again = reproduce(&out, &["--resume"]).run()?.exits(0)?;
    ensure!(figures(&again)? == figures(&ran)?, "{}{}", ran.show(), again.show());
    ensure!(fs::read(store.join("cells.jsonl"))? == cells, "it was measured again");
    reproduce(&out, &[]).run()?.fails(2, &["--out", "--resume"])?;
    Ok(())
}

fn an_interrupted_reproduction_is_resumed() -> anyhow::Result<()> {
    need_kvm()?;
    let folder = files::scratch()?;
    let out = folder.path().join("out");
    let store = out.join("measured-pgbench");
    let done = || {
        let lines = lines(&store).unwrap_or_default();
        lines.iter().filter(|line| line["status"] == "done").count()
    };
    // Two locks, and five times as many rounds as other tables.
    const CELLS: usize = 10;
    let words = ["--row", MEASURED, "--measured-only", "--runs", "1", "--seconds", "0.3"];
    let mut running = reproduce(&out, &words).start()?;
    running.wait_until("a cell is done", || done() > 0)?;
    running.signal(Signal::INT)?;
    let ran = running.wait()?.exits(130)?;
    let ran = ran.stderr_has(&["resume with: pvticket reproduce --resume --out "])?;
    ensure!(!ran.text()?.contains("order and sign"), "{}", ran.show());
    let before = done();
    ensure!((1..CELLS).contains(&before), "{before} cells of {CELLS}");
    let ran = reproduce(&out, &["--resume"]).run()?.exits(0)?;
    ensure!(done() == CELLS, "{} cells of {CELLS}", done());
    ran.stdout_has(&[" of 1 row; "])?;

    // A long simulation ends at once.
    let out = folder.path().join("simulated");
    let mut running = reproduce(&out, &["--row", SIMULATED, "--simulated-only"]).start()?;
    running.wait_until("it has begun", || out.join("reproduce.json").exists())?;
    running.signal(Signal::INT)?;
    let ran = running.wait()?.exits(130)?;
    ensure!(ran.errors().contains("--resume --out "), "{}", ran.show());
    Ok(())
}

fn an_unavailable_row_states_the_reason() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let out = folder.path().join("out");
    let ran = reproduce(&out, &["--row", "others", "--row", "l", "--simulated-only"]);
    let ran = ran.run()?.exits(0)?;
    let text = ran.text()?;
    ensure!(text.starts_with("order and sign: 0 of 0 rows; "), "{}", ran.show());
    let (words, reasons) =
        (ran.words()?, ["no machine file of an s390", " 1.47x", "leave out --simulated-only"]);
    ensure!(reasons.iter().all(|reason| words.contains(reason)), "{}", ran.show());
    Ok(())
}

fn all_rows_are_listed() -> anyhow::Result<()> {
    let ran = pvticket(["reproduce", "--list"]).run()?.exits(0)?;
    for row in [MEASURED, SIMULATED, "dbench: base, 2x by 1x"] {
        ensure!(ran.text()?.lines().any(|line| line.ends_with(row)), "{row}: {}", ran.show());
    }
    Ok(())
}
