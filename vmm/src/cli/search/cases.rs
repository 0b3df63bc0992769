//! `pvticket search --cases`: the fixed cases, on one thread per CPU, 16 at most.

use std::{
    collections::BTreeMap,
    fs,
    num::NonZero,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use anyhow::Context;

use super::{
    SearchArgs, SimCellError, Usage, is_saved, machine, machine_text, print, systems, write_json,
};
use base::chain::chain;
use experiment::doctor::topology::MOST_BY_DEFAULT;
use os::signals;
use sim::{
    Brake, Machine, SimSpecError,
    search::{Case, Finding, SEED, Scenario, TrialOutcome, cases},
};

/// Default acquisitions of each case.
const USUAL: u64 = 100_000;

/// Runs the cases, prints a line for each in order, and returns the exit status.
pub(super) fn run(args: &SearchArgs) -> anyhow::Result<u8> {
    let usage = |error: SimCellError| Usage(chain(&error));
    let text = machine_text(&args.machine).map_err(usage)?;
    let machine = machine(&args.machine).map_err(usage)?;
    let (acquisitions, seed) = (args.acquisitions.unwrap_or(USUAL), args.seed.unwrap_or(SEED));
    let systems = systems(args);
    let mut chosen = cases(acquisitions);
    chosen.retain(|case| systems.contains(&case.system));
    if chosen.is_empty() {
        let what = "--cases: counters are not supported; select --locks (see pvticket locks)";
        return Err(Usage(what.into()).into());
    }
    chosen.iter_mut().for_each(|case| case.seed = seed);
    if let Some(first) = chosen.iter().find_map(|case| case.check(&machine).err()) {
        return Err(Usage(format!("--cases: {}", chain(&first))).into());
    }
    let interrupt = signals::catch().context("cannot catch signals")?;
    let signals = interrupt.clone();
    let brake = Brake::when(move || signals.raised());
    let mut is_kept = true;
    each(&chosen, &machine, &brake, |ix, outcome| {
        let Some(outcome) = outcome? else { return Ok(()) };
        let (scenario, number) = (&chosen[ix], ix + 1);
        let mut line = Case { scenario, outcome: &outcome }.to_string();
        if let Some(finding) = Finding::new(scenario.clone(), &outcome, text.clone()) {
            is_kept = false;
            fs::create_dir_all(&args.out)
                .with_context(|| format!("cannot create --out {}", args.out.display()))?;
            let path = args.out.join(format!("case-{number}.json"));
            write_json(&path, &finding)?;
            line += &format!(" {}", is_saved(&path));
        }
        print(&(line + "\n"));
        anyhow::Ok(())
    })?;
    Ok(if interrupt.raised() { signals::exit_status() } else { u8::from(!is_kept) })
}

/// A case's outcome; None if it was interrupted.
type Ran = Result<Option<TrialOutcome>, SimSpecError>;

/// Runs all `cases`, one per CPU at a time, and passes each outcome to `then`, in order.
fn each(
    cases: &[Scenario],
    machine: &Machine,
    brake: &Brake,
    mut then: impl FnMut(usize, Ran) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    let jobs = thread::available_parallelism().map_or(1, NonZero::get).min(MOST_BY_DEFAULT);
    thread::scope(|scope| {
        for _ in 0..jobs {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                loop {
                    let ix = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(ix) else { return };
                    if sender.send((ix, case.run_whole(machine, brake))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut early = BTreeMap::new();
        let mut due = 0;
        for (ix, outcome) in receiver {
            early.insert(ix, outcome);
            while let Some(outcome) = early.remove(&due) {
                then(due, outcome).inspect_err(|_| next.store(cases.len(), Ordering::Relaxed))?;
                due += 1;
            }
        }
        Ok(())
    })
}
