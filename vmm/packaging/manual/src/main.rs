//! `pvticket-manual DIR`: writes the man pages and the completions of pvticket below `DIR`, in the places that they have
//! below a prefix such as `/usr`.
//!
//! A program of its own: the VMM has no need of them, and stays smaller without.

use std::{
    env,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

fn main() -> ExitCode {
    let mut args = env::args_os().skip(1);
    let (Some(dir), None) = (args.next(), args.next()) else {
        complain("which folder? pvticket-manual DIR");
        return ExitCode::from(2);
    };
    match pvticket_manual::write_to(Path::new(&dir)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

/// A closed stderr is no reason to panic.
fn complain(what: &str) {
    drop(writeln!(io::stderr(), "pvticket-manual: {what}"));
}
