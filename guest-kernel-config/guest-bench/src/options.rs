//! The command line of `bench`.

use std::{
    ffi::OsString,
    fmt::{self, Display},
    ops::RangeInclusive,
    path::Path,
    str::FromStr,
    thread,
    time::Duration,
};

use lexopt::{Arg, Parser, ValueExt};

use crate::workload::{self, Workload, spawn};

#[derive(Debug, Clone)]
pub struct WorkloadOptions {
    /// Length of the warm-up before the measurement, over all parts.
    pub warm_up: Duration,
    /// Length of the measurement, over all parts.
    pub duration: Duration,
    /// Number of threads or processes; `None`: the workload's default.
    pub workers: Option<usize>,
    /// Size of each mapping in MiB.
    pub mib: usize,
    /// Bytes of each read, by part.
    pub sizes: Vec<usize>,
    /// Size of the database in units of 100 000 rows, about 15 MiB.
    pub scale: usize,
    /// Increments with the lock held.
    pub critical: u32,
    /// Increments between a release and the next acquisition.
    pub think: u32,
    pub json: bool,
    /// First of the VMM's I/O ports, for kernels that do not announce the window themselves.
    pub ports: Option<u16>,
    /// program: the command and its arguments.
    pub command: Vec<OsString>,
    /// Number of online CPUs.
    pub cpus: usize,
}

