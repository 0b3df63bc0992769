//! Regressions of a second run, and points that cannot be judged.

use super::{
    sentences,
    tables::{Table, dash, ratio_within},
};
use crate::{lists::grouped, names, si::ratio};
use base::{plural::count, sanitize};
use study::{
    findings::{
        Diff,
        diff::{ComparedPoint, Gap, Regression},
    },
    point::Point,
};

/// One line per regression of a second run: its figure, then its point.
pub fn lines(diff: &Diff) -> Vec<String> {
    let name = |point: &Point| names::full_name(&diff.before, point);
    let line = |regression: &Regression<'_>| match regression {
        Regression::Less(both) => {
            let p = sentences::p(both.verdict.adjusted);
            let [figure, interval] = figures(both);
            let ranks = sentences::ranks_remark(both.is_contrary());
            format!("{figure} ({interval}), p {p}{ranks}: {}", name(&both.point))
        }
        Regression::Broken { point, violations, disorder } => format!(
            "BROKEN, exclusion failed {}, {} out of order: {}",
            count(*violations, "time"),
            count(*disorder, "ticket"),
            name(point)
        ),
        Regression::Failed { point, error } => format!("no figures, {error}: {}", name(point)),
    };
    let regressions = diff.regressions();
    regressions.iter().map(|regression| sanitize::line(&line(regression)).into_owned()).collect()
}

/// The ratio of a slower point, and its interval. Zero without a ratio.
fn figures(both: &ComparedPoint) -> [String; 2] {
    let [figure, interval] = ratio_within(both.ratio);
    [if both.ratio.is_none() { ratio(0.0) } else { figure }, interval]
}

/// The regressions as a table; `None` without any.
pub fn table(diff: &Diff) -> Option<Table> {
    let line = |regression: &Regression<'_>| match regression {
        Regression::Less(both) => {
            let [figure, interval] = figures(both);
            let mark = if both.is_contrary() { " (ranks)" } else { "" };
            vec![figure + mark, interval, sentences::bare_p(both.verdict.adjusted)]
        }
        Regression::Broken { .. } => vec!["BROKEN".to_owned(), dash(), dash()],
        Regression::Failed { .. } => vec!["failed".to_owned(), dash(), dash()],
    };
    let regressions = diff.regressions();
    let table = Table::new("regressions", "Regressions", "", &["point", "ratio", "95 %", "p"]);
    table.by_facets(
        &diff.before,
        regressions.iter().map(|regression| (regression.point(), line(regression))),
    )
}

/// The points of either run that cannot be judged, in one line; `None` if all can be judged.
pub fn not_judged(diff: &Diff) -> Option<String> {
    let gaps = diff.gaps();
    let reasons = grouped(gaps.iter().map(|(point, gap)| (*gap, *point)));
    let reason = |(gap, points): &(Gap, Vec<&Point>)| {
        let study = if *gap == Gap::First { &diff.after } else { &diff.before };
        format!("{}: {}", cause(*gap), names::list(study, points.iter().copied()))
    };
    let reasons: Vec<String> = reasons.iter().map(reason).collect();
    let nothing = if diff.compared.is_empty() { "no point with figures in common: " } else { "" };
    let text =
        format!("{nothing}{} cannot be judged: {}", count(gaps.len(), "point"), reasons.join("; "));
    (!gaps.is_empty()).then(|| sanitize::line(&text).into_owned())
}

fn cause(gap: Gap) -> String {
    match gap {
        Gap::First => "no figures in the first run".to_owned(),
        Gap::Second => "no figures in the second run".to_owned(),
        Gap::Broken => "BROKEN in the first run".to_owned(),
        Gap::Apart => "no node in common".to_owned(),
        Gap::Lost { have } => format!(
            "fewer repetitions than the first run ({} of {}), as cells failed or did not run",
            have.1, have.0
        ),
        Gap::Few { have, need } => {
            let place = match (need.0 > have.0, need.1 > have.1) {
                (false, true) => format!("{} in the second run", need.1),
                (true, false) => format!("{} in the first run", need.0),
                _ => format!("{} in each", need.0.max(need.1)),
            };
            format!("too few repetitions ({} and {}, measure {place})", have.0, have.1)
        }
    }
}
