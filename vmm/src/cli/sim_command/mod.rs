//! `pvticket sim`: what concerns the simulator itself.

mod calibrate;

use std::time::Instant;

use anyhow::bail;
use base::plural::{agree, count};
use clap::{Args, Subcommand, ValueEnum};

use super::{Usage, print};
use calibrate::CalibrateArgs;
use experiments::rung2;
use lab::{self, cell::simulated, patience};
use report::columns::Columns;
use sim::{
    Brake,
    validate::{Effort, Row, rung1, rung3, rung4},
};

/// Everything about the simulator of machines with many CPUs (see vmm/sim/README.md).
#[derive(Debug, Args)]
pub struct SimArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Calibrate(CalibrateArgs),
    Validate(ValidateArgs),
    /// List the machines that come with the program: --machine NAME
    Machines,
}

/// Compare the simulator with what is known otherwise; fails if a figure is off.
#[derive(Debug, Args)]
struct ValidateArgs {
    /// Some cells of each table only, in half a minute or so
    #[arg(long)]
    short: bool,

    /// Only these rungs: 1 (mathematics), 2 (cells measured on this host beside their simulation, by
    /// the costs of `sim calibrate`), 3 (the machine files' costs, given back by simulated
    /// micro-benchmarks), 4 (published tables, predicted from their 1x column; some rows fail, see
    /// vmm/sim/docs/VALIDATION.md)
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum, default_value = "1,3")]
    rung: Vec<Rung>,
}

/// A rung of the ladder of comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Rung {
    #[value(name = "1")]
    Mathematics,
    #[value(name = "2")]
    Measured,
    #[value(name = "3")]
    Costs,
    #[value(name = "4")]
    Published,
}

/// What a run without them leaves out.
const MISSING: &str = "\
Left out unless asked for: --rung 2 (cells measured on this host, after `pvticket sim calibrate`)
and --rung 4 (published tables, of which some rows fail).";

/// Runs the subcommand and returns the exit status.
pub fn run(args: &SimArgs) -> anyhow::Result<u8> {
    match &args.what {
        What::Calibrate(args) => calibrate::run(args),
        What::Validate(args) => validate(args),
        What::Machines => {
            machines();
            Ok(0)
        }
    }
}

/// Ends simulations that get nowhere. A signal ends the process.
fn brake() -> Brake {
    patience::brake(|| false)
}

fn validate(args: &ValidateArgs) -> anyhow::Result<u8> {
    let is_measured = args.rung.contains(&Rung::Measured);
    if is_measured && args.rung.len() > 1 {
        return Err(Usage("--rung 2: alone, as it measures for minutes".into()).into());
    }
    if is_measured {
        return rung2::validate(args.short, print);
    }
    let effort = if args.short { Effort::Short } else { Effort::Full };
    let began = Instant::now();
    let mut table = "";
    let mut each = |row: &Row| {
        if row.table != table {
            table = row.table;
            let head = ["cell", "expected", "simulated", "off", "bound"];
            let [cell, expected, simulated, off, bound] = head;
            print(&format!(
                "\nRung {table}\n{cell:<38} {expected:>9} {simulated:>9} {off:>9} {bound:>6}\n"
            ));
        }
        print(&format!("{row}\n"));
    };
    let mut rows = Vec::new();
    if args.rung.contains(&Rung::Mathematics) {
        rows.extend(rung1(effort, &brake(), &mut each)?);
    }
    if args.rung.contains(&Rung::Costs) {
        rows.extend(rung3(&brake(), &mut each)?);
    }
    if args.rung.contains(&Rung::Published) {
        rows.extend(published(effort, &mut each)?);
    }
    let failed = rows.iter().filter(|row| !row.holds()).count();
    let seconds = began.elapsed().as_secs();
    print(&format!("\n{} of {} hold, {seconds} s\n{MISSING}\n", rows.len() - failed, rows.len()));
    match failed {
        0 => Ok(0),
        _ => bail!("{} {} off", count(failed, "figure"), agree(failed, "is", "are")),
    }
}

/// Rung 4, with what was fitted and what was not simulated.
fn published(effort: Effort, each: impl FnMut(&Row)) -> anyhow::Result<Vec<Row>> {
    let found = rung4(effort, &brake(), each)?;
    print("\n");
    for (table, fit) in &found.fits {
        print(&format!("{table}: fitted to 1x: {fit}\n"));
    }
    print("Not simulated:\n");
    for (reason, rows) in &found.left_out {
        print(&format!("{:>4}: {reason}\n", count(*rows, "row")));
    }
    Ok(found.rows)
}

/// The machines that come with pvticket, and this host if it was measured.
fn machines() {
    let mut columns = Columns::new(0..0);
    let shipped = sim::machine::SHIPPED.iter().map(|(name, _)| *name);
    for name in shipped.chain([lab::calibrate::NAME]) {
        if let Ok(machine) = simulated::machine(name) {
            let (assumed, all) = machine.assumed();
            let costs = format!("{assumed} of {} assumed", count(all, "cost"));
            columns.row([name, &format!("{}; {costs}", machine.about)]);
            for doubt in &machine.doubts {
                columns.row(["", &format!("DOUBTED: {doubt}")]);
            }
        }
    }
    print(&columns.text(1));
}
