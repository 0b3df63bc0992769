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
    SearchArgs, SimCellError, Usage, machine, machine_text, print, saved_note, systems, write_json,
};
use base::chain::chain;
use experiment::doctor::topology::MAX_DEFAULT_CPUS;
use os::signals;
use sim::{
    Brake, Machine, SimSpecError,
    search::{Case, Finding, SEED, Scenario, TrialOutcome, cases},
};

/// Default acquisitions of each case.
const DEFAULT: u64 = 100_000;

/// Runs the cases, prints a line for each in order, and returns the exit status.
pub(super) fn run(args: &SearchArgs) -> anyhow::Result<u8> {
    let usage = |error: SimCellError| Usage(chain(&error));
    let text = machine_text(&args.machine).map_err(usage)?;
    let machine = machine(&args.machine).map_err(usage)?;
    let (acquisitions, seed) = (args.acquisitions.unwrap_or(DEFAULT), args.seed.unwrap_or(SEED));
    let systems = systems(args);
    let mut selected = cases(acquisitions);
    selected.retain(|case| systems.contains(&case.system));
    if selected.is_empty() {
        let reason = "--cases: counters are not supported; select --locks (see pvticket locks)";
        return Err(Usage(reason.into()).into());
    }
    selected.iter_mut().for_each(|case| case.seed = seed);
    if let Some(first) = selected.iter().find_map(|case| case.check(&machine).err()) {
        return Err(Usage(format!("--cases: {}", chain(&first))).into());
    }
    let interrupt = signals::catch().context("cannot catch signals")?;
    let signals = interrupt.clone();
    let brake = Brake::when(move || signals.raised());
    let mut all_passed = true;
    run_all(&selected, &machine, &brake, |ix, outcome| {
        let Some(outcome) = outcome? else { return Ok(()) };
        let (scenario, number) = (&selected[ix], ix + 1);
        let mut line = Case { scenario, outcome: &outcome }.to_string();
        if let Some(finding) = Finding::new(scenario.clone(), &outcome, text.clone()) {
            all_passed = false;
            fs::create_dir_all(&args.out)
                .with_context(|| format!("cannot create --out {}", args.out.display()))?;
            let path = args.out.join(format!("case-{number}.json"));
            write_json(&path, &finding)?;
            line += &format!(" {}", saved_note(&path));
        }
        print(&(line + "\n"));
        anyhow::Ok(())
    })?;
    Ok(if interrupt.raised() { signals::exit_status() } else { u8::from(!all_passed) })
}

/// A case's outcome; `None` if it was interrupted.
type CaseResult = Result<Option<TrialOutcome>, SimSpecError>;

/// Runs all `cases`, one per CPU at a time, and passes each outcome to `show`, in order.
fn run_all(
    cases: &[Scenario],
    machine: &Machine,
    brake: &Brake,
    mut show: impl FnMut(usize, CaseResult) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    let jobs = thread::available_parallelism().map_or(1, NonZero::get).min(MAX_DEFAULT_CPUS);
    thread::scope(|scope| {
        for _ in 0..jobs {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                loop {
                    let ix = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(ix) else { return };
                    if sender.send((ix, case.run_all(machine, brake))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut pending = BTreeMap::new();
        let mut first = 0;
        for (ix, outcome) in receiver {
            pending.insert(ix, outcome);
            while let Some(outcome) = pending.remove(&first) {
                show(first, outcome).inspect_err(|_| next.store(cases.len(), Ordering::Relaxed))?;
                first += 1;
            }
        }
        Ok(())
    })
}
