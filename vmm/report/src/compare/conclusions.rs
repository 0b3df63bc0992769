//! What the comparisons of a study show: a sentence each, and the ratios behind it.

use std::{collections::BTreeMap, fmt::Write};

use crate::{
    names,
    si::ratio,
    words::sentences::{by_ranks, needed, p as probability},
};
use base::plural::count;
use study::findings::{Comparison, Study, compare::Outcome};

/// What all comparisons show, tested together; nothing if there are none.
pub fn conclusions(study: &Study) -> String {
    let mut text = match study.comparisons.len() {
        0 => return String::new(),
        1 => "Does it differ? (rank-sum test, p below 0.05)\n".to_owned(),
        several => format!(
            "What differs? ({several} comparisons: rank-sum tests, p corrected by Holm, below 0.05)\n"
        ),
    };
    let too_few = too_few(study);
    // Writing to a String cannot fail.
    for (need, number) in too_few.iter().filter(|(_, number)| **number > 1) {
        let _ = writeln!(text, "  {number} comparisons: too few runs to tell: {need}");
    }
    let is_counted = |comparison: &Comparison| {
        comparison.outcome() == Outcome::TooFew
            && too_few.get(&needed(comparison)).is_some_and(|number| *number > 1)
    };
    for comparison in study.comparisons.iter().filter(|comparison| !is_counted(comparison)) {
        let vcpus = study.points[comparison.subject].point.vcpus.get();
        let _ = writeln!(text, "  {}: {}", count(vcpus, "vCPU"), conclusion(study, comparison));
    }
    text
}

/// The number of comparisons with too few runs, by what they need.
fn too_few(study: &Study) -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    for comparison in &study.comparisons {
        if comparison.outcome() == Outcome::TooFew {
            *all.entry(needed(comparison)).or_default() += 1;
        }
    }
    all
}

/// Both sides of a comparison by name, and what they have in common.
fn sides(study: &Study, comparison: &Comparison) -> (String, String, String) {
    let (subject, against) = names::sides(study, comparison);
    let around = names::shared(study, comparison);
    let around = if around.is_empty() { around } else { format!("{around}: ") };
    (subject, against, around)
}

pub(super) fn conclusion(study: &Study, comparison: &Comparison) -> String {
    let (subject, against, around) = sides(study, comparison);
    let times =
        comparison.ratio.map_or_else(String::new, |times| format!(" {}", ratio(times.value)));
    let adjusted = comparison.verdict.adjusted;
    let p = adjusted.map_or_else(String::new, |_| format!(" (p {})", probability(adjusted)));
    let ranks = by_ranks(comparison.is_contrary());
    let text = match comparison.outcome() {
        Outcome::More => format!("{subject} beats {against}{times}{p}{ranks}"),
        Outcome::Less => format!("{against} beats {subject}{p}{ranks}"),
        Outcome::Unclear => format!("no difference seen between {subject} and {against}{p}"),
        Outcome::TooFew => {
            format!("{subject} and {against}: too few runs to tell: {}", needed(comparison))
        }
        Outcome::Apart => format!("{subject} and {against}: not measured on one node or host"),
    };
    format!("{around}{text}")
}
