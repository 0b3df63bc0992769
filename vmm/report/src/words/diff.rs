//! A comparison of two runs as text and tables.

use super::{
    super::{
        names,
        si::{ratio, si},
    },
    tables::{self, Table, ratio_within},
};
use crate::words::{
    disturbed,
    sentences::{self, Sentence, Tone, clarity},
};
use base::{
    plural::{agree, count},
    sanitize::shell_quoted,
};
use study::{
    findings::{Diff, Study, compare::Outcome, diff::ComparedPoint},
    point::Point,
    stats::Direction,
};

fn significant(diff: &Diff) -> (Vec<&ComparedPoint>, Vec<&ComparedPoint>) {
    let clear = diff.compared.iter().filter(|both| both.verdict.significant);
    clear.partition(|both| both.verdict.direction == Direction::More)
}

fn clearest<'a>(points: &[&'a ComparedPoint]) -> Option<&'a ComparedPoint> {
    let clarity = |both: &ComparedPoint| clarity(both.ratio, both.is_contrary());
    points.iter().copied().max_by(|a, b| clarity(a).total_cmp(&clarity(b)))
}

/// The findings of the comparison.
pub fn verdict(diff: &Diff) -> Vec<Sentence> {
    let (more, less) = significant(diff);
    let mut findings = Vec::new();
    for (points_of, tone, word) in [(&less, Tone::Less, "slower"), (&more, Tone::More, "faster")] {
        let Some(both) = clearest(points_of) else { continue };
        let times = both.ratio.map_or_else(
            || "the first completed no operation".to_owned(),
            |ratio| sentences::estimate(&ratio),
        );
        findings.push(Sentence {
            tone,
            figure: both
                .ratio
                .filter(|_| !both.is_contrary())
                .map_or_else(String::new, |estimate| ratio(estimate.value)),
            text: format!(
                "The second run is {word} at {} of {}, most with {}: {times} (p {}{}).",
                points_of.len(),
                count(diff.compared.len(), "point"),
                names::full_name(&diff.before, &both.point),
                sentences::p(both.verdict.adjusted),
                sentences::ranks_remark(both.is_contrary())
            ),
        });
    }
    let [apart, few] = [Outcome::Apart, Outcome::TooFew].map(|outcome| diff.count(outcome));
    let points = count(diff.compared.len(), "point").to_string();
    if apart > 0 {
        findings.push(not_judged(apart, &points, "no node has both runs"));
    }
    if few > 0 {
        findings.push(not_judged(few, &points, "too few repetitions for a significant difference"));
    }
    let alike = diff.compared.len() - more.len() - less.len() - apart - few;
    let text = match (diff.compared.len(), alike) {
        (0, _) => "The two runs have no point in common.".to_owned(),
        (_, 0) => return with_host(diff, findings),
        (_, alike) => format!("No significant difference at {alike} of {points}."),
    };
    findings.push(Sentence::plain(Tone::Neutral, text));
    with_host(diff, findings)
}

fn not_judged(number: usize, points: &str, reason: &str) -> Sentence {
    let are = agree(number, "is", "are");
    Sentence::plain(Tone::Bad, format!("{number} of {points} {are} not judged: {reason}."))
}

fn with_host(diff: &Diff, mut sentences: Vec<Sentence>) -> Vec<Sentence> {
    if !diff.differences.is_empty() {
        let facts: Vec<&str> = diff.differences.iter().map(|fact| fact.fact.as_str()).collect();
        let facts = facts.join(", ");
        let text = format!("The runs differ in: {facts}. Differences may be due to these.");
        sentences.push(Sentence::plain(Tone::Bad, text));
    }
    sentences
}

/// Windows of either run without valid figures, and quotas.
pub fn disturbed(diff: &Diff) -> Vec<Sentence> {
    let runs = [("first", &diff.before), ("second", &diff.after)];
    let sentences = |(ordinal, study): (&str, &Study)| {
        let windows = disturbed::summary_with_points(study)
            .map(|windows| format!("The {ordinal} run has {windows}."));
        let quota = disturbed::quota(study).map(|quota| format!("Of the {ordinal} run: {quota}."));
        [quota, windows].into_iter().flatten().map(|text| Sentence::plain(Tone::Bad, text))
    };
    runs.into_iter().flat_map(sentences).collect()
}

/// The title of the figure.
pub fn title(diff: &Diff) -> String {
    let (more, less) = significant(diff);
    match (more.len(), less.len()) {
        (0, 0) => {
            format!("No significant difference at any of {}", count(diff.compared.len(), "point"))
        }
        (more, less) => {
            let gives = agree(more, "gives", "give");
            format!(
                "Of {} {more} {gives} more and {less} less than before",
                count(diff.compared.len(), "point")
            )
        }
    }
}

/// How the runs were compared.
pub fn method(diff: &Diff) -> Vec<String> {
    vec![
        "Points are the same if they differ only in their seed. Ratios are of medians, with bootstrapped \
         95 % intervals; of several nodes, medians of the ratios of all repetitions of the two runs on the same node, \
         with exact intervals. Repetitions are not paired by round, as the runs were at different times."
            .to_owned(),
        format!(
            "p is from a permutation test, corrected by Holm's method for {}.",
            super::all_counted(diff.compared.len(), "point")
        ),
    ]
}

/// The command that recreates this page.
pub fn command(diff: &Diff) -> String {
    let source = |study: &Study| {
        study.runs.first().map_or_else(String::new, |run| shell_quoted(&run.source))
    };
    format!(
        "pvticket report --diff {} {} --html diff.html",
        source(&diff.before),
        source(&diff.after)
    )
}

/// All nonempty tables.
pub fn tables(diff: &Diff) -> Vec<Table> {
    let note = "Medians; p is Holm's.";
    let head = ["point", "first", "second", "ratio", "95 % interval", "p", ""];
    let both = Table::new("both", "Points in both runs", note, &head);
    let line = |both: &ComparedPoint| {
        let [ratio, within] = ratio_within(both.ratio);
        vec![
            si(both.before.median.value),
            si(both.after.median.value),
            ratio,
            within,
            sentences::bare_p(both.verdict.adjusted),
            tables::outcome(diff.outcome(both), both.is_contrary()).to_owned(),
        ]
    };
    let both =
        both.by_facets(&diff.before, diff.compared.iter().map(|both| (&both.point, line(both))));
    let mut differs =
        Table::new("differs", "Differences between the runs", "", &["what", "first", "second"]);
    differs.figures_from = usize::MAX;
    for fact in &diff.differences {
        differs.cells([fact.fact.clone(), short(&fact.before), short(&fact.after)]);
    }
    let only = [("first", &diff.only_before), ("second", &diff.only_after)];
    let only = only.map(|(ordinal, points)| only_table(ordinal, points));
    let others = [differs].into_iter().chain(only).filter_map(Table::nonempty);
    both.into_iter().chain(others).collect()
}

/// A fact of a run in a few words.
fn short(value: &str) -> String {
    match value.lines().count() {
        0 => "unknown".to_owned(),
        1 => value.to_owned(),
        lines => format!("{lines} lines"),
    }
}

fn only_table(ordinal: &str, points: &[Point]) -> Table {
    let title = format!("Only in the {ordinal} run");
    let mut table = Table::new("only", &title, "", &["point"]);
    for point in points {
        table.cells([point.to_string()]);
    }
    table
}
