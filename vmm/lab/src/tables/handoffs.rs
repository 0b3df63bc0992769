//! The second table of `bench hypercalls`: what cheaper handoffs gain.

use std::fmt::Write;

use hypercalls::payload::handoff::FUSE;
use serde::Serialize;

use base::{backend::PvBackend, plural::count};
use report::{
    compare,
    si::{percent, ratio, si},
};
use study::{
    findings::{Axis, PointStudy, Study},
    stats::{Estimate, Interval},
};

/// Lower bound of what a handoff through the VMM costs a slot, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit {
    /// An exit with the following entry.
    pub exit: f64,
    /// A switch from one thread to another on the same CPU.
    pub switch: f64,
}

impl Limit {
    /// The most handoffs per second on this many slots: each takes a kick, a halt (in one exit, if
    /// `fused`) and a switch.
    pub fn handoffs(self, slots: usize, fused: bool) -> f64 {
        let exits = if fused { 1.0 } else { 2.0 };
        slots as f64 * 1e9 / (exits * self.exit + self.switch)
    }
}

/// One setting at one level.
#[derive(Debug, Serialize)]
pub(super) struct HandoffLine {
    vcpus: u32,
    lock: &'static str,
    handoff: String,
    runs: usize,
    /// Acquisitions per second.
    median: f64,
    interval: Option<Interval>,
    halts: f64,
    jain: Option<f64>,
    /// Relative to the native lock, from neighbouring runs.
    over_native: Option<Estimate>,
    /// Relative to the PV lock that only halts and kicks.
    over_plain: Option<Estimate>,
    /// Relative to the rate that the slots allow if every acquisition is a handoff.
    of_limit: Option<f64>,
}

/// A line for each point.
pub(super) fn lines(study: &Study, limit: Limit) -> Vec<HandoffLine> {
    let mut points: Vec<usize> = (0..study.points.len()).collect();
    points.sort_by_key(|ix| study.points[*ix].point.vcpus);
    points.into_iter().filter_map(|ix| line(study, ix, limit)).collect()
}

fn line(study: &Study, ix: usize, limit: Limit) -> Option<HandoffLine> {
    let PointStudy { point, rate, fairness, halts, .. } = &study.points[ix];
    let over = |axis: Axis| {
        let mut all = study.comparisons.iter();
        all.find(|comparison| comparison.subject == ix && comparison.axis == axis)?.paired
    };
    let rate = (*rate)?;
    let is_pv = point.backend != PvBackend::Off;
    let most = limit.handoffs(point.slots as usize, point.handoff.bits & FUSE != 0);
    Some(HandoffLine {
        vcpus: point.vcpus.get(),
        lock: point.lock.name(),
        handoff: if is_pv { point.handoff.to_string() } else { String::new() },
        runs: rate.count,
        median: rate.median.value,
        interval: rate.median.interval,
        halts: *halts,
        jain: fairness.map(|fairness| fairness.jain),
        over_native: over(Axis::Lock),
        over_plain: over(Axis::Handoff),
        of_limit: is_pv.then(|| rate.median.value / most).filter(|share| share.is_finite()),
    })
}

/// All lines as text.
pub(super) fn text(lines: &[HandoffLine], study: &Study, limit: Limit) -> String {
    let Some(PointStudy { point, .. }) = study.points.first() else { return String::new() };
    let slots = point.slots as usize;
    let notes = compare::notes_of(study);
    let mut text = format!(
        "\nWhat cheaper handoffs gain: payload under rr, {}, turns of {}, {} s a run\n\
         limit: {}/s if every acquisition is a kick, a halt and a switch ({:.1} us an exit, {:.1} \
         us a switch), {}/s with one exit for both\n{notes}  \
         {:<22}{:>4}{:>9}{:^20}{:>9}{:>6} {:^26}{:^26}{:>9}\n",
        count(slots, "slot"),
        point.slice,
        point.duration.as_secs_f64(),
        si(limit.handoffs(slots, false)),
        limit.exit / 1e3,
        limit.switch / 1e3,
        si(limit.handoffs(slots, true)),
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
            let _ = writeln!(text, "{}", count(level, "vCPU"));
        }
        let _ = writeln!(text, "{}", line.text());
    }
    text
}

impl HandoffLine {
    fn text(&self) -> String {
        let interval = self.interval.map_or_else(
            || "-".into(),
            |interval| format!("{} .. {}", si(interval.low), si(interval.high)),
        );
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

/// A share in per cent; above 100 %, where most acquisitions need no handoff, a multiple.
fn share(fraction: f64) -> String {
    if fraction > 1.0 { ratio(fraction) } else { percent(fraction) }
}

fn estimate(estimate: Option<Estimate>) -> String {
    let Some(Estimate { value, interval }) = estimate else { return "-".into() };
    match interval {
        Some(interval) => {
            format!("{} ({}..{})", ratio(value), ratio(interval.low), ratio(interval.high))
        }
        None => ratio(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_what_slots_have_time_for() {
        let limit = Limit { exit: 30_000.0, switch: 2_000.0 };
        assert_eq!(limit.handoffs(2, true), 62_500.0);
        assert!(limit.handoffs(2, false) < limit.handoffs(2, true));
    }
}
