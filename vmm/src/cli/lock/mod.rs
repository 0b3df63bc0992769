//! `pvticket lock`, and `--lock-crate DIR`: locks that are not in pvticket's sources.
//!
//! A lock crate is one source file, written for the lock library. `--lock-crate` copies the checkout into the
//! cache, grafts the file into the library there, as the recipe of CONTRIBUTING.md does by hand, builds that
//! pvticket and executes it. So payload, simulator, search and model checkers need no interface for plug-ins.

mod build;
mod c_code;
mod graft;
mod lock_crate;
mod new;

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    path::PathBuf,
    process::Command,
};

use clap::{Args, Subcommand};

use super::Usage;
use build::Grafted;
use lock_crate::LockCrate;

const OPTION: &str = "--lock-crate";

/// Commands with the option.
const COMMANDS: [&str; 8] =
    ["compare", "search", "run", "report", "export", "locks", "trace", "sim"];

/// Write and check locks of your own: compare, search, run, report, export, trace and locks take --lock-crate DIR,
/// rebuild pvticket with that lock (needs cargo and pvticket's checkout), and run the result
#[derive(Debug, Args)]
pub struct LockArgs {
    #[command(subcommand)]
    command: LockCommand,
}

#[derive(Debug, Subcommand)]
enum LockCommand {
    New(new::NewArgs),
    Check(CheckArgs),
}

/// Run a lock crate's tests, the model checkers (loom and shuttle), and the search's fixed cases
#[derive(Debug, Args)]
struct CheckArgs {
    /// Directory of the crate
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Runs the subcommand and returns the exit status.
pub fn run(args: &LockArgs) -> anyhow::Result<u8> {
    match &args.command {
        LockCommand::New(args) => new::run(args),
        LockCommand::Check(CheckArgs { dir }) => {
            let lock = LockCrate::read(dir)?;
            build::run(build::cargo().arg("test").current_dir(dir))?;
            let grafted = Grafted::new(&[&lock])?;
            grafted.check_model()?;
            let mut search = Command::new(grafted.program()?);
            Err(build::exec(search.args(["search", "--cases", "--locks", &lock.name])))
        }
    }
}

/// Executes a pvticket with the locks of `--lock-crate`, if the arguments contain it.
pub(super) fn exec_if_wanted(args: impl Iterator<Item = OsString>) -> anyhow::Result<()> {
    let (mut args, dirs) = without_crates(args.collect())?;
    if dirs.is_empty() {
        return Ok(());
    }
    let locks = dirs.into_iter().map(|dir| LockCrate::read(&dir)).collect::<Result<Vec<_>, _>>()?;
    let names: BTreeSet<_> = locks.iter().map(|lock| &lock.name).collect();
    if names.len() < locks.len() {
        return Err(Usage(format!("{OPTION}: two crates have the same name")).into());
    }
    let program = Grafted::new(&locks.iter().collect::<Vec<_>>())?.program()?;
    args.extend(default_locks(&args, &locks));
    Err(build::exec(Command::new(program).args(&args[1..])))
}

/// The arguments without `--lock-crate`, and its directories.
fn without_crates(args: Vec<OsString>) -> Result<(Vec<OsString>, Vec<PathBuf>), Usage> {
    let is_known = |name: &OsString| COMMANDS.iter().any(|command| name == command);
    if !args.get(1).is_some_and(is_known) {
        return Ok((args, Vec::new()));
    }
    let (mut others, mut dirs) = (Vec::new(), Vec::new());
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        if arg == OPTION {
            let dir =
                args.next().ok_or_else(|| Usage(format!("{OPTION}: requires a directory")))?;
            dirs.push(dir.into());
        } else if let Some(dir) = arg.to_str().and_then(|arg| arg.strip_prefix("--lock-crate=")) {
            dirs.push(dir.into());
        } else {
            others.push(arg);
        }
    }
    Ok((others, dirs))
}

/// The option `--locks` with the new locks, unless the arguments determine the locks.
fn default_locks(args: &[OsString], locks: &[LockCrate]) -> Option<OsString> {
    const DECIDED: [&str; 4] = ["--locks", "--resume", "--replay", "--help"];
    let others = match args[1].to_str() {
        Some("compare") => &["ticket", "pv-ticket"][..],
        Some("search") => &[],
        _ => return None,
    };
    let is_decided = |arg: &OsStr| {
        let name = arg.to_string_lossy();
        DECIDED.iter().any(|option| name.split('=').next() == Some(option))
    };
    if args.iter().any(|arg| is_decided(arg)) {
        return None;
    }
    let own = locks.iter().map(|lock| lock.name.as_str());
    let names: Vec<_> = others.iter().copied().chain(own).collect();
    Some(format!("--locks={}", names.join(",")).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn lock_crates_are_taken_out_of_the_arguments() {
        let split = |line| without_crates(words(line)).map_err(|error| error.to_string());
        let (args, dirs) =
            split("pvticket compare --lock-crate a --vcpus 2x --lock-crate=b").unwrap();
        assert_eq!(args, words("pvticket compare --vcpus 2x"));
        assert_eq!(dirs, [PathBuf::from("a"), "b".into()]);
        let guests = "pvticket boot -- x --lock-crate a";
        assert_eq!(split(guests).unwrap(), (words(guests), Vec::new()));
        assert!(split("pvticket run --lock-crate").unwrap_err().contains("requires a directory"));
    }

    #[test]
    fn new_lock_is_compared_unless_locks_are_named() {
        let lock = LockCrate {
            name: "mine".into(),
            about: String::new(),
            source: String::new(),
            needs: "Nothing",
            c_file: None,
        };
        let locks = std::slice::from_ref(&lock);
        let with = |line: &str| default_locks(&words(line), locks);
        assert_eq!(with("pvticket compare"), Some("--locks=ticket,pv-ticket,mine".into()));
        assert_eq!(with("pvticket search --cases"), Some("--locks=mine".into()));
        for line in
            ["compare --locks=mine", "search --locks mine", "search --replay f", "run league"]
        {
            let line = format!("pvticket {line}");
            assert_eq!(with(&line), None, "{line}");
        }
    }
}
