//! `pvticket report`: what runs say, as text or as a page.

use std::{
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    slice,
};

use anyhow::Context;
use clap::Args;
use rustix::termios::tcgetwinsize;

use super::{Usage, print};
use crate::{
    lab::study::{Diff, RunRecord, Study},
    report::{
        html,
        study::{diff, text},
    },
    results,
};

/// Report what runs say: figures, comparisons with their intervals, and how to have them again
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Directories of runs; several make one study
    #[arg(value_name = "DIR", required = true)]
    runs: Vec<PathBuf>,

    /// Compare two runs: the second with the first
    #[arg(long)]
    diff: bool,

    /// Write a page to this file, with no script in it and nothing to fetch
    #[arg(long, value_name = "F")]
    html: Option<PathBuf>,

    /// Print the report beside writing a page
    #[arg(long)]
    text: bool,
}

/// The page of a run, in its directory.
const PAGE: &str = "report.html";

/// What is reported.
enum Subject {
    Study(Box<Study>),
    Diff(Box<Diff>),
}

/// Runs the subcommand; gives the exit status.
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

/// Prints the report of a run that has just been made, and writes its page to its directory; gives
/// where that is.
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

/// Of the terminal, if stdout is one.
fn columns() -> usize {
    let stdout = io::stdout();
    let size = stdout.is_terminal().then(|| tcgetwinsize(&stdout).ok()).flatten();
    size.map_or(text::NARROWEST, |size| usize::from(size.ws_col))
}
