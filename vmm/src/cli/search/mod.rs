//! `pvticket search`: time limits, files and output of the simulator's search.

mod cases;
mod replay;

use std::{
    fs,
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::Args;
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};

use super::{Usage, eprint_line, print, results::ResultFile, schedule::write_record};
use base::{
    chain::chain,
    files,
    plural::{count, noun, one_to},
    sanitize::shell_quoted,
    units::ByteSize,
};
use experiment::{
    bar,
    cell::simulated::{SimCellError, machine, machine_text},
};
use os::{
    results,
    signals::{self, Interrupt},
};
use report::{lists::unique, si::si};
use sched::PolicySpec;
use sim::{
    Brake, Machine,
    search::{
        Coverage, Finding, Search, Shrunk, Space, State, Step, default_policies, shortest_slice,
    },
};
use study::{
    guest::systems::{Systems, expand},
    plan::Seconds,
};

/// Search in simulations for schedules and faults that break a lock or starve its waiters (see
/// vmm/sim/docs/SEARCH.md). Exit status: 0 nothing found, 1 otherwise
#[derive(Debug, Args)]
pub struct SearchArgs {
    /// Systems to search in turn, by names of `pvticket locks`, or all [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    locks: Vec<Systems>,

    /// Machine, from the list of `pvticket sim` or a file
    #[arg(long, value_name = "M", default_value = "westmere-80")]
    machine: String,

    /// Maximum CPUs of a simulation; each simulation draws a number
    #[arg(long, value_name = "N", default_value_t = 4)]
    cpus: usize,

    /// Maximum vCPUs of a simulation, 2 to 1024; each simulation draws a number
    #[arg(long, value_name = "N", default_value_t = 100)]
    vcpus: usize,

    /// Policies to draw from, see `pvticket compare --help` [default: all for simulations]
    #[arg(long, value_name = "LIST", value_parser = policies)]
    policy: Vec<PolicyList>,

    /// Stop after this many seconds [default: 60 without --acquisitions]
    #[arg(long, value_name = "S", allow_hyphen_values = true)]
    seconds: Option<Seconds>,

    /// Stop after this many acquisitions in all simulations, including those before --resume; with --cases:
    /// in each case [default: 100000]
    #[arg(long, value_name = "N")]
    acquisitions: Option<u64>,

    /// Seed of all random choices [default: 1, with --cases 14]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Directory for findings, and for the state for --resume
    #[arg(long, value_name = "DIR", default_value = "pvticket-search")]
    out: PathBuf,

    /// Resume the search in --out, with its options
    #[arg(long, conflicts_with_all = ["locks", "machine", "cpus", "vcpus", "policy", "seed"])]
    resume: bool,

    /// Simulate a finding again instead of searching. Exit status: 1 if it still fails
    #[arg(long, value_name = "FILE", conflicts_with_all = ["locks", "machine", "cpus", "vcpus",
          "policy", "seed", "resume", "out", "seconds", "acquisitions"])]
    replay: Option<PathBuf>,

    /// Instead, simulate fixed cases: each lock (--locks) and handoff option, with accesses in any order;
    /// print observed and promised bypasses. Exit status: 1 if a lock is wrong
    #[arg(long, conflicts_with_all = ["cpus", "vcpus", "policy", "resume", "replay", "seconds"])]
    cases: bool,

    /// With --replay: also print the last N events
    #[arg(long, value_name = "N", requires = "replay")]
    trace: Option<usize>,

    /// With --replay: write the schedule's decisions to this file, for --policy replay:FILE with simulated or
    /// real vCPUs, and print the command for real vCPUs
    #[arg(long, value_name = "FILE", requires = "replay")]
    record: Option<PathBuf>,
}

/// File name of the search's state.
const STATE: &str = "state.json";
/// Version of its format.
const FORMAT: u32 = 1;
/// Interval between two writes of the state.
const SAVE_INTERVAL: Duration = Duration::from_secs(5);
/// Limit of a file's size.
const MAX_FILE: ByteSize = ByteSize::mib(16);
/// Default duration of a search.
const DEFAULT_DURATION: Duration = Duration::from_secs(60);

/// The state file of a search.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    format: u32,
    /// The text of the machine file.
    machine: String,
    cpus: usize,
    vcpus: usize,
    #[serde(with = "base::text::list")]
    policies: Vec<PolicySpec>,
    state: State,
}

