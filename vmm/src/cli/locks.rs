//! `pvticket locks`: the lock library.

use std::fmt::Write as _;

use clap::Args;
use locks::{Family, System};

use super::print;
use crate::guest::kernels;

/// List the systems of the lock library: what each is, where it comes from and what it needs
#[derive(Debug, Args)]
pub struct LocksArgs {}

/// Runs the subcommand; gives the exit status.
pub fn run(_: &LocksArgs) -> u8 {
    print(&list());
    0
}

fn list() -> String {
    let mut text = String::new();
    let mut family = None;
    for system in System::ALL {
        if family != Some(system.family()) {
            family = Some(system.family());
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{}", system.family().name());
        }
        let _ = writeln!(text, "  {system:<22} {}", system.about());
        let (seed, needs) = (system.seed().name(), system.needs().name());
        let guests = match kernels::flavour(*system) {
            Some(_) => "payload, Linux",
            None => "payload",
        };
        let waiting = match system.bypass() {
            Some(bypass) => format!("{}; ", bypass.name()),
            None => String::new(),
        };
        let facts = format!("{}{waiting}needs {needs}; {seed}; {guests}", promises(*system));
        let _ = writeln!(text, "  {:<22} {facts}", "");
    }
    text
}

/// What spinlocks differ in.
fn promises(system: System) -> String {
    if system.family() != Family::Spinlock {
        return String::new();
    }
    let order = if system.is_fifo() { "first in, first out" } else { "in any order" };
    match system.most_cpus() {
        u32::MAX => format!("{order}; any number of CPUs; "),
        most => format!("{order}; up to {most} CPUs; "),
    }
}
