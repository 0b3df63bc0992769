//! Titles of figures: their results in one line.

use super::{
    super::{
        figures::scale::{AxisUnit, time},
        names,
        si::{percent, si},
    },
    sentences::{bracketed, capitalize, claim, clearest, operations, ranks_remark},
};
use study::{
    findings::{Axis, Comparison, PointStudy, Study, Timed, compare::Outcome, point::Preempted},
    latencies::Percentiles,
    point::Point,
};

/// A point's facet in parentheses, to end a title; empty without facets.
pub(super) fn under(study: &Study, point: &Point) -> String {
    bracketed(names::facet(study, point))
}

/// A point's name with its facet.
fn point_name(study: &Study, point: &PointStudy) -> String {
    let name = names::name_in_facet(study, &point.point);
    format!("{name}{}", under(study, &point.point))
}

/// The label of the charts' x axis, for charts whose x values are numbers.
pub fn x(study: &Study) -> String {
    if study.layout.is_ratio {
        "vCPUs per CPU (overcommit ratio, log scale)".to_owned()
    } else {
        format!("{} (log scale)", study.layout.x.title())
    }
}

/// Format of the values on the axis of the charts.
pub const fn x_unit(study: &Study) -> AxisUnit {
    match study.layout.x {
        _ if study.layout.is_ratio => AxisUnit::Ratio,
        axis if axis.is_time() => AxisUnit::Time,
        _ => AxisUnit::Count,
    }
}

fn median(point: &PointStudy) -> Option<f64> {
    Some(point.rate?.median.value)
}

/// The two points of a series with the greatest ratio of medians, and that ratio: a fall from a lower to a
/// higher overcommit ratio or, on any other x axis, the best and the worst point. Pairs with overlapping
/// intervals of the medians do not count.
pub(super) fn widest(study: &Study) -> Option<(f64, &PointStudy, &PointStudy)> {
    let mut widest: Option<(f64, &PointStudy, &PointStudy)> = None;
    for from in &study.points {
        let is_after = |to: &&PointStudy| {
            let is_deeper = to.point.overcommit() > from.point.overcommit();
            (is_deeper || !study.layout.is_ratio)
                && to.point != from.point
                && to.point.lock.family() == from.point.lock.family()
                && study.layout.is_along_x(&to.point, &from.point)
        };
        for to in study.points.iter().filter(is_after) {
            let (Some(a), Some(b)) = (median(from), median(to)) else { continue };
            let within = [from, to].map(|point| point.rate.and_then(|rate| rate.median.interval));
            if let [Some(high), Some(low)] = within
                && high.low <= low.high
            {
                continue;
            }
            let fall = a / b.max(f64::MIN_POSITIVE);
            if widest.is_none_or(|(widest, ..)| fall > widest) {
                widest = Some((fall, from, to));
            }
        }
    }
    widest
}

/// Title of the throughput figure: the deepest fall or, on x axes other than overcommit, the widest gap.
pub fn throughput(study: &Study) -> String {
    let operations = operations(study);
    let rate = |point: &PointStudy| si(median(point).unwrap_or(0.0));
    match widest(study) {
        Some((fall, from, to)) if fall >= 2.0 => {
            let at = |point: &PointStudy| names::x_position(study, &[&point.point]);
            let (high, low) = (rate(from), rate(to));
            let series = names::series(study, &to.point);
            let subject = format!("{series}{}", under(study, &to.point));
            if study.layout.is_ratio {
                format!(
                    "{subject} falls from {high} {operations}/s {} to {low} {}",
                    at(from),
                    at(to)
                )
            } else {
                let subject = if subject.is_empty() {
                    subject
                } else {
                    format!("{}: ", subject.trim_start())
                };
                format!("{subject}{high} {operations}/s {}, {low} {}", at(from), at(to))
            }
        }
        Some((fall, ..)) if study.layout.is_ratio => format!(
            "No lock loses more than {} of its throughput to overcommit",
            percent((1.0 - 1.0 / fall).max(0.0))
        ),
        _ => format!("Throughput in {operations} a second"),
    }
}