/// A search to run.
struct Plan {
    saved: Saved,
    machine: Machine,
    space: Space,
}

/// Runs the subcommand and returns the exit status.
pub fn run(args: &SearchArgs) -> anyhow::Result<u8> {
    if let Some(file) = &args.replay {
        return replay::run(file, args.record.as_deref(), args.trace);
    }
    if args.cases {
        return cases::run(args);
    }
    let mut plan = if args.resume { resume(&args.out)? } else { new_plan(args)? };
    for doubt in &plan.machine.doubts {
        eprint_line(format_args!("pvticket: machine {} is DOUBTED: {doubt}", plan.machine.name));
    }
    let interrupt = signals::catch().context("cannot catch signals")?;
    fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot create --out {}", args.out.display()))?;
    search(args, &mut plan, &interrupt)
}

fn new_plan(args: &SearchArgs) -> anyhow::Result<Plan> {
    let state = args.out.join(STATE);
    if files::is_file(&state).with_context(|| format!("cannot access {}", state.display()))? {
        let folder = args.out.display();
        return Err(Usage(format!(
            "--out {folder}: contains a search; add --resume, or choose another directory"
        ))
        .into());
    }
    let usage = |error: SimCellError| Usage(chain(&error));
    let text = machine_text(&args.machine).map_err(usage)?;
    let machine = machine(&args.machine).map_err(usage)?;
    let policies = match args.policy.as_slice() {
        [] => default_policies(),
        lists => unique(lists.iter().flatten().cloned()),
    };
    let (cpus, vcpus) = (args.cpus, args.vcpus);
    let state = State::new(systems(args), args.seed.unwrap_or(1));
    let saved = Saved { format: FORMAT, machine: text, cpus, vcpus, policies, state };
    Ok(Plan { space: space(&machine, &saved)?, machine, saved })
}

/// The systems of `--locks`, or all.
fn systems(args: &SearchArgs) -> Vec<sim::System> {
    match args.locks.as_slice() {
        [] => sim::System::ALL.to_vec(),
        // The simulator has a separately compiled library with the same names.
        list => expand(list).iter().filter_map(|system| system.name().parse().ok()).collect(),
    }
}

fn space(machine: &Machine, saved: &Saved) -> Result<Space, Usage> {
    let Saved { cpus, vcpus, ref policies, .. } = *saved;
    let available = machine.cpus();
    if !(1..=available).contains(&cpus) {
        return Err(Usage(format!("--cpus {cpus}: must be {}", one_to(available, "CPU"))));
    }
    if !(2..=1024).contains(&vcpus) {
        return Err(Usage(format!("--vcpus {vcpus}: must be 2 to 1024")));
    }
    let is_real = |policy: &&PolicySpec| policy.is_host() || policy.replay_file().is_some();
    if let Some(policy) = policies.iter().find(is_real) {
        return Err(Usage(format!("--policy {policy}: not supported in simulations")));
    }
    Ok(Space { cpus, vcpus, policies: policies.clone(), slice: shortest_slice(machine) })
}

/// The policies of one `--policy`.
fn policies(text: &str) -> Result<PolicyList, String> {
    PolicySpec::split_list(text).iter().map(|policy| policy.parse()).collect()
}

type PolicyList = Vec<PolicySpec>;

/// Reads the search in the folder.
fn resume(folder: &Path) -> anyhow::Result<Plan> {
    let file = folder.join(STATE);
    let invalid = |reason: String| Usage(format!("--resume: {}: {reason}", file.display()));
    let text = files::read_text(&file, MAX_FILE).map_err(|error| invalid(error.to_string()))?;
    let saved: Saved = serde_json::from_str(&text).map_err(|error| invalid(error.to_string()))?;
    if saved.format != FORMAT {
        return Err(invalid(format!("format {} is not supported", saved.format)).into());
    }
    let machine = Machine::parse(&saved.machine).map_err(|error| invalid(chain(&error)))?;
    if saved.policies.is_empty() {
        return Err(invalid("no policies".into()).into());
    }
    saved.state.check(&machine).map_err(|error| invalid(chain(&error)))?;
    Ok(Plan { space: space(&machine, &saved)?, machine, saved })
}

