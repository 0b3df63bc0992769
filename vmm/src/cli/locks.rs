//! `pvticket locks`: the lock library.

use std::{
    fmt::Write as _,
    io::{self, Write},
};

use clap::Args;
use locks::System;

/// List the systems of the lock library: what each is, where it comes from and what it needs
#[derive(Debug, Args)]
pub struct LocksArgs {}

/// Runs the subcommand; gives the exit status.
pub fn run(_: &LocksArgs) -> u8 {
    // A closed stdout is no matter.
    let _ = io::stdout().write_all(list().as_bytes());
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
        let _ = writeln!(text, "  {system:<16} {}", system.about());
        let (seed, needs) = (system.seed().name(), system.needs().name());
        let _ = writeln!(text, "  {:<16} from {seed}; needs {needs}", "");
    }
    text
}