/// Title of a figure of ratios along `axis`: the clearest difference.
pub fn ratios(study: &Study, axis: Axis) -> String {
    let candidates = study.comparisons.iter().filter(|comparison| comparison.axis == axis);
    let clear: Vec<&Comparison> = candidates
        .filter(|comparison| matches!(comparison.outcome(), Outcome::More | Outcome::Less))
        .collect();
    let Some(best) = clearest(&clear) else {
        return format!("No difference by {} is significant", axis.name());
    };
    claim(study, best) + ranks_remark(best.is_contrary())
}

fn max(study: &Study, pick: impl Fn(&PointStudy) -> Option<f64>) -> Option<(&PointStudy, f64)> {
    let candidates = study.points.iter().filter_map(|point| Some((point, pick(point)?)));
    candidates.max_by(|a, b| a.1.total_cmp(&b.1))
}

/// Title of the figure of wasted time.
pub fn wasted(study: &Study) -> String {
    match max(study, PointStudy::wasted_share) {
        Some((point, share)) if share > 0.0 => format!(
            "{} wastes {} of the CPUs' time by spinning",
            point_name(study, point),
            percent(share)
        ),
        _ => "No time is wasted by spinning".to_owned(),
    }
}

/// Preemptions per second of one kind of vCPU.
type PreemptionRate = fn(&Preempted) -> f64;

/// The points with the highest rates of preempted holders and waiters, with the rates and the victims.
/// Waiters further back count, too: such a waiter may become the next in line while it is off its CPU.
pub(super) fn hits(study: &Study) -> impl Iterator<Item = (&PointStudy, f64, &'static str)> {
    let kinds: [(PreemptionRate, &str); 3] = [
        (|preempted| preempted.in_lock.lhp, "a lock's holder"),
        (|preempted| preempted.in_lock.lwp, "the next in line"),
        (|preempted| preempted.in_lock.queued, "a waiter further back"),
    ];
    kinds.into_iter().filter_map(|(rate, victim)| {
        let (point, count) = max(study, |point| point.preempted.as_ref().map(rate))?;
        (count > 0.0).then_some((point, count, victim))
    })
}

/// `the next in line is preempted up to 58 times a second: ticket at 2x`.
pub(super) fn hit(study: &Study, (point, count, victim): (&PointStudy, f64, &str)) -> String {
    let place = point_name(study, point);
    let is_observed = point.preempted.is_some_and(|preempted| preempted.in_lock.is_observed);
    let source = if is_observed { " (observed)" } else { "" };
    format!("{victim} is preempted up to {} times a second{source}: {place}", si(count))
}

/// Title of the figure of preemptions.
pub fn preempted(study: &Study) -> String {
    match hits(study).max_by(|a, b| a.1.total_cmp(&b.1)) {
        Some(worst) => capitalize(&hit(study, worst)),
        None => "No preemption hits a holder or a waiter".to_owned(),
    }
}

/// Anchor in a page, axis label and name in a sentence of a kind of interval.
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
            "grant of a CPU to guest code (log scale)",
            "Handoff, CPU to guest code",
        ),
        Timed::Lateness => ("lateness", "lateness (log scale)", "Late end of a slice"),
        Timed::Handover => ("handover", "grant to entry (log scale)", "vCPU switch"),
        Timed::Extension => {
            ("extension", "end of a slice to its holder's release (log scale)", "Slice extension")
        }
    }
}

/// Title of a figure of times.
pub fn times(study: &Study, kind: Timed) -> String {
    let times = |pick: fn(&Percentiles) -> u64| {
        let candidates = study.points.iter().filter_map(move |point| point.times_of(kind));
        candidates.map(move |times| pick(&times.percentiles) as f64)
    };
    let low = times(|percentiles| percentiles.p50.0).fold(f64::INFINITY, f64::min);
    let high = times(|percentiles| percentiles.p50.0).fold(0.0, f64::max);
    let worst = times(|percentiles| percentiles.p99.0).fold(0.0, f64::max);
    let name = match kind {
        Timed::Operation if operations(study) == "acquisitions" => "Waiting for the lock",
        _ => timed(kind).2,
    };
    let (low, high) = (time(low), time(high));
    let median = if low == high { low } else { format!("{low} to {high}") };
    format!("{name}: median {median}, p99 up to {}", time(worst))
}
