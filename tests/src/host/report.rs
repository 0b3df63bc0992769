//! `report`: its text, for complete and damaged stores, and its page in a browser.

use std::slice;

use crate::{browser::Browser, fixture::Fixture, prelude::*};

tests![
    a_run_is_reported_as_text,
    a_run_that_is_passed_twice_counts_once,
    a_brief_is_the_answer_and_a_chart,
    the_text_fits_into_a_mail,
    a_regression_is_an_exit_status,
    invalid_stores_are_refused_in_one_line,
    pages_render_in_a_browser,
    faults_of_a_page_are_found,
];

fn store(folder: &TempDir, name: &str, text: &str) -> anyhow::Result<PathBuf> {
    let run = folder.path().join(name);
    fs::create_dir(&run)?;
    fs::write(run.join("cells.jsonl"), text)?;
    Ok(run)
}

fn a_run_is_reported_as_text() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let run = store(&folder, "run", &Fixture::default().text())?;
    let ran = pvticket(["report"]).args([&run]).run()?.exits(0)?;
    ran.stdout_has(&[
        "pv-ticket is faster than ticket (under the host's scheduler) at 1.5x: ",
        "Median",
        "Stddev",
        "Comparisons",
        "Published figures: PV ticketlocks, Linux 2012",
        "--only policies=rr --dir again",
        "AMD EPYC",
        // A plot.
        "\u{25cf}",
    ])
}

/// Regression: a run supplied under two names counted twice, which narrowed the intervals, and `--diff` did
/// not report that both runs were the same.
fn a_run_that_is_passed_twice_counts_once() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let run = store(&folder, "run", &Fixture::default().text())?;
    let copy = store(&folder, "copy", &Fixture::default().text())?;
    let texts = |words: &[&str]| -> anyhow::Result<[String; 2]> {
        let once = pvticket(words).args([&run]).run()?.exits(0)?;
        let twice =
            pvticket(words).args([&run, &copy]).run()?.exits(0)?.stderr_has(&["is a copy of"])?;
        Ok([once.text()?.to_owned(), twice.text()?.to_owned()])
    };
    for words in [&["report"][..], &["export", "--csv", "-"]] {
        let [once, twice] = texts(words)?;
        ensure!(once == twice, "{words:?}: {once}\n\n{twice}");
    }
    let diff = pvticket(["report", "--diff"]).args([&run, &copy]).run()?.exits(0)?;
    diff.stderr_has(&["is the same run as"]).map(drop)
}

/// With --html, the page of the same runs is written, and its path is the last line.
fn a_brief_is_the_answer_and_a_chart() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let runs = first_runs(&folder)?;
    let brief = pvticket(["report", "--brief"]).args(&runs).run()?.exits(0)?;
    let text = brief.text()?;
    brief.stdout_has(&[
        "payload  PV / native ",
        "not measured: a Linux guest",
        "acquisitions/s, log",
    ])?;
    let (lines, wide) = (text.lines().count(), text.lines().any(|line| line.chars().count() > 72));
    ensure!(lines < 22 && !wide, "{}", brief.show());
    let page = folder.path().join("page.html");
    let both =
        pvticket(["report", "--brief", "--html"]).args([&page]).args(&runs).run()?.exits(0)?;
    ensure!(both.text()? == format!("{text}page: {}\n", page.display()), "{}", both.show());
    ensure!(fs::read_to_string(&page)?.contains("</html>"), "the page is incomplete");
    Ok(())
}

/// Creates two runs with different specs, as `make run` does.
fn first_runs(folder: &TempDir) -> anyhow::Result<[PathBuf; 2]> {
    let make_run = |policies, name: &str| {
        let fixture = Fixture { policies, vcpus: vec![2, 4], ..Fixture::default() };
        let spec = format!("name = \\\"{name}");
        store(folder, name, &fixture.text().replace("name = \\\"collapse", &spec))
    };
    Ok([make_run(vec!["host"], "one")?, make_run(vec!["rr", "deferred"], "two")?])
}

/// Setup and tables, no control character from the store, and no line of more than 72 columns.
fn the_text_fits_into_a_mail() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let evil = Fixture::default().text().replace("AMD EPYC", "AMD\\u001b[31m EPYC");
    let run =
        store(&folder, "a-run-with-a-name-that-is-longer-than-a-line-of-a-mail-can-be", &evil)?;
    let ran = pvticket(["report", "--text"]).args([&run]).run()?.exits(0)?;
    let text = ran.text()?;
    ensure!(text.lines().all(|line| line.chars().count() <= 72), "{text}");
    ran.stdout_has(&[
        "machine  AMD?[31m EPYC",
        "windows  0.5 s",
        "Throughput, acquisitions/s",
        "Stddev",
    ])?;
    let page = folder.path().join("page.html");
    let both = pvticket(["report", "--text", "--html"]).args([&page, &run]).run()?.exits(0)?;
    ensure!(both.stdout == ran.stdout && page.exists(), "{}", both.show());
    Ok(())
}

