//! The findings of a study as sentences, each backed by its figures.

use std::collections::{BTreeMap, BTreeSet};

use base::plural::{agree, count};
use locks::Family;

use super::super::{
    lists::unique,
    names,
    si::{percent, ratio},
};
use super::{disturbed, moved, nodes, replayed, simulated};
use study::{
    findings::{Axis, Comparison, SeriesComparison, Study, compare::Outcome, diff},
    point::{GuestKind, Point},
    stats::{self, Estimate},
    store::record::MachineFile,
};

/// Plural name of the study's operations.
pub fn operations(study: &Study) -> &'static str {
    let mut units = study.points.iter().map(|study| operations_of(&study.point));
    match units.next() {
        Some(first) if units.all(|name| name == first) => first,
        _ => "operations",
    }
}

/// The unit of a point's throughput.
pub fn operations_of(point: &Point) -> &'static str {
    match (point.guest, point.lock.family()) {
        (GuestKind::Linux, _) if point.counts_runs() => "runs",
        (GuestKind::Linux, _) if point.workload == "shootdown" => "shootdowns",
        (GuestKind::Linux, _) if point.workload != "lock" => "operations",
        _ if is_of_switches(point) => "switches",
        (_, Family::Spinlock | Family::Mutex) => "acquisitions",
        (_, Family::Counter) => "adds",
        (_, Family::Lockref) => "gets and puts",
    }
}

/// Whether the point's guest measures vCPU switches.
pub fn is_of_switches(point: &Point) -> bool {
    point.workload == "switch"
}

/// The kind of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// More than a baseline.
    More,
    /// Less than a baseline.
    Less,
    /// Neither more nor less.
    Neutral,
    /// A limit on the validity of the figures.
    Caution,
    /// A failure, or a broken invariant: the figures are meaningless.
    Bad,
}

/// A sentence of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sentence {
    /// Kind of the statement, which determines its colour.
    pub tone: Tone,
    /// The figure; may be empty.
    pub figure: String,
    /// The sentence, without markup.
    pub text: String,
}

impl Sentence {
    /// A sentence without a figure.
    pub fn plain(tone: Tone, text: String) -> Self {
        Self { tone, figure: String::new(), text }
    }
}

