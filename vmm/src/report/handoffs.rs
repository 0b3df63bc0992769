//! The second table of `bench hypercalls`: what cheaper handoffs are worth.

use std::fmt::Write;

use hypercalls::payload::handoff::FUSE;
use serde::Serialize;

use super::si::{percent, ratio, si};
use crate::{
    guest::handoff::HandoffSpec,
    lab::{
        LevelReport, Plan,
        analysis::Row,
        handoffs::Limit,
        stats::{Estimate, Interval},
    },
    vm::PvBackend,
};

/// One setting at one level.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    vcpus: u32,
    lock: &'static str,
    handoff: String,
    runs: usize,
    /// Acquisitions a second.
    median: f64,
    interval: Option<Interval>,
    halts: f64,
    jain: Option<f64>,
    /// Over the native lock, by neighbouring runs.
    over_native: Option<Estimate>,
    /// Over the PV lock that does nothing beside halting and kicking.
    over_plain: Option<Estimate>,
    /// Of what the slots have time for if every acquisition is handed over.
    of_limit: Option<f64>,
}

/// The lines of all levels.
pub(super) fn lines(reports: &[LevelReport], plan: &Plan, limit: Limit) -> Vec<Line> {
    let of = |report: &LevelReport| -> Vec<Line> {
        report.rows.iter().map(|row| line(report, row, plan, limit)).collect()
    };
    reports.iter().flat_map(of).collect()
}

fn line(report: &LevelReport, row: &Row, plan: &Plan, limit: Limit) -> Line {
    let over = |backend: PvBackend| {
        let contrast = report.contrasts.iter().find(|contrast| {
            contrast.contender == row.contender && contrast.against.backend == backend
        });
        contrast.and_then(|contrast| contrast.paired)
    };
    let handoff = row.contender.handoff;
    let is_pv = row.contender.backend != PvBackend::Off;
    let most = limit.handoffs(plan.slots, handoff.bits & FUSE != 0);
    Line {
        vcpus: report.vcpus.get(),
        lock: if is_pv { "pv" } else { "native" },
        handoff: if is_pv { handoff.to_string() } else { String::new() },
        runs: row.rate.count,
        median: row.rate.median.value,
        interval: row.rate.median.interval,
        halts: row.halts,
        jain: row.fairness.map(|fairness| fairness.jain),
        over_native: over(PvBackend::Off),
        over_plain: (handoff != HandoffSpec::NONE).then(|| over(PvBackend::Vmm)).flatten(),
        of_limit: is_pv.then(|| row.rate.median.value / most),
    }
}

/// All of them as text.
pub(super) fn text(lines: &[Line], plan: &Plan, limit: Limit) -> String {
    let mut text = format!(
        "\nWhat cheaper handoffs are worth: payload under rr, {} slots, turns of {}, {} s a run\n\
         limit: {}/s if every acquisition is a kick, a halt and a switch ({:.1} us an exit, {:.1} \
         us a switch), {}/s with one exit for both\n  \
         {:<22}{:>4}{:>9}{:^20}{:>9}{:>6} {:^26}{:^26}{:>9}\n",
        plan.slots,
        plan.slice,
        plan.duration.as_secs_f64(),
        si(limit.handoffs(plan.slots, false)),
        limit.exit / 1e3,
        limit.switch / 1e3,
        si(limit.handoffs(plan.slots, true)),
        "lock",
        "N",
        "Median",
        "95 % interval",
        "halts/s",
        "Jain",
        "over native",
        "over plain pv",
        "of limit",
    );
    let mut level = 0;
    for line in lines {
        if line.vcpus != level {
            level = line.vcpus;
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{level} vCPUs");
        }
        let _ = writeln!(text, "{}", line.text());
    }
    text
}

impl Line {
    fn text(&self) -> String {
        let interval = self
            .interval
            .map_or_else(|| "-".into(), |its| format!("{} .. {}", si(its.low), si(its.high)));
        let jain = self.jain.map_or_else(|| "-".into(), |jain| format!("{jain:.2}"));
        format!(
            "  {:<22}{:>4}{:>9}{interval:^20}{:>9}{jain:>6} {:^26}{:^26}{:>9}",
            format!("{} {}", self.lock, self.handoff),
            self.runs,
            si(self.median),
            si(self.halts),
            estimate(self.over_native),
            estimate(self.over_plain),
            self.of_limit.map_or_else(|| "-".into(), share),
        )
    }
}

/// More than all of it, where most acquisitions need no handoff, is said as a multiple.
fn share(of: f64) -> String {
    if of > 1.0 { ratio(of) } else { percent(of) }
}

fn estimate(estimate: Option<Estimate>) -> String {
    let Some(Estimate { value, interval }) = estimate else { return "-".into() };
    match interval {
        Some(its) => format!("{} ({}..{})", ratio(value), ratio(its.low), ratio(its.high)),
        None => ratio(value),
    }
}