fn search(args: &SearchArgs, plan: &mut Plan, interrupt: &Interrupt) -> anyhow::Result<u8> {
    let start = Instant::now();
    let time = match (args.seconds, args.acquisitions) {
        (Some(seconds), _) => seconds.0,
        (None, Some(_)) => Duration::MAX,
        (None, None) => DEFAULT_DURATION,
    };
    let limit = args.acquisitions.unwrap_or(u64::MAX);
    let before = plan.saved.state.operations();
    let signals = interrupt.clone();
    let is_finished = move || signals.raised() || start.elapsed() >= time;
    let brake = Brake::when(is_finished.clone());
    let mut search = Search::new(&plan.space, &plan.machine, plan.saved.state.clone());
    let display = Display::new();
    let mut saved = start;
    while !is_finished() && search.state().operations() < limit {
        let Some(step) = search.step(&brake)? else { break };
        if step.is_new {
            let line = save_finding(args, &plan.saved.machine, &search, &step, interrupt)?;
            display.suspend(|| print(&line));
        }
        if saved.elapsed() >= SAVE_INTERVAL {
            save_state(args, &mut plan.saved, search.state())?;
            saved = Instant::now();
        }
        display.show(search.state());
    }
    display.clear();
    save_state(args, &mut plan.saved, search.state())?;
    let spent = start.elapsed();
    print(&format!("{}{}", Coverage::so_far(), summary(search.state(), before, spent)));
    if interrupt.raised() {
        return Ok(signals::exit_status());
    }
    Ok(u8::from(search.state().num_found() > 0))
}

fn summary(state: &State, before: u64, spent: Duration) -> String {
    let rate = (state.operations() - before) as f64 / spent.as_secs_f64();
    let findings = match state.num_found() {
        0 => "nothing found".to_owned(),
        number => count(number, "finding").to_string(),
    };
    format!(
        "{} in {} of {}, {} a second: {findings}\n",
        count(state.operations(), "acquisition"),
        count(state.trials(), "simulation"),
        count(state.tallies.len(), "system"),
        si(rate),
    )
}

/// Shrinks a finding, saves it, and returns a line about it. The search's time limit does not interrupt this;
/// a signal does.
fn save_finding(
    args: &SearchArgs,
    machine_text: &str,
    search: &Search<'_>,
    step: &Step,
    interrupt: &Interrupt,
) -> anyhow::Result<String> {
    let signals = interrupt.clone();
    let Shrunk { scenario, outcome, .. } =
        search.shrink(step, &Brake::when(move || signals.raised()));
    let Some(finding) = Finding::new(scenario, &outcome, machine_text.to_owned()) else {
        return Ok(String::new());
    };
    let name = format!("{}-{}.json", finding.scenario.system, finding.trouble.kind.name());
    let path = args.out.join(name);
    write_json(&path, &finding)?;
    let Finding { trouble, scenario, .. } = &finding;
    Ok(format!("{scenario}, seed {}: {trouble} {}\n", scenario.seed, saved_note(&path)))
}

/// A phrase with the command that replays a finding.
fn saved_note(path: &Path) -> String {
    let file = shell_quoted(&path.display().to_string());
    format!("(saved; replay: pvticket search --replay {file})")
}

fn save_state(args: &SearchArgs, saved: &mut Saved, state: &State) -> anyhow::Result<()> {
    saved.state = state.clone();
    write_json(&args.out.join(STATE), saved)
}

fn write_json(path: &Path, value: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_vec_pretty(value).context("cannot write JSON")?;
    results::write(path, &text).with_context(|| format!("cannot write {}", path.display()))
}

/// The progress on stderr, if it is a terminal.
struct Display(Option<ProgressBar>);

impl Display {
    fn new() -> Self {
        Self(io::stderr().is_terminal().then(|| bar::on_stderr(None, "{elapsed} {msg}")))
    }

    fn show(&self, state: &State) {
        if let Some(bar) = &self.0 {
            let (acquisitions, trials) = (state.operations(), state.trials());
            let findings = state.num_found();
            bar.set_message(format!(
                "{} {}, {}, {findings} found",
                si(acquisitions as f64),
                noun(acquisitions, "acquisition"),
                count(trials, "simulation")
            ));
            bar.tick();
        }
    }

    /// Writes above the progress bar.
    fn suspend(&self, write: impl FnOnce()) {
        match &self.0 {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    fn clear(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
