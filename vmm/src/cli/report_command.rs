//! `pvticket report`: reports the results of runs as text or as an HTML page.

use std::{
    error::Error,
    io::{self, IsTerminal},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use rustix::termios::tcgetwinsize;

use super::{Usage, eprint_line, print};
use base::{
    plural::{agree, count, noun},
    sanitize,
    units::CpuList,
};
use os::{results, streams};
use report::{
    brief::Brief,
    document::Document,
    html,
    words::{
        regressions,
        text::{self, Form, render},
    },
};
use study::{
    findings::{Diff, Repeat, RunRecord, Study, share_cells, without_repeats},
    store::{Tally, parts::Parts},
};

/// Report the results of runs: figures, comparisons with confidence intervals, and how to reproduce them
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Run directories; several are one study
    #[arg(value_name = "DIR", required = true)]
    runs: Vec<PathBuf>,

    /// Compare the second of two runs with the first
    #[arg(long)]
    diff: bool,

    /// Write the report to this file as an HTML page without scripts or external resources
    #[arg(long, value_name = "F")]
    html: Option<PathBuf>,

    /// Print plain text for a mail: 72 columns, the setup first, then tables; also with --html. With --brief a line
    /// for each point
    #[arg(long)]
    text: bool,

    /// Print at most ten lines and a chart per spec: gains of PV locks and schedules at 2x overcommit (or the
    /// smallest ratio above 1x); also at the top of the --html page
    #[arg(long, conflicts_with = "diff")]
    brief: bool,

    /// With --diff: print points that got worse (verdict, broken lock, all cells failed). Exit status: 1 if
    /// there are any, otherwise 2 if a point cannot be judged (absent, too few repetitions, or fewer than in
    /// the first run because cells failed or did not run), otherwise 0
    #[arg(long, value_name = "WHAT", requires = "diff")]
    fail_on: Option<FailOn>,
}

/// Condition under which the comparison of two runs fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FailOn {
    /// A point of the second run is worse than in the first.
    Regression,
}

/// Exit status of a comparison with a regression.
const REGRESSION: u8 = 1;

/// File name of the page in a run's directory.
const PAGE: &str = "report.html";

/// Runs the subcommand and returns the exit status.
pub fn run(args: &ReportArgs) -> anyhow::Result<u8> {
    match args.fail_on {
        None => {
            let (_, tallies) = show(args)?;
            tallies.into_iter().try_for_each(check).map(|()| 0)
        }
        // Status 1 means a regression and a written report. All failures, also of stdout, have status 2.
        Some(FailOn::Regression) => {
            let usage = |error: anyhow::Error| Usage(format!("{error:#}"));
            let (diff, _) = show(args).map_err(usage)?;
            let status = diff.map_or(Ok(0), |diff| diff_status(&diff, args.text)).map_err(usage)?;
            match streams::failure() {
                Some(error) => Err(Usage(format!("cannot write to stdout: {error}")).into()),
                None => Ok(status),
            }
        }
    }
}

/// Fails if a lock or a cell of a store failed. Determines the status of all commands that end with a report.
pub(super) fn check(tally: Tally) -> anyhow::Result<()> {
    let Tally { broken, failed, .. } = tally;
    if broken > 0 {
        bail!(
            "{} with a lock that failed its checks (violations, disorder): this is a bug",
            count(broken, "cell")
        );
    }
    if failed > 0 {
        bail!(
            "{} failed (see the report; run --resume DIR --retry failed repeats them)",
            count(failed, "cell")
        );
    }
    Ok(())
}

/// Prints or writes the requested report. Returns the comparison, if any, and the cell counts of each run.
fn show(args: &ReportArgs) -> anyhow::Result<(Option<Diff>, Vec<Tally>)> {
    if args.diff && args.runs.len() != 2 {
        let count = args.runs.len();
        let message = format!("--diff: requires two run directories, not {count}");
        return Err(Usage(message).into());
    }
    let runs = args.runs.iter().map(|dir| records(dir)).collect::<anyhow::Result<Vec<_>>>()?;
    let tallies = runs.iter().flatten().map(|record| record.contents.tally()).collect();
    let form = if args.text { Form::MAIL } else { terminal_form() };
    if let ([before, after], true) = (&runs[..], args.diff) {
        note_same_run(before, after);
        let diff = Diff::new(Study::new(before), Study::new(after));
        let document = Document::for_diff(&diff);
        if args.html.is_none() || args.text {
            print(&render(&document, form));
        }
        if let Some(file) = &args.html {
            write_page(file, html::document_page(document))?;
        }
        return Ok((Some(diff), tallies));
    }
    let records = without_copies(runs.into_iter().flatten().collect());
    let study = Study::new(&records);
    let brief = args.brief.then(|| Brief::new(&records));
    if let Some(file) = &args.html {
        write_page(file, html::page(&study, brief.as_ref()))?;
    }
    match brief {
        Some(_) if args.text => print(&render(&Document::mail(&study), form)),
        Some(brief) => print(&brief_text(&brief, args.html.as_deref())),
        None if args.html.is_none() || args.text => {
            print(&render(&Document::for_study(&study), form));
        }
        None => {}
    }
    Ok((None, tallies))
}