/// Capitalizes the first letter.
pub(crate) fn capitalize(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn bad(text: String) -> Sentence {
    Sentence::plain(Tone::Bad, text)
}

fn caution(text: String) -> Sentence {
    Sentence::plain(Tone::Caution, text)
}

/// A caution from a text without a full stop.
fn caution_sentence(text: String) -> Sentence {
    caution(format!("{}.", capitalize(&text)))
}

/// Maximum number of findings as sentences. The table has all of them.
const MAX_FINDINGS: usize = 6;

/// The clearest findings.
pub fn findings(study: &Study) -> Vec<Sentence> {
    let mut findings: Vec<&SeriesComparison> = study.findings.iter().collect();
    let weight = |finding: &SeriesComparison| {
        let clear = finding.comparisons.iter().map(|ix| &study.comparisons[*ix]);
        let clear = clear.filter(|comparison| comparison.outcome() != Outcome::Unclear);
        clear.map(|comparison| clarity(comparison.ratio, false)).fold(0.0, f64::max)
    };
    findings.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    let mut sentences: Vec<Sentence> =
        findings.iter().take(MAX_FINDINGS).map(|finding| sentence(study, finding)).collect();
    let more = findings.len().saturating_sub(MAX_FINDINGS);
    if more > 0 {
        let are = agree(more, "is", "are");
        let text = format!("{more} more series {are} in the table of comparisons.");
        sentences.push(Sentence::plain(Tone::Neutral, text));
    }
    if study.findings.is_empty() {
        let text = "No point here has a baseline.".to_owned();
        sentences.push(Sentence::plain(Tone::Neutral, text));
    }
    sentences
}

/// Reports that no difference can be significant because there are too few repetitions.
pub(super) fn too_few(study: &Study) -> Option<String> {
    let tested = || study.comparisons.iter().filter(|comparison| !comparison.places.is_empty());
    let can_differ = |pair: &Comparison| stats::can_differ(&pair.places, pair.tested);
    let repetitions = |pair: &Comparison| {
        let (subject, against) = stats::total(&pair.places);
        subject.max(against)
    };
    let max = tested().map(repetitions).max()?;
    let places = tested().map(|comparison| comparison.places.len()).max()?;
    (!tested().any(can_differ)).then(|| {
        let where_they_are = match places {
            0 | 1 => String::new(),
            _ => format!(" on {places} nodes or hosts, which are compared separately,"),
        };
        let comparisons = tested().count();
        format!(
            "No difference can be significant here: {}{where_they_are} {} too few for {}; \
             {} of each are enough.",
            count(max, "repetition"),
            agree(max, "is", "are"),
            count(comparisons, "comparison"),
            stats::samples_in_blocks(comparisons, places)
        )
    })
}

/// Reports that sides of comparisons were never measured on the same node or host.
fn apart(study: &Study) -> Option<String> {
    let total = study.comparisons.len();
    let apart = study.comparisons.iter().filter(|comparison| comparison.places.is_empty()).count();
    (apart > 0).then(|| {
        format!(
            "{apart} of {} {} not judged: no node or host has repetitions of both sides.",
            count(total, "comparison"),
            agree(apart, "is", "are")
        )
    })
}

/// The number of repetitions that a comparison needs.
pub fn needed(comparison: &Comparison) -> String {
    let evenly = match comparison.places.len() {
        0 | 1 => String::new(),
        places => format!(", evenly on the {places} nodes or hosts"),
    };
    format!("at least {} of each are needed{evenly}", comparison.min_repetitions())
}

/// Warnings that limit or void the validity of the figures.
pub fn warnings(study: &Study) -> Vec<Sentence> {
    let mut sentences = Vec::new();
    sentences.extend(simulated::simulated(study).map(|machines| {
        caution(format!(
            "Figures marked as {machines} were not measured. vmm/sim/README.md states how the simulator \
             is validated."
        ))
    }));
    for file in simulated::machine_files(study) {
        let MachineFile { name, assumed, costs, .. } = file;
        let state = simulated::validation(file);
        sentences.push(caution(format!(
            "Machine {name}: {state}; {assumed} of its {} {} assumed.",
            count(*costs, "cost"),
            agree(*assumed, "is", "are")
        )));
        sentences.extend(simulated::doubts(file).map(caution_sentence));
    }
    sentences.extend(simulated::frozen(study).map(caution_sentence));
    sentences.extend(preemption_models(study).map(caution));
    let (violations, disorder) = study.failures();
    if violations > 0.0 {
        sentences.push(bad(format!(
            "BROKEN: mutual exclusion failed {}; the figures are meaningless.",
            count(violations as u64, "time")
        )));
    }
    if disorder > 0.0 {
        sentences.push(bad(format!(
            "BROKEN: {} {} served out of order.",
            disorder as u64,
            agree(disorder as u64, "ticket was", "tickets were")
        )));
    }
    if study.done() < study.cells() {
        sentences.push(caution(format!(
            "Partial: {} of {} {} figures.",
            study.done(),
            count(study.cells(), "cell"),
            agree(study.done(), "has", "have")
        )));
    }
    let sessions = study.runs.iter().filter_map(|run| run.sessions.last());
    let busy = sessions.filter_map(|session| busy(&session.host)).next();
    let moved = study.moved.as_ref().map(moved::sentence);
    let unobserved = study.points.iter().find_map(|point| point.unobserved.as_ref());
    let unobserved =
        unobserved.map(|reason| format!("the host's scheduler was not observed: {reason}"));
    let disturbed = [disturbed::quota(study), disturbed::summary_with_points(study)];
    let of_the_host = disturbed.into_iter().chain([busy, moved, unobserved]);
    sentences.extend(of_the_host.flatten().map(caution_sentence));
    sentences.extend(replayed::not_repeated(study).map(bad));
    sentences.extend(apart(study).map(caution));
    sentences.extend(nodes::differences(study).into_iter().map(caution));
    let hosts = differing_facts(study);
    if !hosts.is_empty() {
        sentences.push(caution(format!(
            "Host or program changed between starts; these differ: {}.",
            hosts.join(", ")
        )));
    }
    let failed = study.lost.iter().filter(|lost| lost.error.is_some()).count();
    if failed > 0 {
        sentences.push(caution(format!(
            "{} failed; {} listed below.",
            count(failed, "cell"),
            agree(failed, "it is", "they are")
        )));
    }
    sentences
}

/// Minimum busy share of the CPUs' time for a warning.
const BUSY: f64 = 0.1;

/// A warning if the run's CPUs were busy just before the session.
fn busy(facts: &study::host_facts::HostFacts) -> Option<String> {
    let busy = facts.busy.filter(|busy| *busy >= BUSY)?;
    Some(format!(
        "other processes used {} of these CPUs just before: the vCPUs may get less CPU time",
        percent(busy)
    ))
}

/// A warning if guest kernels are compared that differ in preemption as well.
fn preemption_models(study: &Study) -> Option<String> {
    let sessions = study.runs.iter().flat_map(|run| &run.sessions);
    let kernels = sessions.flat_map(|session| &session.host.kernels);
    let kernels = kernels.filter_map(|kernel| Some((&kernel.name, kernel.preemption.as_ref()?)));
    let models: BTreeMap<_, _> = kernels.collect();
    let differ = models.values().collect::<BTreeSet<_>>().len() > 1;
    let is_confounded = differ && study.varying.contains(&Axis::GuestKernel);
    is_confounded.then(|| {
        let models = models.iter().map(|(name, model)| format!("{name} {model}"));
        let models = models.collect::<Vec<_>>().join(", ");
        format!("The guest kernels differ in preemption as well, which changes rates: {models}.")
    })
}

/// Facts that should be equal for all starts of the runs and are not. A session without guest kernels matches
/// any kernel.
fn differing_facts(study: &Study) -> Vec<String> {
    let sessions = study.runs.iter().flat_map(|run| &run.sessions);
    let hosts: Vec<(bool, Vec<(String, String)>)> = sessions
        .map(|session| (session.host.kernels.is_empty(), diff::stable_facts(&session.host)))
        .collect();
    let is_shared = |fact: &(String, String)| {
        let is_of_kernel = fact.0.starts_with("kernels ");
        hosts.iter().all(|(has_none, host)| host.contains(fact) || is_of_kernel && *has_none)
    };
    let facts = hosts.iter().flat_map(|(_, host)| host).filter(|fact| !is_shared(fact));
    unique(facts.map(|fact| fact.0.clone()))
}

/// The comparisons with this outcome.
pub(super) fn select<'a>(comparisons: &[&'a Comparison], outcome: Outcome) -> Vec<&'a Comparison> {
    comparisons.iter().copied().filter(|comparison| comparison.outcome() == outcome).collect()
}

