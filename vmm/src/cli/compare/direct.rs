//! A comparison on this host's KVM.

use anyhow::{Context, bail};

use super::{Guest, plan::Resolved};
use crate::{
    cli::{fault::show, print, results::ResultFile, schedule::write_record, trace},
    lab::{CellError, Comparison, Interrupt, LevelReport, Plan, compare::compare, host::HostFacts},
    report::{
        columns::Columns,
        json,
        progress::Progress,
        table::{self, Heading},
    },
    signals,
};

/// Carries it out; gives the exit status.
pub(super) fn run(resolved: &Resolved) -> anyhow::Result<u8> {
    let plan = resolved.plan()?;
    let json = ResultFile::named("--json", resolved.args.json.as_deref())?;
    let record = ResultFile::named("--record", resolved.args.schedule.record.as_deref())?;
    let trace = ResultFile::named(trace::OPTION, resolved.args.trace.as_deref())?;
    let interrupt = Interrupt::on_signals().context("cannot catch Ctrl-C")?;
    let facts = HostFacts::gather(&plan.cpus);
    let comparison = {
        let mut progress = Progress::new(&plan);
        progress.print(&table::heading(&heading(resolved, &plan, &facts), Columns::of(&plan)));
        compare(&plan, resolved.workload.cell().as_ref(), &interrupt, &mut progress)
    };
    let comparison = comparison.inspect_err(|error| {
        if let CellError::Stuck(_, trace) = &error.source {
            show(trace);
        }
    })?;
    let levels = LevelReport::all(&plan, &comparison.levels);
    print(&table::conclusions(&levels));
    if let Some(file) = json {
        let text = json::render(&facts, &resolved.workload, &plan, &comparison)?;
        file.write_text(&text)?;
    }
    if let Some((file, last)) = record.zip(comparison.last_schedule()) {
        write_record(&file, &last.recording)?;
    }
    // An interrupted comparison may not have come to it.
    let mut timelines = comparison.timelines().peekable();
    if let Some((file, _)) = trace.zip(timelines.peek()) {
        file.write(|out| trace::write(out, timelines))?;
    }
    finish(&levels, &comparison)
}

/// What a Linux guest's telemetry leaves out.
const OF_SPINLOCKS: &str = "\nnote    LHP/s, LWP/s and wasted are lower bounds, of spinlocks: holders of \
    reader-writer locks, mutexes and RCU are not counted";

fn heading(resolved: &Resolved, plan: &Plan, facts: &HostFacts) -> Heading {
    let work = resolved.workload.to_string();
    let warm_up = match plan.warm_up.is_zero() {
        true => String::new(),
        false => format!(" (after {} s of warm-up)", plan.warm_up.as_secs_f64()),
    };
    let turns = match Columns::of(plan).are_scheduled() {
        false => String::new(),
        true => format!("; turns of {}, seed {}", plan.slice, plan.seed),
    };
    let bound = match (&resolved.args.guest, Columns::of(plan).are_scheduled()) {
        (Guest::Linux, true) => OF_SPINLOCKS,
        _ => "",
    };
    let method = format!(
        "{} runs of {} s each{warm_up}, alternating, each on fresh machines; CPU{} {}{turns}{bound}",
        plan.runs,
        plan.duration.as_secs_f64(),
        if plan.cpus.cpus().len() == 1 { "" } else { "s" },
        plan.cpus
    );
    let work = match plan.faults {
        Some(faults) => format!("{work}; faults {faults}"),
        None => work,
    };
    Heading { work, method, host: facts.clone() }
}

fn finish(levels: &[LevelReport], comparison: &Comparison) -> anyhow::Result<u8> {
    let violations: u64 = levels.iter().map(LevelReport::violations).sum();
    if violations > 0 {
        bail!("mutual exclusion failed {violations} times: this is a bug");
    }
    let disorder: u64 = levels.iter().map(LevelReport::disorder).sum();
    if disorder > 0 {
        bail!("{disorder} tickets were served out of order: this is a bug");
    }
    Ok(if comparison.interrupted { signals::exit_status() } else { 0 })
}
