//! `pvticket report`: the results of runs, as text or as an HTML page.

use std::{
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    slice,
};

use anyhow::Context;
use clap::Args;
use rustix::termios::tcgetwinsize;

use super::{Usage, print};
use crate::results;
use report::{
    html,
    words::{diff, text},
};
use study::findings::{Diff, RunRecord, Study};

/// Report the results of runs: figures, comparisons with their intervals, and how to reproduce them
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Directories of runs; several make one study
    #[arg(value_name = "DIR", required = true)]
    runs: Vec<PathBuf>,

    /// Compare two runs: the second with the first
    #[arg(long)]
    diff: bool,

    /// Write the report to this file as an HTML page, without scripts or external resources
    #[arg(long, value_name = "F")]
    html: Option<PathBuf>,

    /// Also print the report when a page is written
    #[arg(long)]
    text: bool,
}

/// File name of the page in a run's directory.
const PAGE: &str = "report.html";

/// The subject of a report.
enum Subject {
    Study(Box<Study>),
    Diff(Box<Diff>),
}

/// Runs the subcommand and returns the exit status.
pub fn run(args: &ReportArgs) -> anyhow::Result<u8> {
    if args.diff && args.runs.len() != 2 {
        let count = args.runs.len();
        let what = format!("--diff compares two runs, not {count}: give two directories");
        return Err(Usage(what).into());
    }
    let records = args.runs.iter().map(|folder| RunRecord::read(folder));
    let subject = subject(&records.collect::<Result<Vec<_>, _>>()?, args.diff);
    if let Some(file) = &args.html {
        subject.write_page(file)?;
    }
    if args.html.is_none() || args.text {
        print(&subject.text(columns()));
    }
    Ok(0)
}

/// Prints the report of a run that has just ended, writes its page to its directory and returns the
/// page's path.
pub(super) fn of_run(dir: &Path) -> anyhow::Result<PathBuf> {
    let subject = subject(&[RunRecord::read(dir)?], false);
    let file = dir.join(PAGE);
    subject.write_page(&file)?;
    print(&subject.text(columns()));
    Ok(file)
}

fn subject(records: &[RunRecord], is_diff: bool) -> Subject {
    let study = |record| Study::new(slice::from_ref(record));
    match records {
        [before, after] if is_diff => {
            Subject::Diff(Box::new(Diff::new(study(before), study(after))))
        }
        _ => Subject::Study(Box::new(Study::new(records))),
    }
}

impl Subject {
    fn write_page(&self, file: &Path) -> anyhow::Result<()> {
        let page = match self {
            Self::Study(study) => html::page(study),
            Self::Diff(diff) => html::diff_page(diff),
        };
        results::write(file, page.context("cannot make the page")?.as_bytes())
            .with_context(|| format!("cannot write {}", file.display()))
    }

    fn text(&self, columns: usize) -> String {
        match self {
            Self::Study(study) => text::render(study, columns),
            Self::Diff(its) => diff::render(its, columns),
        }
    }
}

/// The terminal's width if stdout is one, a fixed width otherwise.
fn columns() -> usize {
    let stdout = io::stdout();
    let size = stdout.is_terminal().then(|| tcgetwinsize(&stdout).ok()).flatten();
    size.map_or(text::NARROWEST, |size| usize::from(size.ws_col))
}