/// A finding about two series, at each of their points, or about the points of one series.
fn sentence(study: &Study, finding: &SeriesComparison) -> Sentence {
    let comparisons: Vec<&Comparison> =
        finding.comparisons.iter().map(|ix| &study.comparisons[*ix]).collect();
    let [more, less] = [Outcome::More, Outcome::Less].map(|outcome| select(&comparisons, outcome));
    let (tone, clear) = match (more.is_empty(), less.is_empty()) {
        (false, true) => (Tone::More, clearest(&more)),
        (true, false) => (Tone::Less, clearest(&less)),
        _ => (Tone::Neutral, None),
    };
    let parts = clauses(study, &comparisons);
    Sentence {
        tone,
        figure: clear.map(figure).unwrap_or_default(),
        text: format!("{}.", parts.join("; ")),
    }
}

/// The clauses of a finding: `pv-ticket is faster than ticket at 2x: ..., and at 3x too`, or along the axis of the
/// charts `gang is faster than rr: ..., and fair too; lhp is slower: ...`.
fn clauses(study: &Study, comparisons: &[&Comparison]) -> Vec<String> {
    let first = comparisons[0];
    let is_along_x = names::is_along_x(study, first);
    let (subject, against) = names::sides(study, first);
    let surroundings = bracketed(names::surroundings(study, first));
    let which = |comparisons: &[&Comparison]| {
        if is_along_x {
            let subject = |comparison: &&Comparison| names::sides(study, comparison).0;
            names::listed(comparisons.iter().map(subject))
        } else {
            at(study, comparisons)
        }
    };
    let mut parts = Vec::new();
    for (outcome, verb) in [(Outcome::More, "is faster"), (Outcome::Less, "is slower")] {
        let Some((clearest, rest)) = split(&select(comparisons, outcome)) else {
            continue;
        };
        let too =
            if rest.is_empty() { String::new() } else { format!(", and {} too", which(&rest)) };
        let (comparison, is_first) = (which(&[clearest]), parts.is_empty());
        let than = if is_first { format!(" than {against}{surroundings}") } else { String::new() };
        let clause = match (is_along_x, is_first) {
            (true, _) => format!("{comparison} {verb}{than}"),
            (false, true) => format!("{subject} {verb}{than} {comparison}"),
            (false, false) => format!("{verb} {comparison}"),
        };
        parts.push(format!("{clause}: {}{too}", evidence(clearest)));
    }
    let [unclear, few, apart] = [Outcome::Unclear, Outcome::TooFew, Outcome::Apart]
        .map(|outcome| select(comparisons, outcome));
    if !unclear.is_empty() {
        let difference = match (parts.is_empty(), is_along_x) {
            (true, true) => format!("No significant difference from {against}{surroundings}"),
            (true, false) => {
                format!("No significant difference between {subject} and {against}{surroundings}")
            }
            (false, _) => "no significant difference".to_owned(),
        };
        let with = if is_along_x { "with " } else { "" };
        parts.push(format!("{difference} {with}{}: {}", which(&unclear), summary(&unclear)));
    }
    if let Some(max_need) = largest_need(&few) {
        let (place, needed) = (which(&few), needed(max_need));
        parts.push(if is_along_x {
            format!(
                "too few repetitions of {place} to detect a difference from {against}: {needed}"
            )
        } else {
            format!("too few repetitions of {subject} and {against} {place} to tell: {needed}")
        });
    }
    if !apart.is_empty() {
        let place = which(&apart);
        parts.push(if is_along_x {
            format!("no node or host has {place} and {against}")
        } else {
            format!("no node or host has {subject} and {against} {place}")
        });
    }
    parts
}

