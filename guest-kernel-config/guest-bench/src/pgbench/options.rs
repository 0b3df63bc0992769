//! The command line of `pgbench-table`.

use std::{ffi::OsString, fmt, ops::RangeInclusive};

use guest_bench::words::number;
use lexopt::{Arg, Parser, ValueExt};

/// The parameters of a measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableOptions {
    /// Numbers of clients: one row each.
    pub clients: Vec<u32>,
    /// Scales of the databases: one block each. One unit is 100 000 rows, about 15 MiB.
    pub scales: Vec<u32>,
    /// Runs per row.
    pub runs: u32,
    /// Length of a run in seconds; pgbench takes whole seconds.
    pub seconds: u32,
    /// JSON instead of a table.
    pub json: bool,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self {
            clients: vec![1, 2, 4, 8, 16, 32, 64],
            scales: vec![1, 10],
            runs: 10,
            seconds: 5,
            json: false,
        }
    }
}

impl TableOptions {
    /// For machines on which the full measurement would take too long.
    fn small() -> Self {
        Self { clients: vec![1, 2, 4], scales: vec![1, 2], runs: 3, seconds: 1, json: false }
    }
}

/// The action that the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked {
    /// Measure and print a table.
    Run(TableOptions),
    /// Print the help.
    Help,
}

const CLIENTS: RangeInclusive<u32> = 1..=1000;
const SCALES: RangeInclusive<u32> = 1..=10_000;
const RUNS: RangeInclusive<u32> = 1..=1000;
const SECONDS: RangeInclusive<u32> = 1..=3600;

/// The help text.
pub const HELP: &str = "\
usage: pgbench-table [--clients LIST] [--scales LIST] [--runs N] [--seconds S] [--small] [--json]

Measures pgbench's SELECT of one row, in transactions a second, with native ticketlocks, with PV
ticketlocks on which no waiter halts, and with PV ticketlocks, which take turns within one boot.

  --clients LIST   numbers of clients [default: 1,2,4,8,16,32,64]
  --scales LIST    sizes of the database, in 100 000 rows (15 MiB) [default: 1,10]
  --runs N         runs of each number of clients, scale and lock [default: 10]
  --seconds S      length of a run, in whole seconds [default: 5]
  --small          defaults for small machines: clients 1,2,4, scales 1,2, 3 runs of 1 s
  --json           one line of JSON, with the figure of every run
";

/// Reads the command line, without the program's name. The error is one line.
pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Asked, String> {
    let mut parser = Parser::from_args(words);
    let (mut clients, mut scales, mut runs, mut seconds) = (None, None, None, None);
    let (mut small, mut json, mut help) = (false, false, false);
    while let Some(arg) = parser.next().map_err(say)? {
        match arg {
            Arg::Short('h') | Arg::Long("help") => help = true,
            Arg::Long("small") => small = true,
            Arg::Long("json") => json = true,
            Arg::Long("clients") => {
                clients = Some(list("--clients", &text(&mut parser)?, &CLIENTS)?);
            }
            Arg::Long("scales") => scales = Some(list("--scales", &text(&mut parser)?, &SCALES)?),
            Arg::Long("runs") => runs = Some(number("--runs", &text(&mut parser)?, &RUNS)?),
            Arg::Long("seconds") => {
                seconds = Some(number("--seconds", &text(&mut parser)?, &SECONDS)?);
            }
            other => return Err(other.unexpected().to_string()),
        }
    }
    if help {
        return Ok(Asked::Help);
    }
    // Whatever their order, explicit options override what --small stands for.
    let base = if small { TableOptions::small() } else { TableOptions::default() };
    Ok(Asked::Run(TableOptions {
        clients: clients.unwrap_or(base.clients),
        scales: scales.unwrap_or(base.scales),
        runs: runs.unwrap_or(base.runs),
        seconds: seconds.unwrap_or(base.seconds),
        json,
    }))
}

fn say(error: impl fmt::Display) -> String {
    error.to_string()
}

fn text(parser: &mut Parser) -> Result<String, String> {
    parser.value().and_then(|value| value.string()).map_err(say)
}

fn list(option: &str, text: &str, range: &RangeInclusive<u32>) -> Result<Vec<u32>, String> {
    let mut all = Vec::new();
    for word in text.split(',') {
        let number = number(option, word, range)?;
        if all.contains(&number) {
            return Err(format!("{option} has {number} twice"));
        }
        all.push(number);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &str) -> Result<Asked, String> {
        parse(words.split_whitespace().map(OsString::from))
    }

    #[test]
    fn defaults_are_those_of_2012() {
        let Ok(Asked::Run(options)) = parsed("") else { panic!("it is a run") };
        assert_eq!(options.clients, [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!((options.scales.len(), options.runs, options.seconds), (2, 10, 5));
        assert!(!options.json);
    }

    #[test]
    fn words_win_over_small() {
        let small = TableOptions { runs: 7, json: true, ..TableOptions::small() };
        for words in ["--small --runs 7 --json", "--json --runs=7 --small"] {
            assert_eq!(parsed(words), Ok(Asked::Run(small.clone())), "{words}");
        }
    }

    #[test]
    fn lists_keep_their_order() {
        let Ok(Asked::Run(options)) = parsed("--clients 8,1 --scales=3 --seconds 2") else {
            panic!()
        };
        assert_eq!((options.clients, options.scales, options.seconds), (vec![8, 1], vec![3], 2));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (words, says) in [
            ("fast", "fast"),
            ("--fast", "--fast"),
            ("--clients", "--clients"),
            ("--clients 1,,2", "--clients '' is not a number from 1 to 1000"),
            ("--clients 0", "--clients '0'"),
            ("--clients 2,1,2", "--clients has 2 twice"),
            ("--scales -1", "--scales"),
            ("--runs 0", "--runs '0'"),
            ("--seconds 0.5", "--seconds '0.5' is not a number from 1 to 3600"),
        ] {
            let error = parsed(words).map(|_| ()).unwrap_err();
            assert!(error.contains(says), "{words}: {error}");
            assert!(!error.contains('\n'), "{words}: {error}");
        }
        assert_eq!(parsed("--help --clients 1"), Ok(Asked::Help));
    }
}
