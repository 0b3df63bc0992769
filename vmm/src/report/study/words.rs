//! What a study says, in sentences that its figures bear out.

use locks::Family;

use super::super::{
    figures::names,
    si::{ratio, si},
};
use crate::lab::{
    point::{GuestKind, Point},
    stats::{self, Estimate},
    study::{Comparison, Finding, Study, compare::Outcome, diff},
};

/// What an operation is, in the plural.
pub fn operations(study: &Study) -> &'static str {
    let of = |point: &Point| match (point.guest, point.lock.family()) {
        (GuestKind::Linux, _) if point.workload != "lock" => "operations",
        (_, Family::Spinlock | Family::Mutex) => "acquisitions",
        (_, Family::Counter) => "adds",
        (_, Family::Lockref) => "gets and puts",
    };
    let mut all = study.points.iter().map(|study| of(&study.point));
    match all.next() {
        Some(first) if all.all(|other| other == first) => first,
        _ => "operations",
    }
}

/// Which way a sentence goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// More than a baseline.
    More,
    /// Less than a baseline.
    Less,
    /// Nothing is seen.
    Neutral,
    /// Something is wrong.
    Bad,
}

/// A sentence of a verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sentence {
    /// Which way it goes.
    pub tone: Tone,
    /// Its figure; empty: it has none.
    pub figure: String,
    /// In words.
    pub text: String,
}

impl Sentence {
    /// Without a figure.
    pub fn plain(tone: Tone, text: String) -> Self {
        Self { tone, figure: String::new(), text }
    }
}

/// With a capital letter.
pub(super) fn first_large(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn bad(text: String) -> Sentence {
    Sentence::plain(Tone::Bad, text)
}

/// Findings of a verdict; the others are in the table.
const MOST_FINDINGS: usize = 6;

/// What comes of it all: what is wrong first, then the clearest findings.
pub fn verdict(study: &Study) -> Vec<Sentence> {
    let mut all = warnings(study);
    all.extend(too_few(study).map(|text| Sentence::plain(Tone::Neutral, text)));
    let mut findings: Vec<&Finding> = study.findings.iter().collect();
    let weight = |finding: &Finding| {
        let clear = finding.comparisons.iter().map(|ix| &study.comparisons[*ix]);
        let clear = clear.filter(|its| its.outcome(&study.points) != Outcome::Unclear);
        clear.map(|its| its.ratio.map_or(f64::MAX, |its| its.value.ln().abs())).fold(0.0, f64::max)
    };
    findings.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    all.extend(findings.iter().take(MOST_FINDINGS).map(|finding| sentence(study, finding)));
    let more = findings.len().saturating_sub(MOST_FINDINGS);
    if more > 0 {
        let are = if more == 1 { "is" } else { "are" };
        let text = format!("{more} more series {are} in the table of comparisons.");
        all.push(Sentence::plain(Tone::Neutral, text));
    }
    if study.findings.is_empty() {
        let text = "Nothing here has a baseline to be compared with.".to_owned();
        all.push(Sentence::plain(Tone::Neutral, text));
    }
    all
}

/// That nothing can be significant, however far apart, if that is so.
fn too_few(study: &Study) -> Option<String> {
    let known = study.comparisons.iter().filter(|its| its.verdict.p.is_some());
    let sizes = known.map(|its| [its.of, its.against].map(|ix| study.points[ix].repetitions.len()));
    let sizes: Vec<[usize; 2]> = sizes.collect();
    let lowest = sizes.iter().map(|[of, against]| stats::lowest_p(*of, *against));
    let lowest = lowest.fold(f64::INFINITY, f64::min);
    let most = sizes.iter().flatten().max()?;
    (lowest * sizes.len() as f64 >= stats::LEVEL).then(|| {
        format!(
            "No difference can be significant here, however large: {most} repetitions are too few \
             among {} comparisons; {} of each are enough.",
            sizes.len(),
            stats::samples_for(sizes.len())
        )
    })
}

fn warnings(study: &Study) -> Vec<Sentence> {
    let mut all = Vec::new();
    let (violations, disorder) = study.broken();
    if violations > 0.0 {
        all.push(bad(format!(
            "BROKEN: mutual exclusion failed {} times; the figures mean nothing.",
            si(violations)
        )));
    }
    if disorder > 0.0 {
        all.push(bad(format!("BROKEN: {} tickets were served out of order.", si(disorder))));
    }
    if study.done() < study.cells() {
        all.push(bad(format!(
            "Partial: {} of {} cells have figures.",
            study.done(),
            study.cells()
        )));
    }
    let hosts = strangers(study);
    if !hosts.is_empty() {
        all.push(bad(format!(
            "Not all figures are of one host and program; these differ: {}.",
            hosts.join(", ")
        )));
    }
    let failed = study.lost.iter().filter(|lost| lost.error.is_some()).count();
    if failed > 0 {
        let cells = if failed == 1 { "cell" } else { "cells" };
        all.push(bad(format!("{failed} {cells} failed; they are listed below.")));
    }
    all
}

/// What starts of the runs differ in, of the facts that should be the same.
fn strangers(study: &Study) -> Vec<String> {
    let sessions = study.runs.iter().flat_map(|run| &run.sessions);
    let all: Vec<_> = sessions.map(|session| diff::lasting(&session.host)).collect();
    let mut names: Vec<String> = Vec::new();
    for fact in all.iter().flatten().filter(|fact| !all.iter().all(|host| host.contains(fact))) {
        if !names.contains(&fact.0) {
            names.push(fact.0.clone());
        }
    }
    names
}

fn sentence(study: &Study, finding: &Finding) -> Sentence {
    let all: Vec<&Comparison> =
        finding.comparisons.iter().map(|ix| &study.comparisons[*ix]).collect();
    let with = |outcome| -> Vec<&Comparison> {
        all.iter().copied().filter(|its| its.outcome(&study.points) == outcome).collect()
    };
    let (more, less) = (with(Outcome::More), with(Outcome::Less));
    let (unclear, few) = (with(Outcome::Unclear), with(Outcome::TooFew));
    let (of, against) = names::sides(study, all[0]);
    let around = names::surroundings(study, all[0]);
    let around = if around.is_empty() { around } else { format!(" ({around})") };
    let mut parts = Vec::new();
    for (them, verb) in [(&more, "gives more than"), (&less, "gives less than")] {
        if let Some(clearest) = clearest(them) {
            let at = at(study, clearest);
            let rest: Vec<&Comparison> =
                them.iter().copied().filter(|its| !std::ptr::eq(*its, clearest)).collect();
            let too = match rest.is_empty() {
                true => String::new(),
                false => format!(", and at {} too", levels(study, &rest)),
            };
            let whom = if parts.is_empty() {
                format!("{of} {verb} {against}{around}")
            } else {
                verb.replace(" than", "")
            };
            parts.push(format!("{whom} at {at}: {}{too}", evidence(clearest)));
        }
    }
    if !unclear.is_empty() {
        let subject = match parts.is_empty() {
            true => format!("No significant difference between {of} and {against}{around}"),
            false => "no significant difference".to_owned(),
        };
        let what = if unclear.len() == 1 { evidence(unclear[0]) } else { range(&unclear) };
        parts.push(format!("{subject} at {}: {what}", levels(study, &unclear)));
    }
    if !few.is_empty() {
        parts.push(format!(
            "too few repetitions of {of} and {against} at {} to tell: six of each are the least",
            levels(study, &few)
        ));
    }
    let tone = match (more.is_empty(), less.is_empty()) {
        (false, true) => Tone::More,
        (true, false) => Tone::Less,
        _ => Tone::Neutral,
    };
    let clear = match tone {
        Tone::More => clearest(&more),
        Tone::Less => clearest(&less),
        _ => None,
    };
    let figure = clear.and_then(|its| its.ratio).map(|its| ratio(its.value));
    Sentence { tone, figure: figure.unwrap_or_default(), text: format!("{}.", parts.join("; ")) }
}

pub(super) fn clearest<'a>(all: &[&'a Comparison]) -> Option<&'a Comparison> {
    let size = |its: &Comparison| its.ratio.map_or(f64::MAX, |ratio| ratio.value.ln().abs());
    all.iter().copied().max_by(|a, b| size(a).total_cmp(&size(b)))
}

