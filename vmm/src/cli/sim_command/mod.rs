//! `pvticket sim`: the simulator's machines.

mod calibrate;

use base::plural::count;
use clap::{Args, Subcommand};

use super::print;
use calibrate::CalibrateArgs;
use experiment::{self, cell::simulated};
use report::columns::Columns;

/// List the machines for simulations (--machine NAME): built-in machines, and this host if it is calibrated
/// (see vmm/sim/README.md)
#[derive(Debug, Args)]
pub struct SimArgs {
    #[command(subcommand)]
    command: Option<SimCommand>,
}

#[derive(Debug, Subcommand)]
enum SimCommand {
    Calibrate(CalibrateArgs),
}

/// Runs the subcommand and returns the exit status.
pub fn run(args: &SimArgs) -> anyhow::Result<u8> {
    match &args.command {
        Some(SimCommand::Calibrate(args)) => calibrate::run(args),
        None => {
            list_machines();
            Ok(0)
        }
    }
}

/// Lists the machines that come with pvticket, and this host if it is calibrated.
fn list_machines() {
    let mut columns = Columns::new(0..0);
    let shipped = sim::machine::SHIPPED.iter().map(|(name, _)| *name);
    for name in shipped.chain([experiment::calibrate::NAME]) {
        if let Ok(machine) = simulated::machine(name) {
            let (assumed, costs) = machine.assumed();
            let costs = format!("{assumed} of {} assumed", count(costs, "cost"));
            columns.row([name, &format!("{}; {costs}", machine.about)]);
            for doubt in &machine.doubts {
                columns.row(["", &format!("DOUBTED: {doubt}")]);
            }
        }
    }
    print(&columns.text(1));
}
