//! The answer to a spec's question: the effect along the axis of the charts, and the
//! clearest differences between the compared points.

use super::{
    super::{
        names,
        si::{percent, ratio, si},
    },
    sentences::{
        Sentence, Tone, capitalize, claim, clearest, figure, operations, p, range, ranks_remark,
        select, too_few,
    },
    titles::{self, widest},
};
use base::plural::{agree, count};
use study::{
    findings::{Axis, Comparison, PointStudy, Study, compare::Outcome},
    stats::Estimate,
};

/// The answer in a few sentences with figures; empty if the figures are meaningless.
pub fn answer(study: &Study) -> Vec<Sentence> {
    if study.failures() != (0.0, 0.0) {
        return Vec::new();
    }
    let observed = match study.layout.x {
        _ if study.layout.is_ratio => throughput_drop(study),
        Axis::Policy => preemption_targets(study),
        _ => None,
    };
    let judged = match too_few(study) {
        Some(text) => Some(Sentence::plain(Tone::Neutral, text)),
        None => differences(study),
    };
    observed.into_iter().chain(judged).collect()
}

/// The cost of overcommit: the two points of a series that are farthest apart.
fn throughput_drop(study: &Study) -> Option<Sentence> {
    let Some((times, from, to)) = widest(study).filter(|(times, ..)| *times > 1.0) else {
        let text = "No throughput falls with the overcommit ratio by more than the 95 % intervals \
                    of its medians.";
        return Some(Sentence::plain(Tone::Neutral, text.to_owned()));
    };
    let series = names::series(study, &to.point);
    let facet = titles::under(study, &to.point);
    let rate = |point: &PointStudy, unit: &str| {
        let median = point.rate?.median;
        let at = names::x_position(study, &[&point.point]);
        Some(format!("{}{unit}{} {at}", si(median.value), within(&median, si)))
    };
    let (high, low) = (rate(from, &format!(" {}/s", operations(study)))?, rate(to, "")?);
    let wasted = to.wasted_share().map(|share| {
        format!(", where spinning for preempted vCPUs wastes {} of the CPUs' time", percent(share))
    });
    let wasted = wasted.unwrap_or_default();
    Some(Sentence {
        tone: Tone::Less,
        figure: ratio(1.0 / times),
        text: format!("{series}{facet} falls from {high} to {low}{wasted}."),
    })
}

/// The holders and waiters that the schedule preempts.
fn preemption_targets(study: &Study) -> Option<Sentence> {
    let parts: Vec<String> = titles::hits(study).map(|target| titles::hit(study, target)).collect();
    (!parts.is_empty())
        .then(|| Sentence::plain(Tone::Neutral, format!("{}.", capitalize(&parts.join("; ")))))
}

/// The axis whose comparisons are the answer: the charts' axis, else the lock, else the first.
fn answer_axis(study: &Study) -> Option<Axis> {
    let axes = || study.comparisons.iter().map(|comparison| comparison.axis);
    let along_x = study.comparisons.iter().find(|comparison| names::is_along_x(study, comparison));
    let lock = axes().find(|axis| *axis == Axis::Lock);
    along_x.map(|comparison| comparison.axis).or(lock).or_else(|| axes().next())
}

/// The clearest differences in both directions, and how many are significant.
fn differences(study: &Study) -> Option<Sentence> {
    let axis = answer_axis(study)?;
    let comparisons: Vec<&Comparison> =
        study.comparisons.iter().filter(|comparison| comparison.axis == axis).collect();
    let [more, less] = [Outcome::More, Outcome::Less].map(|outcome| select(&comparisons, outcome));
    let (name, compared) = (axis.name(), comparisons.len());
    let ends: Vec<&Comparison> = [clearest(&more), clearest(&less)].into_iter().flatten().collect();
    let Some(farthest) = clearest(&ends) else {
        let ratios = range(&comparisons);
        let text = format!(
            "No difference by {name} is significant: {ratios} in {}.",
            count(compared, "comparison")
        );
        return Some(Sentence::plain(Tone::Neutral, text));
    };
    let parts: Vec<String> = ends.iter().map(|comparison| claim_text(study, comparison)).collect();
    let clear = more.len() + less.len();
    let are = match (clear, compared) {
        (1, 1) => String::new(),
        _ => format!(
            " {clear} of {compared} differences by {name} {} significant.",
            agree(clear, "is", "are")
        ),
    };
    let is_more = more.iter().any(|comparison| std::ptr::eq(*comparison, farthest));
    Some(Sentence {
        tone: if is_more { Tone::More } else { Tone::Less },
        figure: figure(farthest),
        text: format!("{}.{are}", parts.join("; ")),
    })
}

/// `pv-ticket has 31x the throughput of ticket at 4x (95 % 28x .. 33x, p < 0.0001)`.
fn claim_text(study: &Study, comparison: &Comparison) -> String {
    let (claim, p) = (claim(study, comparison), p(comparison.verdict.adjusted));
    let Some(times) = comparison.ratio else { return format!("{claim} (p {p})") };
    let within = times.interval.map_or_else(String::new, |within| {
        format!("95 % {} .. {}, ", ratio(within.low), ratio(within.high))
    });
    let is_contrary = comparison.is_contrary();
    let medians = if is_contrary { format!(", {}", ratio(times.value)) } else { String::new() };
    format!("{claim}{medians} ({within}p {p}{})", ranks_remark(is_contrary))
}

/// An estimate's interval in parentheses; empty without an interval.
fn within(estimate: &Estimate, show: fn(f64) -> String) -> String {
    let text = |low, high| format!(" (95 % {} .. {})", show(low), show(high));
    estimate.interval.map_or_else(String::new, |within| text(within.low, within.high))
}