/// The action requested on the command line.
#[derive(Debug)]
pub enum Action {
    Run(&'static Workload, WorkloadOptions),
    /// Act as one worker of a workload whose workers are processes.
    Worker(&'static Workload, WorkloadOptions, CrewMember),
    /// Print the kernel's lock counters.
    Counters,
    /// Act as the program that [`spawn`](workload::spawn) starts.
    PassOn,
    Help,
}

/// A worker process's number and tally.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrewMember {
    /// Index among the workers.
    pub number: usize,
    /// The path of the [`Tally`](crate::tally::Tally).
    pub tally: String,
}

impl CrewMember {
    /// The command-line arguments of the worker.
    pub fn to_args(&self) -> Vec<String> {
        vec![format!("--worker={}", self.number), format!("--tally={}", self.tally)]
    }
}

/// Sizes of reads, which increase as in the lockref discussion of 2019.
const SIZES: [usize; 5] = [0, 512, 4 << 10, 16 << 10, 64 << 10];
/// Longest warm-up or measurement, in seconds.
const MAX_SECS: f64 = 3600.0;
const MAX_WORKERS: usize = 4096;
/// Largest mapping, in MiB.
const MAX_MIB: usize = 1 << 20;
/// Largest database, in units of 100 000 rows.
const MAX_SCALE: usize = 10_000;

impl Default for WorkloadOptions {
    fn default() -> Self {
        Self {
            warm_up: Duration::from_millis(100),
            duration: Duration::from_secs(5),
            workers: None,
            mib: 128,
            sizes: SIZES.to_vec(),
            scale: 1,
            // The payload's defaults.
            critical: 50,
            think: 200,
            json: false,
            ports: None,
            command: Vec::new(),
            cpus: thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

impl WorkloadOptions {
    /// The options that a worker needs, as command-line arguments.
    pub fn to_args(&self) -> Vec<String> {
        vec![format!("--mib={}", self.mib)]
    }
}

/// The arguments that another name of this program implies.
fn implied_args(program: &OsString) -> &'static [&'static str] {
    match Path::new(program).file_name().and_then(|name| name.to_str()) {
        Some("lockbench") => &["lock", "--json", "--seconds=2"],
        Some("lockstats") => &["--counters"],
        _ => &[],
    }
}

/// Parses the command line.
pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Action, String> {
    let mut words = words.into_iter();
    let program = words.next().unwrap_or_default();
    let implied = implied_args(&program).iter().map(OsString::from);
    let mut parser = Parser::from_args(implied.chain(words));
    let mut options = WorkloadOptions::default();
    let (mut workload, mut help, mut pass_on, mut counters) = (None, false, false, false);
    let (mut worker, mut tally) = (None, String::new());
    while let Some(arg) = parser.next().map_err(message)? {
        match arg {
            Arg::Short('h') | Arg::Long("help") => help = true,
            Arg::Long(name) if spawn::PASS_ON.strip_prefix("--") == Some(name) => pass_on = true,
            Arg::Long("counters") => counters = true,
            Arg::Long("json") => options.json = true,
            Arg::Long("worker") => {
                worker = Some(number("--worker", &text(&mut parser)?, &(0..=MAX_WORKERS))?);
            }
            Arg::Long("tally") => tally = text(&mut parser)?,
            Arg::Long("ports") => {
                let base = number("--ports", &text(&mut parser)?, &(0..=u16::MAX.into()))?;
                options.ports = u16::try_from(base).ok();
            }
            Arg::Long("warm-up") => {
                options.warm_up = seconds("--warm-up", &text(&mut parser)?, 0.0)?;
            }
            Arg::Long("seconds") => {
                options.duration = seconds("--seconds", &text(&mut parser)?, f64::MIN_POSITIVE)?;
            }
            // lockbench, which runs one worker per CPU, calls it `--cpus`.
            Arg::Long("workers" | "cpus") => {
                options.workers =
                    Some(number("--workers", &text(&mut parser)?, &(1..=MAX_WORKERS))?);
            }
            Arg::Long("mib") => options.mib = number("--mib", &text(&mut parser)?, &(1..=MAX_MIB))?,
            Arg::Long("scale") => {
                options.scale = number("--scale", &text(&mut parser)?, &(1..=MAX_SCALE))?;
            }
            Arg::Long("critical") => {
                options.critical = number("--critical", &text(&mut parser)?, &(0..=u32::MAX))?;
            }
            Arg::Long("think") => {
                options.think = number("--think", &text(&mut parser)?, &(0..=u32::MAX))?;
            }
            Arg::Long("sizes") => {
                let list = text(&mut parser)?;
                let sizes = list.split(',').map(|size| number("--sizes", size, &(0..=1 << 30)));
                options.sizes = sizes.collect::<Result<_, _>>()?;
            }
            Arg::Value(name) if workload.is_none() => {
                let name = name.string().map_err(message)?;
                let entry = workload::ALL.iter().find(|workload| workload.name == name);
                workload = Some(entry.ok_or_else(|| format!("no workload '{name}'"))?);
            }
            Arg::Value(word) if workload.is_some_and(|entry| entry.name == "program") => {
                options.command.push(word);
            }
            other => return Err(other.unexpected().to_string()),
        }
    }
    match (workload, worker) {
        _ if help => Ok(Action::Help),
        _ if pass_on => Ok(Action::PassOn),
        (None, None) if counters => Ok(Action::Counters),
        (Some(workload), Some(number)) => {
            Ok(Action::Worker(workload, options, CrewMember { number, tally }))
        }
        (Some(workload), None) => Ok(Action::Run(workload, options)),
        (None, _) => Err("requires a workload".into()),
    }
}

fn message(error: impl fmt::Display) -> String {
    error.to_string()
}

fn text(parser: &mut Parser) -> Result<String, String> {
    parser.value().and_then(|value| value.string()).map_err(message)
}

/// Parses the value of a numeric option. The error is one line with the option and the value.
fn number<T: FromStr + PartialOrd + Display>(
    option: &str,
    text: &str,
    range: &RangeInclusive<T>,
) -> Result<T, String> {
    text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
        format!("{option} '{text}' is not a number from {} to {}", range.start(), range.end())
    })
}

fn seconds(option: &str, text: &str, min: f64) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (min..=MAX_SECS).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => {
            let from = if min > 0.0 { "above 0 and" } else { "from 0" };
            Err(format!("{option} '{text}' is not a number {from} up to {MAX_SECS}"))
        }
    }
}

