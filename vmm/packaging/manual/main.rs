//! `pvticket-manual DIR`: writes the man pages and the completions of pvticket below `DIR`, in the places that they have
//! below a prefix such as `/usr`: from the command line as clap knows it and, for what all commands have in common, from
//! `MANUAL.md`.
//!
//! A program of its own: the VMM has no need of them, and stays smaller without.

#![forbid(unsafe_code)]

mod completions;
mod pages;
mod source;
#[cfg(test)]
mod tests;

use std::{
    env, fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Command;
use thiserror::Error;

fn main() -> ExitCode {
    let mut args = env::args_os().skip(1);
    let (Some(dir), None) = (args.next(), args.next()) else {
        complain("which folder? pvticket-manual DIR");
        return ExitCode::from(2);
    };
    match write_to(Path::new(&dir)) {
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

/// Why they could not be written.
#[derive(Debug, Error)]
enum ManualError {
    /// A file or folder cannot be made.
    #[error("cannot write {path}: {source}")]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The manual's text has no sections.
    #[error("MANUAL.md has no sections")]
    Empty,
}

/// Writes all files below `prefix`: `share/man/man1/` and the folders of three shells.
fn write_to(prefix: &Path) -> Result<(), ManualError> {
    let command = visible(&pvticket::cli::command());
    for (name, text) in pages::all(&command)?.into_iter().chain(completions::all(&command)) {
        let path = prefix.join("share").join(name);
        path.parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::write(&path, text))
            .map_err(|source| ManualError::Write { path, source })?;
    }
    Ok(())
}

/// The command line without the subcommands that pvticket starts itself with, which completions would offer.
fn visible(command: &Command) -> Command {
    let mut shown = Command::new("pvticket").version(env!("CARGO_PKG_VERSION"));
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    shown
        .subcommand_required(true)
        .subcommand_value_name("COMMAND")
        .args(command.get_arguments().cloned())
        .subcommands(command.get_subcommands().filter(|one| !one.is_hide_set()).cloned())
}
