//! `pvticket export`: exports the cells of stores as one table for other tools.

use std::{
    fs,
    io::{self, IsTerminal},
    path::{Path, PathBuf},
};

use anyhow::Context;
use base::{files, plural::count};
use clap::Args;

use super::{
    Usage, eprint_line, print,
    report_command::{records, without_copies},
};
use os::{
    results,
    streams::{print_json, print_raw},
};
use study::{
    findings::{RunRecord, Study},
    store::{FILE, export},
};

/// Write the cells of runs as one table: a row per cell, with all parameters and figures
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Run directories
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,

    #[command(flatten)]
    outputs: Outputs,
}

/// The tables to write, at least one.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
struct Outputs {
    /// Write CSV to this file, or to stdout (-)
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Write JSON to this file, or to stdout (-): all lines of the runs, each point's figures, and
    /// the comparisons with verdicts
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the subcommand and returns the exit status.
pub fn run(args: &ExportArgs) -> anyhow::Result<u8> {
    let Outputs { csv, json } = &args.outputs;
    let is_stdout = |file: &&PathBuf| file.as_os_str() == "-";
    if [csv, json].into_iter().flatten().filter(is_stdout).count() > 1 {
        return Err(Usage("--csv, --json: only one can write to stdout".into()).into());
    }
    let stores = args.dirs.iter().map(|dir| records(dir)).collect::<anyhow::Result<Vec<_>>>()?;
    let stores: Vec<RunRecord> = stores.into_iter().flatten().collect();
    for store in stores.iter().filter(|store| store.contents.torn.is_some()) {
        let file = Path::new(&store.source).join(FILE);
        eprint_line(format_args!("note: ignored the incomplete last line of {}", file.display()));
    }
    let dirs: Vec<PathBuf> = stores.iter().map(|store| PathBuf::from(&store.source)).collect();
    let files = csv.iter().chain(json);
    check_targets(files.filter(|file| !is_stdout(file)), &dirs)?;
    let stores = without_copies(stores);
    if let Some(file) = csv {
        let mut table = Vec::new();
        export::csv(&stores, &mut table)?;
        if is_stdout(&file) {
            print_table(&table);
        } else {
            write(file, &table, &stores)?;
        }
    }
    if let Some(file) = json {
        let text = export::json(&stores, &Study::new(&stores)).context("cannot create JSON")?;
        if is_stdout(&file) {
            print_json(&text);
        } else {
            write(file, text.as_bytes(), &stores)?;
        }
    }
    Ok(0)
}

/// Prints raw bytes to a pipe or a file, and text without control characters to a terminal.
fn print_table(table: &[u8]) {
    if io::stdout().is_terminal() {
        print(&String::from_utf8_lossy(table))
    } else {
        print_raw(table)
    }
}

/// Rejects a target that would overwrite an exported store, or the other table.
fn check_targets<'a>(
    files: impl Iterator<Item = &'a PathBuf>,
    dirs: &[PathBuf],
) -> Result<(), Usage> {
    let mut targets: Vec<PathBuf> = dirs.iter().map(|dir| canonical(&dir.join(FILE))).collect();
    for file in files {
        let place = canonical(file);
        if targets.contains(&place) {
            return Err(Usage(format!("{}: the file is a store, or named twice", file.display())));
        }
        targets.push(place);
    }
    Ok(())
}

/// The canonical path of a file that may not exist yet.
fn canonical(file: &Path) -> PathBuf {
    fs::canonicalize(file).unwrap_or_else(|_| {
        let dir = fs::canonicalize(files::folder(file)).ok();
        dir.zip(file.file_name()).map_or_else(|| file.into(), |(dir, name)| dir.join(name))
    })
}

fn write(file: &Path, table: &[u8], stores: &[RunRecord]) -> anyhow::Result<()> {
    results::write(file, table).with_context(|| format!("cannot write {}", file.display()))?;
    let rows: usize = stores.iter().map(|store| store.contents.cells.len()).sum();
    print(&format!(
        "{}: {}, {}\n",
        file.display(),
        count(rows, "cell"),
        count(export::width(), "column")
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: ExportArgs,
    }

    #[test]
    fn runs_and_output_are_required() {
        let accepts = |line: &str| {
            Line::try_parse_from(["export"].into_iter().chain(line.split(' '))).is_ok()
        };
        assert!(accepts("a --json -") && accepts("a b --csv -") && accepts("a --csv x --json y"));
        assert!(!accepts("a") && !accepts("--csv -") && !accepts("a --json"));
    }

    #[test]
    fn tables_do_not_overwrite_stores() {
        let dir = std::env::temp_dir().join(format!("pvticket-export-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let store = dir.join(FILE);
        fs::write(&store, "").unwrap();
        let dirs = [dir.clone()];
        let check = |files: &[PathBuf]| check_targets(files.iter(), &dirs);
        let around = dir.join("..").join(dir.file_name().unwrap()).join(FILE);
        assert!(check(&[store]).is_err() && check(&[around]).is_err());
        let (table, other) = (dir.join("cells.csv"), dir.join("cells.json"));
        assert!(check(&[table.clone(), table.clone()]).is_err());
        assert!(check(&[table, other]).is_ok());
        fs::remove_dir_all(dir).unwrap();
    }
}
