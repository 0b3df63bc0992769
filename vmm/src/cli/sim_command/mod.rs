//! `pvticket sim`: what concerns the simulator itself.

mod calibrate;

use base::plural::count;
use clap::{Args, Subcommand, ValueEnum};

use super::print;
use calibrate::CalibrateArgs;
use experiment::{self, cell::simulated, reproduce::rung4, rung2};
use report::columns::Columns;

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

/// Compare the simulator with measured or published figures; fails if a figure is off (see
/// vmm/sim/docs/VALIDATION.md).
#[derive(Debug, Args)]
struct ValidateArgs {
    /// Some cells of each table only
    #[arg(long)]
    short: bool,

    /// 2: cells measured on this host, simulated by the costs of `sim calibrate`; takes minutes. 4: published tables,
    /// predicted from their 1x column; some rows fail
    #[arg(long, value_name = "N", value_enum)]
    rung: Rung,
}

/// A rung of the ladder of comparisons; unit tests of the simulator are 1 and 3.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Rung {
    #[value(name = "2")]
    Measured,
    #[value(name = "4")]
    Published,
}

/// Runs the subcommand and returns the exit status.
pub fn run(args: &SimArgs) -> anyhow::Result<u8> {
    match &args.what {
        What::Calibrate(args) => calibrate::run(args),
        What::Validate(args) => match args.rung {
            Rung::Measured => rung2::validate(args.short, print),
            Rung::Published => rung4::validate(args.short, print),
        },
        What::Machines => {
            machines();
            Ok(0)
        }
    }
}

/// The machines that come with pvticket, and this host if it was measured.
fn machines() {
    let mut columns = Columns::new(0..0);
    let shipped = sim::machine::SHIPPED.iter().map(|(name, _)| *name);
    for name in shipped.chain([experiment::calibrate::NAME]) {
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