/// The comparison with the largest number of needed repetitions.
fn largest_need<'a>(comparisons: &[&'a Comparison]) -> Option<&'a Comparison> {
    comparisons.iter().copied().max_by_key(|comparison| comparison.min_repetitions())
}

pub(super) fn bracketed(text: String) -> String {
    if text.is_empty() { text } else { format!(" ({text})") }
}

/// The clearest of some comparisons and the others; `None` if there are no comparisons.
fn split<'a>(list: &[&'a Comparison]) -> Option<(&'a Comparison, Vec<&'a Comparison>)> {
    let first = clearest(list)?;
    Some((
        first,
        list.iter().copied().filter(|comparison| !std::ptr::eq(*comparison, first)).collect(),
    ))
}

/// Distance of a ratio from 1: maximal without a ratio, and zero if the ranks contradict the ratio.
pub(super) fn clarity(ratio: Option<Estimate>, is_contrary: bool) -> f64 {
    match ratio {
        _ if is_contrary => 0.0,
        ratio => ratio.map_or(f64::MAX, |ratio| ratio.value.ln().abs()),
    }
}

pub(super) fn clearest<'a>(comparisons: &[&'a Comparison]) -> Option<&'a Comparison> {
    let clarity = |comparison: &Comparison| clarity(comparison.ratio, comparison.is_contrary());
    comparisons.iter().copied().max_by(|a, b| clarity(a).total_cmp(&clarity(b)))
}

/// Positions of comparisons on the axis of the charts.
fn at(study: &Study, comparisons: &[&Comparison]) -> String {
    let points: Vec<&Point> =
        comparisons.iter().map(|comparison| &study.points[comparison.subject].point).collect();
    names::x_position(study, &points)
}