/// Exit status 0: no regression; 1: at least one, with a line for each; 2: the runs cannot be judged.
fn a_regression_is_an_exit_status() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let make = |name: &str, fixture: &Fixture| store(&folder, name, &fixture.text());
    // With the first run's seed it would be a copy of that run.
    let few = Fixture { rounds: 2, seed: 4, ..Fixture::default() };
    let before = make("before", &Fixture::default())?;
    let alike = make("alike", &Fixture { seed: 2, ..Fixture::default() })?;
    let slow = make("slow", &Fixture { seed: 3, speed: 0.5, ..Fixture::default() })?;
    let few = make("few", &few)?;
    let disjoint = make("other", &Fixture { vcpus: vec![5], ..Fixture::default() })?;
    let diff = |after: &Path, more: &[&str]| {
        let gate = pvticket(["report", "--fail-on", "regression", "--diff"]);
        gate.args([before.as_path(), after]).args(more).run()
    };
    let two = pvticket(["report", "--diff"]).args([&before, &slow]).run()?.exits(0)?;
    two.stdout_has(&["The second run is slower at"])?;
    let alone = pvticket(["report", "--diff"]).args([&before]).run()?;
    alone.fails(2, &["--diff: requires two run directories, not 1"])?;
    let ran = diff(&slow, &[])?.exits(1)?.no_stderr()?;
    let (text, mut lines) = (ran.text()?, 0);
    for line in text.lines().filter_map(|line| line.strip_prefix("regression: ")) {
        let has = |part: &str| line.contains(part);
        ensure!(has("x (") && has("x .. ") && has(", p ") && has("ticket at "), "{line}");
        lines += 1;
    }
    let less = text.lines().filter(|line| line.ends_with("  less")).count();
    ensure!(lines == less && lines > 4, "{lines} regressions, {less} points with less\n{text}");
    diff(&slow, &["--text"])?.exits(1)?.stdout_has(&["\nRegressions\n"])?;
    diff(&alike, &[])?.exits(0)?;
    let reason =
        "16 points cannot be judged: too few repetitions (8 and 2, measure 5 in the second run): ";
    diff(&few, &[])?.fails(2, &[reason])?;
    diff(&disjoint, &[])?.fails(2, &["no point with figures in common"])?;
    // Regression (G13): a run that ended early passed.
    let half = Fixture { seed: 5, vcpus: vec![2, 3], ..Fixture::default() };
    let half = make("half", &half)?;
    let missing = "8 points cannot be judged: no figures in the second run: ";
    diff(&half, &[])?.fails(2, &[missing, "; 5 other points"])?;
    // Regression: a run that was ended in its sixth round passed.
    let full = Fixture { seed: 6, ..Fixture::default() }.text();
    let kept = full.lines().count() - 3 * 16;
    let text: String = full.lines().take(kept).map(|line| format!("{line}\n")).collect();
    let lost = "16 points cannot be judged: fewer repetitions than the first run (5 of 8), as cells failed";
    diff(&store(&folder, "unfinished", &text)?, &[])?.fails(2, &[lost])?;
    let worse = pvticket(["report", "--diff", "--fail-on", "regression"]).args([&half, &slow]);
    worse.run()?.exits(1)?.stderr_has(&["note: 8 points cannot be judged: "])?;
    diff(&folder.path().join("absent"), &[])?.fails(2, &["absent"])?;
    diff(&slow, &["--html", "/absent/page.html"])?.fails(2, &["cannot write /absent/page.html"])?;
    Ok(())
}

fn invalid_stores_are_refused_in_one_line() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let text = Fixture { rounds: 1, ..Fixture::default() }.text();
    let report = |run: &Path| pvticket(["report"]).args([run]).run();
    report(folder.path())?.fails(1, &["has no run"])?;
    report(&folder.path().join("absent"))?.fails(1, &["absent"])?;
    let older = store(&folder, "older", &text.replace("\"format\":2", "\"format\":1"))?;
    report(&older)?
        .fails(1, &["has format 1, this version of pvticket reads format 2: ", "measure again"])?;
    let damaged = store(&folder, "damaged", &text.replacen("\"cell\":3,", "\"cell\":", 1))?;
    report(&damaged)?.fails(1, &["damaged in line"])?;
    // A program that is killed while writing leaves such a store.
    let torn = store(&folder, "torn", &text[..text.len() - 100])?;
    report(&torn)?.exits(0).map(drop)
}

