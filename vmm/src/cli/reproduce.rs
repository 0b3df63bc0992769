//! `pvticket reproduce`: compares published figures with measurements on this host and simulations of others.

use std::{fs, path::PathBuf};

use anyhow::{Context, bail};
use base::plural::count;
use clap::Args;

use super::{Usage, eprint_line, print, results::ResultFile};
use experiment::{
    cpus,
    host::topology,
    reproduce::{self, Options, Reproduced, Saved, Selection, list, rung4},
};
use os::{results, signals};
use report::{
    document::Document,
    html,
    words::text::{Form, render},
};
use study::{plan::Seconds, published::Table};

/// Compare published figures with measurements on this host and with simulations of other machines (see
/// vmm/sim/REPRODUCE.md). Prints the score, the rows, and a reason for each missing figure
#[derive(Debug, Args)]
pub struct ReproduceArgs {
    /// Only this row ("TABLE: ROW"), the rows of this table, or the rows of this letter of the score card
    #[arg(long = "row", value_name = "NAME", conflicts_with = "resume")]
    rows: Vec<String>,

    /// Print the names of all rows and exit
    #[arg(long)]
    list: bool,

    /// Measure only, without simulations
    #[arg(long, conflicts_with_all = ["simulated_only", "resume"])]
    measured_only: bool,

    /// Simulate only, without measurements
    #[arg(long, conflicts_with = "resume")]
    simulated_only: bool,

    /// Instead, predict published tables from their 1x column only, and compare; fails if a row is off, as
    /// some are (see vmm/sim/docs/VALIDATION.md)
    #[arg(long, conflicts_with_all = ["rows", "list", "measured_only", "simulated_only", "runs", "seconds", "out", "resume",
          "html"])]
    predict: bool,

    /// Runs of each measured point, 1 to 1000; confidence intervals require 6
    #[arg(long, value_name = "K", default_value_t = 8, conflicts_with = "resume",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,

    /// Measured time of a run in seconds
    #[arg(
        long,
        value_name = "S",
        default_value = "0.3",
        conflicts_with = "resume",
        allow_hyphen_values = true
    )]
    seconds: Seconds,

    /// Short simulations and a coarse fit, with --predict no large machines: a trial without valid figures
    #[arg(long, conflicts_with = "resume")]
    short: bool,

    /// Directory for the results: a run directory per measured table, the simulated rates, and the
    /// reproduction as text and as a page
    #[arg(long, value_name = "DIR", default_value = "pvticket-reproduce")]
    out: PathBuf,

    /// Resume the reproduction in --out, with its options
    #[arg(long)]
    resume: bool,

    /// Also write the page to this file
    #[arg(long, value_name = "F")]
    html: Option<PathBuf>,
}

/// File name of the page in `--out`.
const PAGE: &str = "reproduce.html";
/// File name of the text in `--out`.
const TEXT: &str = "reproduce.txt";

/// Runs the subcommand and returns the exit status.
pub fn run(args: &ReproduceArgs) -> anyhow::Result<u8> {
    if args.predict {
        return rung4::validate(args.short, print);
    }
    let tables = Table::all()?;
    if args.list {
        print(&list(&tables));
        return Ok(0);
    }
    let cpus = cpus::choose_default(&topology(), None)?;
    let (saved, is_new) =
        if args.resume { (Saved::read(&args.out)?, false) } else { (new_options(args)?, true) };
    let rows = Selection::new(&tables, &saved.options.rows)?;
    let page = ResultFile::check("--html", args.html.as_deref())?;
    let interrupt = signals::catch().context("cannot catch signals")?;
    fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot create --out {}", args.out.display()))?;
    if is_new {
        saved.write(&args.out)?;
    }
    match reproduce::reproduce(&rows, saved, &args.out, &cpus, &interrupt)? {
        Some(result) => show(args, &result, page.as_ref()).map(|()| 0),
        None => {
            let out = base::sanitize::shell_quoted(&args.out.display().to_string());
            eprint_line(format_args!(
                "pvticket: completed rows are kept; resume with: pvticket reproduce --resume --out {out}"
            ));
            Ok(signals::exit_status())
        }
    }
}

/// The options of a new reproduction. Fails if `--out` already has one.
fn new_options(args: &ReproduceArgs) -> Result<Saved, Usage> {
    if Saved::is_in(&args.out)? {
        let folder = args.out.display();
        return Err(Usage(format!(
            "--out {folder}: contains a reproduction; add --resume, or choose another directory"
        )));
    }
    let ReproduceArgs { rows, measured_only, simulated_only, runs, seconds, short, .. } = args;
    Ok(Saved::new(Options {
        rows: rows.clone(),
        measured: !simulated_only,
        simulated: !measured_only,
        runs: *runs,
        seconds: seconds.0.as_secs_f64(),
        short: *short,
    }))
}

/// Writes the figures as text and as a page, and prints the text.
fn show(args: &ReproduceArgs, data: &Reproduced, page: Option<&ResultFile>) -> anyhow::Result<()> {
    let Reproduced { figures, broken } = data;
    let document = Document::for_reproduction(figures);
    let text = render(&document, Form::MAIL);
    let html = html::document_page(document).context("cannot create the page")?;
    for (name, contents) in [(PAGE, &html), (TEXT, &text)] {
        let file = args.out.join(name);
        results::write(&file, contents.as_bytes())
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    if let Some(page) = page {
        page.write_text(&html)?;
    }
    print(&text);
    print(&format!("\npage: {}\n", args.out.join(PAGE).display()));
    if *broken > 0.0 {
        bail!(
            "locks failed their checks {} (violations, disorder): this is a bug",
            count(*broken, "time")
        );
    }
    Ok(())
}