/// The place of a comparison: its position on the axis of the charts, unless the names of its sides include
/// it, and its surroundings in parentheses.
pub(super) fn place(study: &Study, comparison: &Comparison) -> String {
    let surroundings = bracketed(names::surroundings(study, comparison));
    if names::is_along_x(study, comparison) {
        surroundings
    } else {
        format!(" {}{surroundings}", at(study, &[comparison]))
    }
}

fn summary(comparisons: &[&Comparison]) -> String {
    match comparisons {
        [comparison] => evidence(comparison),
        comparisons => range(comparisons),
    }
}

/// Remark on a direction that the ratio contradicts; empty otherwise.
pub const fn ranks_remark(is_contrary: bool) -> &'static str {
    if is_contrary { ", by ranks: the medians are in the opposite order" } else { "" }
}

/// The ratio of a comparison as the figure of its direction; empty if it contradicts the direction.
pub(super) fn figure(comparison: &Comparison) -> String {
    let ratio_of = comparison.ratio.filter(|_| !comparison.is_contrary());
    ratio_of.map_or_else(String::new, |estimate| ratio(estimate.value))
}

/// Ratio, interval and p of a comparison.
fn evidence(comparison: &Comparison) -> String {
    let p = p(comparison.verdict.adjusted);
    let ranks = ranks_remark(comparison.is_contrary());
    match comparison.ratio {
        Some(ratio) => format!("{} (p {p}{ranks})", estimate(&ratio)),
        None => format!("its baseline completed no operation (p {p})"),
    }
}

pub(super) fn range(list: &[&Comparison]) -> String {
    let ratios = || list.iter().filter_map(|comparison| Some(comparison.ratio?.value));
    let low = ratios().fold(f64::INFINITY, f64::min);
    let high = ratios().fold(0.0, f64::max);
    let p = list.iter().filter_map(|comparison| comparison.verdict.adjusted).fold(1.0, f64::min);
    if low.is_finite() {
        format!("{} to {} (p at least {})", ratio(low), ratio(high), bare_p(Some(p)))
    } else {
        "no ratios".to_owned()
    }
}

/// A ratio with its interval.
pub fn estimate(estimate: &Estimate) -> String {
    let value = ratio(estimate.value);
    match estimate.interval {
        Some(interval) => {
            format!("{value}, 95 % {} .. {}", ratio(interval.low), ratio(interval.high))
        }
        None => value,
    }
}

/// A probability with its sign: `= 0.010` or `< 0.0001`.
pub fn p(p: Option<f64>) -> String {
    match p.unwrap_or(1.0) {
        p if p < 0.0001 => "< 0.0001".to_owned(),
        p if p < 0.01 => format!("= {p:.4}"),
        p if p < 0.9995 => format!("= {p:.3}"),
        _ => "= 1".to_owned(),
    }
}

/// A probability without an equals sign.
pub fn bare_p(p: Option<f64>) -> String {
    self::p(p).trim_start_matches("= ").to_owned()
}

/// `pv-ticket has 31x the throughput of ticket at 4x`; by ranks alone `is faster than`.
pub(super) fn claim(study: &Study, comparison: &Comparison) -> String {
    let (subject, against) = names::sides(study, comparison);
    let place = place(study, comparison);
    match (comparison.outcome(), comparison.ratio) {
        (Outcome::More, None) => {
            format!("{subject} completes operations, {against} does not{place}")
        }
        (_, Some(times)) if !comparison.is_contrary() => {
            format!("{subject} has {} the throughput of {against}{place}", ratio(times.value))
        }
        (Outcome::More, _) => format!("{subject} is faster than {against}{place}"),
        _ => format!("{subject} is slower than {against}{place}"),
    }
}

/// One comparison as a phrase.
pub fn comparison(study: &Study, comparison: &Comparison) -> String {
    let (subject, against) = names::sides(study, comparison);
    format!("{subject} / {against}{}: {}", place(study, comparison), evidence(comparison))
}