/// Pages of a run, of many locks, of categories, of two runs in brief, and of a comparison of runs.
fn pages_render_in_a_browser() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let inspect = |words: &[&str], runs: &[PathBuf]| {
        let page = folder.path().join("report.html");
        let report = pvticket(["report"]).args(words).args(["--html"]).args([&page]);
        let ran = report.args(runs).run()?.exits(0)?;
        ensure!(ran.stdout.is_empty() || !words.is_empty(), "{}", ran.show());
        inspect(&folder, &page, &format!("{words:?} {runs:?}"))
    };
    let usual = store(&folder, "usual", &Fixture::default().text())?;
    let figures = inspect(&[], slice::from_ref(&usual))?;
    ensure!(figures >= 8, "{figures} figures only");
    let many = Fixture {
        policies: vec!["rr"],
        locks: vec![
            ("ticket", "off"),
            ("pv-ticket", "vmm"),
            ("queued", "off"),
            ("pv-queued", "vmm"),
            ("preemptable-ticket", "off"),
            ("test-and-set", "off"),
        ],
        ..Fixture::default()
    };
    inspect(&[], &[store(&folder, "many", &many.text())?])?;
    let categories = Fixture {
        policies: vec!["rr", "fair", "directed-yield", "deferred"],
        vcpus: vec![4],
        critical: vec![50, 5000],
        ..Fixture::default()
    };
    inspect(&[], &[store(&folder, "categories", &categories.text())?])?;
    inspect(&["--brief"], &first_runs(&folder)?)?;
    let slow = Fixture { seed: 3, speed: 0.5, ..Fixture::default() };
    let slow = store(&folder, "slow", &slow.text())?;
    let figures = inspect(&["--diff"], &[usual, slow])?;
    ensure!(figures == 1, "{figures} figures");
    Ok(())
}

/// [`FAULTS`] and the browser's complaints report the faults of a page.
fn faults_of_a_page_are_found() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let page = r#"<!doctype html><meta charset="utf-8"><style>body { width: 2000px }</style>
        <script>console.error('no')</script><img src="http://127.0.0.1:9/x.png">
        <figure id="bad"><div class="panel"><svg width="300" height="100"><path class="mark" d="M0 0h9v9z"/>
        <text x="290" y="50">cut off</text><text x="50" y="50">one</text><text x="52" y="51">two</text>
        </svg></div><div class="panel"></div></figure>"#;
    let page = files::put(&folder, "bad.html", page.as_bytes())?;
    let mut browser = Browser::start(&folder.path().join("profile"))?;
    browser.show(&page, (800, 600), "light")?;
    let result = browser.eval(FAULTS)?["faults"].to_string();
    let faults = ["wider than its window", "cut off: cut off", "overlap: one and two", "0 plots"];
    ensure!(faults.iter().all(|fault| result.contains(fault)), "{result}");
    let complaints = browser.errors.join("\n");
    let parts = ["it fetches http://127.0.0.1:9/x.png", "\"value\":\"no\""];
    ensure!(parts.iter().all(|part| complaints.contains(part)), "{complaints}");
    Ok(())
}

/// Returns the faults in the figures of a page, and the number of figures. A figure is correct if each of its
/// panels shows exactly one plot, which is neither tiny nor empty and lies within the window, and if its
/// labels are legible, lie within their plot, and overlap by a few pixels at most.
const FAULTS: &str = include_str!("page_faults.js");

/// Opens a page at several window widths and in both colour schemes, and expects no faults. Returns the
/// number of its figures.
fn inspect(folder: &TempDir, page: &Path, name: &str) -> anyhow::Result<u64> {
    let mut browser = Browser::start(&folder.path().join("profile"))?;
    let mut figures = 0;
    let views = [
        (1400, "light"),
        (1400, "dark"),
        (400, "light"),
        (360, "light"),
        (800, "dark"),
        (1600, "light"),
    ];
    for (width, scheme) in views {
        browser.show(page, (width, 900), scheme)?;
        let result = browser.eval(FAULTS)?;
        let faults: Vec<&Value> = result["faults"].as_array().into_iter().flatten().collect();
        ensure!(faults.is_empty(), "{name} at {width} px: {faults:#?}");
        figures = result["figures"].as_u64().context("no number of figures")?;
        let background = "getComputedStyle(document.body).backgroundColor";
        let background = browser.eval(background)?;
        let is_dark = background == "rgb(16, 20, 24)";
        ensure!(is_dark == (scheme == "dark"), "{scheme}: the background is {background}");
    }
    ensure!(browser.errors.is_empty(), "the page complains: {:#?}", browser.errors);
    Ok(figures)
}