pub fn help() -> String {
    let mut text = String::from(
        "usage: bench WORKLOAD [--seconds S] [--warm-up S] [--workers N] [--mib N] [--sizes LIST] \
         [--scale N]\n             [--critical N] [--think N] [--json]\n       \
         bench --counters\n\n",
    );
    for workload in workload::ALL {
        text += &format!("  {:<16} {}\n", workload.name, workload.about);
    }
    text += "\n  --seconds S      length of the measurement, over all parts [default: 5]\n  \
             --warm-up S      length of the warm-up before it [default: 0.1]\n  \
             --workers N      threads or processes [default: see above]\n  \
             --mib N          mmap: size of a mapping [default: 128]\n  \
             --sizes LIST     open-read-close: bytes of each read, comma-separated\n  \
             --scale N        pgbench: size of the database in 100 000 rows (15 MiB) [default: 1]\n  \
             --critical N     lock: increments with the lock held [default: 50]\n  \
             --think N        lock: increments between two locks [default: 200]\n  \
             --json           one line of JSON\n  \
             --counters       the kernel's lock counters, as a line of JSON\n\n\
             lockbench is bench lock --json --seconds 2, lockstats is bench --counters.\n";
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &str) -> Result<Action, String> {
        parse(["bench"].into_iter().chain(words.split_whitespace()).map(OsString::from))
    }

    #[test]
    fn parses_a_workload_and_its_options() {
        let Ok(Action::Run(workload, options)) =
            parsed("mmap --seconds 0.5 --workers=3 --mib 1 --json")
        else {
            panic!("it is a run");
        };
        assert_eq!(workload.name, "mmap");
        assert_eq!((options.duration, options.workers), (Duration::from_millis(500), Some(3)));
        assert!(options.json && options.mib == 1);
        let Ok(Action::Run(_, options)) = parsed("open-read-close --sizes 0,100") else { panic!() };
        assert_eq!(options.sizes, [0, 100]);
        let Ok(Action::Run(_, options)) = parsed("program --json -- x --mib 3") else { panic!() };
        assert_eq!((options.command.len(), options.mib), (3, 128));
        let Ok(Action::Run(_, options)) = parsed("open-read-close --sizes 0,100") else { panic!() };
        assert_eq!(options.sizes, [0, 100]);
    }

    #[test]
    fn program_names_imply_arguments() {
        let parsed = |words: &str| parse(words.split_whitespace().map(OsString::from));
        let Ok(Action::Run(workload, options)) =
            parsed("/bin/lockbench --critical 7 --cpus 3 --warm-up 0")
        else {
            panic!("it is a run");
        };
        assert_eq!((workload.name, options.json, options.critical), ("lock", true, 7));
        assert_eq!((options.workers, options.duration), (Some(3), Duration::from_secs(2)));
        let Ok(Action::Run(_, options)) = parsed("lockbench --seconds=0.25") else { panic!() };
        assert_eq!((options.duration, options.think), (Duration::from_millis(250), 200));
        assert!(matches!(parsed("lockstats"), Ok(Action::Counters)));
        assert!(parsed("lockstats --speed").is_err() && parsed("lockbench mmap").is_err());
    }

    #[test]
    fn errors_name_the_invalid_argument() {
        for (words, part) in [
            ("", "requires a workload"),
            ("mmmap", "no workload 'mmmap'"),
            ("mmap --seconds 0", "--seconds '0' is not a number above 0 and up to 3600"),
            ("mmap --warm-up -1", "--warm-up '-1' is not a number from 0 up to 3600"),
            ("mmap --workers x", "--workers 'x' is not a number from 1 to 4096"),
            ("open-read-close --sizes 1,,2", "--sizes ''"),
            ("pgbench --scale 0", "--scale '0' is not a number from 1 to 10000"),
            ("lock --think -1", "--think '-1'"),
            ("mmap --nothing", "--nothing"),
            ("mmap futex", "futex"),
        ] {
            let error = parsed(words).map(|_| ()).unwrap_err();
            assert!(error.contains(part), "{words}: {error}");
        }
        assert!(matches!(parsed("--help"), Ok(Action::Help)));
    }

    #[test]
    fn worker_arguments_parse_back() {
        let options = WorkloadOptions { mib: 7, ..WorkloadOptions::default() };
        let member = CrewMember { number: 3, tally: "/proc/5/fd/6".into() };
        let args = [member.to_args(), options.to_args()].concat();
        let words = format!("mmap {}", args.join(" "));
        let Ok(Action::Worker(_, received, worker)) = parsed(&words) else { panic!("{words}") };
        assert_eq!((received.mib, worker), (7, member));
    }
}
