//! The table of `bench trace`.

use super::{
    compare::{self, dash},
    si::si,
};
use crate::words::sentences;
use base::plural::count;
use study::{
    findings::{Axis, Comparison, PointStudy, RunRecord, Study},
    point::Point,
    spec::made::trace::{PLAIN, TRACED},
    stats::{self, Estimate, Interval},
    store::record::{Outcome, TimelineCounts},
};

/// The table of a study whose runs are in `record`.
pub fn table(study: &Study, record: &RunRecord) -> String {
    let Some(PointStudy { point, .. }) = study.points.first() else { return String::new() };
    let mut text = compare::host_of(study);
    text += &format!(
        "guest   {}; {} on {}, turns of {}\n\
         method  {}, in each every policy once traced and twice plain, {} s each, seed {}; p \
         corrected by Holm for {}\n",
        compare::guest(point),
        count(point.vcpus.get(), "vCPU"),
        count(point.slots, "CPU"),
        point.slice,
        count(study.points.iter().map(|point| point.repetitions.len()).max().unwrap_or(0), "round"),
        point.duration.as_secs_f64(),
        point.seed,
        count(study.comparisons.len(), "comparison"),
    );
    text += &compare::notes_of(study);
    text += &format!(
        "\n{:<28}{:>4}{:>10}   {:<36}{:<36}{:>8}{:>6}\n",
        "policy", "N", "plain/s", "traced/plain, 95 %", "plain again/plain, 95 %", "kept/s", "lost"
    );
    let plain = study.points.iter().enumerate();
    for (ix, point) in plain.filter(|(_, point)| point.point.label == PLAIN[0]) {
        text += &line(study, record, ix, point);
    }
    text
}

fn line(study: &Study, record: &RunRecord, ix: usize, plain: &PointStudy) -> String {
    let compared = |label: &str| {
        let is_it = |comparison: &&Comparison| {
            comparison.against == ix
                && comparison.axis == Axis::Label
                && study.points[comparison.subject].point.label == label
        };
        study.comparisons.iter().find(is_it).map_or_else(dash, within)
    };
    let counts = timelines(record, &plain.point);
    let entries: Vec<f64> = counts.iter().map(|counts| counts.entries).collect();
    let lost = counts.iter().fold(0u64, |sum, counts| sum.saturating_add(counts.lost));
    format!(
        "{:<28}{:>4}{:>10}   {:<36}{:<36}{:>8}{lost:>6}\n",
        plain.point.policy.to_string(),
        plain.repetitions.len(),
        plain.rate.map_or_else(dash, |rate| si(rate.median.value)),
        compared(TRACED),
        compared(PLAIN[1]),
        stats::median(&entries).map_or_else(dash, si),
    )
}

/// What the timelines under a policy recorded.
fn timelines(record: &RunRecord, plain: &Point) -> Vec<TimelineCounts> {
    let traced = Point { label: TRACED.to_owned(), ..plain.clone() };
    let cells = record.contents.cells.iter().filter(|cell| cell.point.is_like(&traced));
    cells
        .filter_map(|cell| match &cell.outcome {
            Outcome::Done { figures } => figures.timeline,
            Outcome::Failed { .. } | Outcome::Aborted => None,
        })
        .collect()
}

/// The ratio by pairs in thousandths, as differences of 2 % matter here, and p.
fn within(comparison: &Comparison) -> String {
    let p = sentences::bare_p(comparison.verdict.adjusted);
    let Some(Estimate { value, interval }) = comparison.paired else { return dash() };
    match interval {
        Some(Interval { low, high }) => format!("{value:.3} ({low:.3} .. {high:.3}), p {p}"),
        None => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use study::testing::{Fixture, record};

    #[test]
    fn each_policy_has_its_ratios_and_what_its_timelines_kept() {
        let labels = vec![PLAIN[0], PLAIN[1], TRACED];
        let locks = vec![("pv-ticket", "vmm")];
        let fixture = Fixture { labels, locks, vcpus: vec![4], ..Fixture::default() };
        let mut run = record(&fixture);
        run.contents.run.spec = "labels = [\"plain\", \"again\", \"traced\"]".into();
        for cell in &mut run.contents.cells {
            if let Outcome::Done { figures } = &mut cell.outcome
                && cell.point.label == TRACED
            {
                figures.timeline = Some(TimelineCounts { entries: 5000.0, lost: 2 });
            }
        }
        let study = Study::new(std::slice::from_ref(&run));
        let text = table(&study, &run);
        let rows: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("policy")).collect();
        assert_eq!(rows.len(), 3, "{text}");
        for (row, policy) in rows[1..].iter().zip(["host", "rr"]) {
            assert!(row.starts_with(policy) && row.ends_with("5.00k    16"), "{text}");
            assert_eq!(row.matches(" .. ").count(), 2, "{text}");
            assert_eq!(row.matches(", p ").count(), 2, "{text}");
        }
    }
}