/// Reads the run in a directory, or its available parts. Prints a note about missing parts.
pub(super) fn records(dir: &Path) -> anyhow::Result<Vec<RunRecord>> {
    let Some(parts) = Parts::find(dir)? else { return Ok(vec![RunRecord::read(dir)?]) };
    let missing: Vec<usize> =
        parts.missing().into_iter().map(|part| part.number() as usize).collect();
    if !missing.is_empty() {
        let (dir, noun) = (dir.display(), noun(missing.len(), "part"));
        let missing = CpuList::ranges(&missing);
        eprint_line(format_args!("note: {dir} lacks {noun} {missing} of {}", parts.count()));
    }
    Ok(parts.dirs().map(|dir| RunRecord::read(&dir)).collect::<Result<_, _>>()?)
}

/// Removes copies of runs, and prints a note for each copy.
pub(super) fn without_copies(records: Vec<RunRecord>) -> Vec<RunRecord> {
    let (unique, repeats) = without_repeats(records);
    for Repeat { source, first, unique_cells: own_cells } in repeats {
        match own_cells {
            0 => eprint_line(format_args!("note: {source} is a copy of {first}; counted once")),
            _ => eprint_line(format_args!(
                "note: {source} is a copy of {first} that was resumed separately: only its {} {}",
                count(own_cells, "new cell"),
                agree(own_cells, "counts", "count")
            )),
        }
    }
    unique
}

/// Prints a note if a run is compared with itself, where equal figures mean nothing.
fn note_same_run(before: &[RunRecord], after: &[RunRecord]) {
    let pairs = before.iter().flat_map(|before| after.iter().map(move |after| (before, after)));
    if let Some((before, after)) = pairs.into_iter().find(|(a, b)| share_cells(a, b)) {
        eprint_line(format_args!(
            "note: {} is the same run as {}: they differ only in resumed cells",
            after.source, before.source
        ));
    }
}

/// The brief report, with the path of its page at the end.
fn brief_text(brief: &Brief, page: Option<&Path>) -> String {
    let page = page.map(|page| format!("page: {}\n", sanitize::line(&page.display().to_string())));
    brief.answer(columns()) + &brief.chart(columns()) + &page.unwrap_or_default()
}

/// The exit status. Lists the regressions, unless the text is a mail, which has them.
fn diff_status(diff: &Diff, is_mail: bool) -> anyhow::Result<u8> {
    let regressions = regressions::lines(diff);
    if !is_mail {
        print(&regressions.iter().map(|line| format!("regression: {line}\n")).collect::<String>());
    }
    match regressions::not_judged(diff) {
        Some(note) if regressions.is_empty() => Err(Usage(note).into()),
        Some(note) => {
            eprint_line(format_args!("note: {note}"));
            Ok(REGRESSION)
        }
        None if regressions.is_empty() => Ok(0),
        None => Ok(REGRESSION),
    }
}

/// Prints the report of a finished run, writes the page to the run's directory and returns the page's path.
pub(super) fn report_run(record: RunRecord, dir: &Path) -> anyhow::Result<PathBuf> {
    let document = Document::for_study(&Study::new(&[record]));
    let file = dir.join(PAGE);
    print(&render(&document, terminal_form()));
    write_page(&file, html::document_page(document))?;
    Ok(file)
}

fn write_page(
    file: &Path,
    page: Result<String, impl Error + Send + Sync + 'static>,
) -> anyhow::Result<()> {
    results::write(file, page.context("cannot create the page")?.as_bytes())
        .with_context(|| format!("cannot write {}", file.display()))
}

/// The text form for this terminal.
fn terminal_form() -> Form {
    Form::terminal(columns())
}

/// The width of the terminal on stdout, or a fixed width.
pub(super) fn columns() -> usize {
    let stdout = io::stdout();
    let size = stdout.is_terminal().then(|| tcgetwinsize(&stdout).ok()).flatten();
    // A terminal without a known width returns 0.
    size.map(|size| usize::from(size.ws_col)).filter(|width| *width > 0).unwrap_or(text::MIN_WIDTH)
}
