//! The comparisons of a brief, one row each: the two sides, and the ratio with its interval.

use super::{
    points,
    subject::{LockNames, Subject},
};
use crate::{
    columns::Columns,
    figures::characters::wrapped,
    names,
    si::ratio,
    words::{sentences::p, tables::Table},
};
use base::sanitize;
use sched::{PolicySpec, policy::POLICIES};
use study::{
    findings::{Axis, Comparison, LOCK_AXES, Study, compare::Outcome},
    point::Point,
    stats::Estimate,
};

/// Axes that a row names anyway, or that are equal on both sides and in all rows of its guest.
const NAMED: [Axis; 5] = [Axis::Guest, Axis::Machine, Axis::Host, Axis::Policy, Axis::Vcpus];

/// Maximum number of rows of a page's table: eight schedules with two locks.
const MAX_ROWS: usize = 16;

#[derive(Debug, Clone, PartialEq)]
pub struct ComparisonRow {
    /// Index of its subject.
    pub subject: usize,
    /// The guest's name.
    pub guest: String,
    /// Both sides and the row's other values: `PV / native, rr`.
    pub label: String,
    /// Both sides: locks, or schedules.
    pub sides: [String; 2],
    /// Common to both sides: a lock, or a schedule other than the host's.
    pub shared: Option<String>,
    /// The ratio, or the reason why there is no meaningful ratio.
    pub value: String,
    /// The ratio of a confirmed difference.
    pub ratio: Option<f64>,
    /// Whether it compares locks; otherwise it compares schedules.
    pub is_of_locks: bool,
    /// Clarity of the difference: the absolute logarithm of the ratio.
    pub weight: f64,
    /// The compared schedules; empty for locks.
    policies: Vec<PolicySpec>,
    /// Number of runs of the side with fewer runs.
    pub runs: usize,
}

/// All comparisons that a brief may show, for each guest first those between locks, then between schedules.
pub fn list(studies: &[Study], subjects: &[Subject], words: &LockNames) -> Vec<ComparisonRow> {
    let mut rows = Vec::new();
    for (ix, subject) in subjects.iter().enumerate() {
        let plainest = baseline_policy(studies, subject);
        let guest = subject.qualified_name(subjects);
        let of_axis = |axis: Axis| {
            let valid = studies.iter().filter(|study| study.failures() == (0.0, 0.0));
            valid
                .flat_map(|study| {
                    study.comparisons.iter().map(move |comparison| (study, comparison))
                })
                .filter(move |(study, comparison)| {
                    comparison.axis == axis
                        && subject.contains_at_ratio(&study.points[comparison.subject].point)
                })
        };
        let under_plainest = |(study, comparison): &(&Study, &Comparison)| {
            Some(&study.points[comparison.subject].point.policy) == plainest
        };
        let row = |(study, comparison)| ComparisonRow {
            subject: ix,
            ..row(study, comparison, guest.clone(), words)
        };
        rows.extend(of_axis(Axis::Lock).filter(under_plainest).map(row));
        rows.extend(of_axis(Axis::Policy).map(row));
    }
    rows
}

/// The schedule under which locks are compared: the host's, or else the first measured.
fn baseline_policy<'a>(studies: &'a [Study], subject: &'a Subject) -> Option<&'a PolicySpec> {
    let policies = || points(studies, subject).map(|(_, point)| &point.point.policy);
    policies().find(|policy| policy.is_host()).or_else(|| policies().next())
}

fn row(study: &Study, comparison: &Comparison, guest: String, words: &LockNames) -> ComparisonRow {
    let [compared, against] = [comparison.subject, comparison.against].map(|ix| &study.points[ix]);
    let is_of_locks = comparison.axis == Axis::Lock;
    let shared = if !is_of_locks {
        Some(words.lock(&compared.point))
    } else if compared.point.policy.is_host() {
        None
    } else {
        Some(schedule(&compared.point))
    };
    let name = |point: &Point| if is_of_locks { words.lock(point) } else { schedule(point) };
    let sides = [compared, against].map(|side| name(&side.point));
    let both = sides.join(" / ");
    let parts = [both].into_iter().chain(shared.clone()).chain(extras(study, &compared.point));
    let parts: Vec<String> = parts.collect();
    let policies = [compared, against].map(|side| side.point.policy.clone());
    ComparisonRow {
        subject: 0,
        guest,
        label: parts.join(", "),
        sides,
        shared,
        value: value(comparison),
        ratio: confirmed(comparison),
        is_of_locks,
        weight: comparison
            .ratio
            .map_or(f64::MAX, |ratio| ratio.value.max(f64::MIN_POSITIVE).ln().abs()),
        policies: if is_of_locks { Vec::new() } else { policies.into() },
        runs: compared.repetitions.len().min(against.repetitions.len()),
    }
}

impl ComparisonRow {
    /// Whether `peer` is the same comparison, and both are confirmed in the same direction.
    pub fn is_confirmed_by(&self, peer: &Self) -> bool {
        let is_same = (&self.guest, &self.label) == (&peer.guest, &peer.label);
        let more = |row: &Self| row.ratio.map(|times| times > 1.0);
        is_same && more(self).is_some() && more(self) == more(peer)
    }
}

/// The ratio of a difference that its test confirms and its interval does not contradict.
fn confirmed(comparison: &Comparison) -> Option<f64> {
    let times = comparison.ratio?;
    let is_clear = matches!(comparison.outcome(), Outcome::More | Outcome::Less)
        && !comparison.is_contrary()
        && !times.interval.is_some_and(|within| within.contains(1.0));
    is_clear.then_some(times.value)
}

