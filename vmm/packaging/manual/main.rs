//! `pvticket-manual DIR`: writes pvticket's man pages and completions below `DIR`, at their paths below a
//! prefix such as `/usr`. Commands and options come from clap, sections about all commands from `MANUAL.md`.
//!
//! A separate program keeps this code out of the VMM.

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
        print_error("requires a directory: pvticket-manual DIR");
        return ExitCode::from(2);
    };
    match write_to(Path::new(&dir)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

/// Prints an error. A closed stderr is ignored.
fn print_error(message: &str) {
    drop(writeln!(io::stderr(), "pvticket-manual: {message}"));
}

/// The manual could not be generated.
#[derive(Debug, Error)]
enum ManualError {
    /// A file or folder cannot be made.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file or folder.
        path: PathBuf,
        source: io::Error,
    },
    /// The manual's text has no sections.
    #[error("MANUAL.md has no sections")]
    Empty,
}

/// Writes all files below `prefix`: `share/man/man1/` and the shells' folders.
fn write_to(prefix: &Path) -> Result<(), ManualError> {
    let command = visible(&pvticket::cli::command());
    for (name, text) in pages::pages(&command)?.into_iter().chain(completions::scripts(&command)) {
        let path = prefix.join("share").join(name);
        path.parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::write(&path, text))
            .map_err(|source| ManualError::Write { path, source })?;
    }
    Ok(())
}

/// The command line without pvticket's internal subcommands, which completions would offer.
fn visible(command: &Command) -> Command {
    let mut visible = Command::new("pvticket").version(env!("CARGO_PKG_VERSION"));
    if let Some(about) = command.get_about() {
        visible = visible.about(about.clone());
    }
    visible
        .subcommand_required(true)
        .subcommand_value_name("COMMAND")
        .args(command.get_arguments().cloned())
        .subcommands(command.get_subcommands().filter(|command| !command.is_hide_set()).cloned())
}
