//! The answer to a spec's question: what the charts' axis costs or hits, and the clearest
//! differences between what is compared.

use super::{
    super::{
        names,
        si::{ratio, si},
    },
    sentences::{
        Sentence, Tone, by_ranks, clearest, figure, first_large, operations, p, place, range,
        too_few,
    },
    titles::{most, placed, widest},
};
use base::plural::{agree, count};
use study::{
    findings::{Axis, Comparison, PointStudy, Study, compare::Outcome, point::Preempted},
    stats::Estimate,
};

/// The answer, in a few sentences with their figures; none if the figures mean nothing.
pub fn answer(study: &Study) -> Vec<Sentence> {
    if study.broken() != (0.0, 0.0) {
        return Vec::new();
    }
    let observed = match study.layout.x {
        _ if study.layout.is_ratio => fall(study),
        Axis::Policy => hit(study),
        _ => None,
    };
    let judged = match too_few(study) {
        Some(text) => Some(Sentence::plain(Tone::Neutral, text)),
        None => differences(study),
    };
    observed.into_iter().chain(judged).collect()
}

/// What overcommit costs: the two points of a series that are farthest apart.
fn fall(study: &Study) -> Option<Sentence> {
    let Some((times, from, to)) = widest(study).filter(|(times, ..)| *times > 1.0) else {
        let text = "No throughput falls over the overcommit ratio by more than the 95 % intervals \
                    of its medians.";
        return Some(Sentence::plain(Tone::Neutral, text.to_owned()));
    };
    let series = names::series(study, &to.point);
    let facet = names::facet(study, &to.point);
    let facet = if facet.is_empty() { facet } else { format!(" ({facet})") };
    let rate = |point: &PointStudy, unit: &str| {
        let median = point.rate?.median;
        let at = names::at(study, &[&point.point]);
        Some(format!("{}{unit}{} {at}", si(median.value), within(&median, si)))
    };
    let (high, low) = (rate(from, &format!(" {}/s", operations(study)))?, rate(to, "")?);
    Some(Sentence {
        tone: Tone::Less,
        figure: ratio(1.0 / times),
        text: format!("{series}{facet} falls from {high} to {low}."),
    })
}

/// Which holders and waiters the schedule preempts.
fn hit(study: &Study) -> Option<Sentence> {
    let most_of = |pick: fn(&Preempted) -> f64| {
        most(study, |point| point.preempted.map(|preempted| pick(&preempted)))
            .filter(|(_, rate)| *rate > 0.0)
    };
    let hits = [
        (most_of(|preempted| preempted.lhp), "a lock's holder"),
        (most_of(|preempted| preempted.lwp), "the next in line"),
        (most_of(|preempted| preempted.queued), "a waiter further back"),
    ];
    let parts = hits.into_iter().filter_map(|(found, who)| {
        let (point, count) = found?;
        let place = placed(study, point);
        Some(format!("{who} is preempted up to {} times a second: {place}", si(count)))
    });
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty())
        .then(|| Sentence::plain(Tone::Neutral, format!("{}.", first_large(&parts.join("; ")))))
}

/// The axis whose comparisons answer: that of the charts, or else the lock.
fn asked(study: &Study) -> Option<Axis> {
    let axes = || study.comparisons.iter().map(|comparison| comparison.axis);
    let along_x = study.comparisons.iter().find(|comparison| names::is_along_x(study, comparison));
    let lock = axes().find(|axis| *axis == Axis::Lock);
    along_x.map(|comparison| comparison.axis).or(lock).or_else(|| axes().next())
}

/// The clearest differences in both directions, and how many are significant.
fn differences(study: &Study) -> Option<Sentence> {
    let axis = asked(study)?;
    let all: Vec<&Comparison> =
        study.comparisons.iter().filter(|comparison| comparison.axis == axis).collect();
    let by_outcome = |outcome| -> Vec<&Comparison> {
        all.iter().copied().filter(|comparison| comparison.outcome() == outcome).collect()
    };
    let (more, less) = (by_outcome(Outcome::More), by_outcome(Outcome::Less));
    let (name, compared) = (axis.name(), all.len());
    let ends: Vec<&Comparison> = [clearest(&more), clearest(&less)].into_iter().flatten().collect();
    let Some(farthest) = clearest(&ends) else {
        let ratios = range(&all);
        let text = format!(
            "No difference by {name} is significant: {ratios} in {}.",
            count(compared, "comparison")
        );
        return Some(Sentence::plain(Tone::Neutral, text));
    };
    let parts: Vec<String> = ends.iter().map(|comparison| gives(study, comparison)).collect();
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
fn gives(study: &Study, comparison: &Comparison) -> String {
    let (subject, against) = names::sides(study, comparison);
    let (p, place) = (p(comparison.verdict.adjusted), place(study, comparison));
    let ranks = by_ranks(comparison.is_contrary());
    match comparison.ratio {
        Some(times) => {
            let evidence = match times.interval {
                Some(within) => {
                    format!("95 % {} .. {}, p {p}{ranks}", ratio(within.low), ratio(within.high))
                }
                None => format!("p {p}{ranks}"),
            };
            let times = ratio(times.value);
            match comparison.outcome() {
                Outcome::More if comparison.is_contrary() => {
                    format!("{subject} gives more than {against}{place}, {times} ({evidence})")
                }
                _ if comparison.is_contrary() => {
                    format!("{subject} gives less than {against}{place}, {times} ({evidence})")
                }
                _ => {
                    format!("{subject} has {times} the throughput of {against}{place} ({evidence})")
                }
            }
        }
        None => format!("{subject} does what {against} does not do at all{place} (p {p})"),
    }
}

/// An estimate's interval in brackets; nothing without.
fn within(estimate: &Estimate, show: fn(f64) -> String) -> String {
    let text = |low, high| format!(" (95 % {} .. {})", show(low), show(high));
    estimate.interval.map_or_else(String::new, |within| text(within.low, within.high))
}
