//! What figures show, in a line each.

use super::{
    super::{
        figures::{names, scale::time},
        si::{percent, ratio, si},
    },
    words::{at, clearest, first_large, operations},
};
use crate::lab::{
    latencies::Percentiles,
    point::Point,
    study::{
        Axis, Comparison, PointStudy, Study, Timed,
        compare::{Outcome, is_of_a_series},
        point::Preempted,
    },
};

/// Of a point's facet, as the end of a name.
fn under(study: &Study, point: &Point) -> String {
    let facet = names::facet(study, point);
    if facet.is_empty() { facet } else { format!(" ({facet})") }
}

/// What the figure of the throughput shows: the deepest fall.
pub fn throughput(study: &Study) -> String {
    let operations = operations(study);
    let median = |its: &PointStudy| its.rate.map(|rate| rate.median.value);
    let mut deepest: Option<(f64, &PointStudy, &PointStudy)> = None;
    for from in &study.points {
        let below = |to: &&PointStudy| {
            to.point.overcommit() > from.point.overcommit()
                && is_of_a_series(&to.point, &from.point)
        };
        for to in study.points.iter().filter(below) {
            let (Some(a), Some(b)) = (median(from), median(to)) else { continue };
            let fall = a / b.max(f64::MIN_POSITIVE);
            if deepest.is_none_or(|(deepest, ..)| fall > deepest) {
                deepest = Some((fall, from, to));
            }
        }
    }
    match deepest {
        Some((fall, from, to)) if fall >= 2.0 => format!(
            "{}{} falls from {} {operations}/s at {} to {} at {}",
            names::series(&to.point),
            under(study, &to.point),
            si(median(from).unwrap_or(0.0)),
            names::overcommit(&from.point),
            si(median(to).unwrap_or(0.0)),
            names::overcommit(&to.point),
        ),
        Some((fall, ..)) => {
            format!(
                "No lock loses more than {} of its throughput by overcommit",
                percent((1.0 - 1.0 / fall).max(0.0))
            )
        }
        None => format!("Throughput in {operations} a second"),
    }
}

/// What a figure of ratios shows: the clearest of them.
pub fn ratios(study: &Study, axis: Axis) -> String {
    let all = study.comparisons.iter().filter(|its| its.axis == axis);
    let clear: Vec<&Comparison> = all
        .filter(|its| matches!(its.outcome(&study.points), Outcome::More | Outcome::Less))
        .filter(|its| its.ratio.is_some())
        .collect();
    let Some(found) = clearest(&clear) else {
        return format!("No difference by {} is significant", axis.name());
    };
    let (of, against) = names::sides(study, found);
    let around = names::surroundings(study, found);
    let around = if around.is_empty() { around } else { format!(" ({around})") };
    let times = ratio(found.ratio.map_or(1.0, |ratio| ratio.value));
    format!("{of} gives {times} of {against} at {}{around}", at(study, found))
}

fn most(study: &Study, of: impl Fn(&PointStudy) -> Option<f64>) -> Option<(&PointStudy, f64)> {
    let all = study.points.iter().filter_map(|point| Some((point, of(point)?)));
    all.max_by(|a, b| a.1.total_cmp(&b.1))
}

/// What the figure of the wasted time shows.
pub fn wasted(study: &Study) -> String {
    let share = |point: &PointStudy| point.preempted.map(|its| its.wasted_share);
    match most(study, share) {
        Some((point, share)) if share > 0.0 => format!(
            "{}{} at {} spins {} of the CPUs' time in vain",
            names::series(&point.point),
            under(study, &point.point),
            names::overcommit(&point.point),
            percent(share)
        ),
        _ => "No time is spun in vain".to_owned(),
    }
}

/// What the figure of the preemptions shows.
pub fn preempted(study: &Study) -> String {
    let of =
        |pick: fn(&Preempted) -> f64| most(study, |point| point.preempted.map(|its| pick(&its)));
    let (lhp, lwp) = (of(|its| its.lhp), of(|its| its.lwp));
    let worst = [(lhp, "a lock's holder"), (lwp, "the next in line")]
        .into_iter()
        .filter_map(|(found, who)| found.map(|(point, count)| (point, count, who)))
        .max_by(|a, b| a.1.total_cmp(&b.1));
    match worst {
        Some((point, count, who)) if count > 0.0 => format!(
            "{} is preempted up to {} times a second: {}{} at {}",
            first_large(who),
            si(count),
            names::series(&point.point),
            under(study, &point.point),
            names::overcommit(&point.point)
        ),
        _ => "No preemption hits a holder or the next in line".to_owned(),
    }
}

/// A kind of times: its name in a page, its axis, its name in a sentence.
pub const fn timed(timed: Timed) -> (&'static str, &'static str, &'static str) {
    match timed {
        Timed::Operation => ("waits", "time of a wait or an operation (log scale)", "An operation"),
        Timed::ReleaseToKick => {
            ("release-to-kick", "release to kick (log scale)", "Handoff, release to kick")
        }
        Timed::KickToGrant => {
            ("kick-to-grant", "kick to grant of a CPU (log scale)", "Handoff, kick to CPU")
        }
        Timed::GrantToGuest => (
            "grant-to-guest",
            "grant of a CPU to guest's code (log scale)",
            "Handoff, CPU to guest's code",
        ),
        Timed::Lateness => {
            ("lateness", "end of a turn, actual less asked (log scale)", "Late end of a turn")
        }
        Timed::Handover => ("handover", "grant to entry (log scale)", "Switch of vCPUs"),
    }
}

/// What a figure of times shows.
pub fn times(study: &Study, kind: Timed) -> String {
    let of = |pick: fn(&Percentiles) -> u64| {
        let all = study.points.iter().filter_map(move |point| point.timed(kind));
        all.map(move |times| pick(&times.percentiles) as f64)
    };
    let low = of(|its| its.p50.0).fold(f64::INFINITY, f64::min);
    let high = of(|its| its.p50.0).fold(0.0, f64::max);
    let worst = of(|its| its.p99.0).fold(0.0, f64::max);
    let name = match kind {
        Timed::Operation if operations(study) == "acquisitions" => "Waiting for the lock",
        _ => timed(kind).2,
    };
    let (low, high) = (time(low), time(high));
    let median = if low == high { low } else { format!("{low} to {high}") };
    format!("{name}: median {median}, p99 up to {}", time(worst))
}