pub(super) fn at(study: &Study, comparison: &Comparison) -> String {
    names::overcommit(&study.points[comparison.of].point)
}

fn levels(study: &Study, all: &[&Comparison]) -> String {
    let mut levels: Vec<String> = all.iter().map(|its| at(study, its)).collect();
    levels.dedup();
    match levels.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => levels.concat(),
    }
}

/// Ratio, interval and p.
fn evidence(comparison: &Comparison) -> String {
    let p = p(comparison.verdict.adjusted);
    match comparison.ratio {
        Some(ratio) => format!("{} (p {p})", estimate(&ratio)),
        None => format!("its baseline did nothing (p {p})"),
    }
}

fn range(all: &[&Comparison]) -> String {
    let ratios = || all.iter().filter_map(|its| Some(its.ratio?.value));
    let low = ratios().fold(f64::INFINITY, f64::min);
    let high = ratios().fold(0.0, f64::max);
    let p = all.iter().filter_map(|its| its.verdict.adjusted).fold(1.0, f64::min);
    match low.is_finite() {
        true => format!("{} to {} (p from {} on)", ratio(low), ratio(high), bare_p(Some(p))),
        false => "no ratios".to_owned(),
    }
}

/// A ratio with its interval.
pub fn estimate(estimate: &Estimate) -> String {
    let value = ratio(estimate.value);
    match estimate.interval {
        Some(its) => format!("{value}, 95 % {} .. {}", ratio(its.low), ratio(its.high)),
        None => value,
    }
}

/// A probability, with its sign.
pub fn p(p: Option<f64>) -> String {
    match p.unwrap_or(1.0) {
        p if p < 0.0001 => "< 0.0001".to_owned(),
        p if p < 0.01 => format!("= {p:.4}"),
        p if p < 0.9995 => format!("= {p:.3}"),
        _ => "= 1".to_owned(),
    }
}

/// The same without an equals sign.
pub fn bare_p(p: Option<f64>) -> String {
    self::p(p).trim_start_matches("= ").to_owned()
}

/// One comparison in words.
pub fn comparison(study: &Study, comparison: &Comparison) -> String {
    let (of, against) = names::sides(study, comparison);
    let around = names::surroundings(study, comparison);
    let around = if around.is_empty() { around } else { format!(", {around}") };
    format!("{of} / {against} at {}{around}: {}", at(study, comparison), evidence(comparison))
}