pub fn schedule(point: &Point) -> String {
    sanitize::line(&point.schedule_name()).into_owned()
}

/// The remaining values that distinguish the point within its study.
pub(super) fn extras<'a>(study: &'a Study, point: &'a Point) -> impl Iterator<Item = String> + 'a {
    let axes =
        study.varying.iter().filter(|axis| !NAMED.contains(axis) && !LOCK_AXES.contains(axis));
    axes.map(|axis| sanitize::line(&names::axis_value(*axis, &axis.value(point))).into_owned())
}

/// The ratio with its interval if it shows a difference, or else the reason.
fn value(comparison: &Comparison) -> String {
    if comparison.outcome() == Outcome::Apart {
        return "not measured in the same place".to_owned();
    }
    let Some(times) = comparison.ratio else { return "no ratio: the baseline is zero".to_owned() };
    let within = times.interval;
    let bounds = within.map(|within| format!(" ({} .. {})", ratio(within.low), ratio(within.high)));
    let bounds = bounds.unwrap_or_default();
    match comparison.outcome() {
        Outcome::TooFew | Outcome::Apart => "too few runs to tell".to_owned(),
        Outcome::More if comparison.is_contrary() => {
            format!("more by ranks, medians {}", with_interval(&times))
        }
        Outcome::Less if comparison.is_contrary() => {
            format!("less by ranks, medians {}", with_interval(&times))
        }
        _ if within.is_some_and(|within| within.contains(1.0)) => {
            format!("no difference shown{bounds}")
        }
        Outcome::Unclear => format!("unclear, p {}{bounds}", p(comparison.verdict.adjusted)),
        Outcome::More | Outcome::Less => with_interval(&times),
    }
}

/// Drops the least important row: schedules before locks, then the smallest difference.
pub fn drop_least(rows: &mut Vec<ComparisonRow>) {
    let least = |(_, a): &(usize, &ComparisonRow), (_, b): &(usize, &ComparisonRow)| {
        a.is_of_locks.cmp(&b.is_of_locks).then(a.weight.total_cmp(&b.weight))
    };
    if let Some((ix, _)) = rows.iter().enumerate().min_by(least) {
        rows.remove(ix);
    }
}

/// The [`MAX_ROWS`] most important rows as a table; `None` without rows.
pub fn table(head: &str, rows: &[ComparisonRow]) -> Option<Table> {
    let mut shown = rows.to_vec();
    while shown.len() > MAX_ROWS {
        drop_least(&mut shown);
    }
    let omitted = rows.len() - shown.len();
    let more = if omitted > 0 { format!("; {omitted} more below") } else { String::new() };
    let mut table =
        Table::new("ratios", "", &format!("{head}{more}"), &["guest", "compared", "ratio (95 %)"]);
    table.figures_from = 2;
    let mut before = String::new();
    for ComparisonRow { guest, label, value, .. } in shown {
        let name = if guest == before { String::new() } else { guest.clone() };
        table.cells([name, label, value]);
        before = guest;
    }
    table.nonempty()
}

/// The rows in columns. A row with a long label is not aligned, and is wrapped if it is too wide.
pub fn layout(rows: &[ComparisonRow], width: usize) -> String {
    let guests = rows.iter().map(|row| row.guest.chars().count()).max().unwrap_or(0);
    let label_width = label_column_width(rows, width.saturating_sub(guests + 4));
    let fits = |row: &&ComparisonRow| row.label.chars().count() <= label_width;
    let mut columns = Columns::new(0..0);
    let mut before = "";
    for ComparisonRow { guest, label, value, .. } in rows.iter().filter(fits) {
        columns.row([if guest == before { "" } else { guest }, label, value]);
        before = guest;
    }
    let mut aligned = columns.lines(2).into_iter();
    let line = |row: &ComparisonRow| {
        if fits(&row) {
            return aligned.next().unwrap_or_default() + "\n";
        }
        let ComparisonRow { guest, label, value, .. } = row;
        let alone = format!("{guest}  {label}  {value}\n");
        if alone.chars().count() <= width + 1 {
            return alone;
        }
        wrapped(&format!("{guest}: {label}"), width, "") + &wrapped(value, width, "    ")
    };
    rows.iter().map(line).collect()
}

/// The largest width of the label column at which every row whose label fits has room for its value in `width`
/// columns. Longer labels do not prevent the alignment of the others.
fn label_column_width(rows: &[ComparisonRow], width: usize) -> usize {
    let length = |text: &String| text.chars().count();
    let fits = |column: usize| {
        let inside = rows.iter().filter(|row| length(&row.label) <= column);
        inside.map(|row| column + length(&row.value)).all(|total| total <= width)
    };
    rows.iter().map(|row| length(&row.label)).filter(|column| fits(*column)).max().unwrap_or(0)
}

/// Descriptions of the rows' schedules except `host`. The second omits `rr`, too, known from other schedulers.
pub fn legends(rows: &[ComparisonRow]) -> [String; 2] {
    let is_there =
        |name: &str| rows.iter().flat_map(|row| &row.policies).any(|policy| policy.name() == name);
    let without = |known: &[&str]| {
        let policies =
            POLICIES.iter().filter(|policy| !known.contains(&policy.name) && is_there(policy.name));
        policies
            .map(|policy| format!("{}: {}", policy.name, policy.about))
            .collect::<Vec<_>>()
            .join("; ")
    };
    [without(&["host"]), without(&["host", "rr"])]
}

fn with_interval(estimate: &Estimate) -> String {
    let value = ratio(estimate.value);
    match estimate.interval {
        Some(interval) => format!("{value} ({} .. {})", ratio(interval.low), ratio(interval.high)),
        None => value,
    }
}
