//! What points are called in a report: only what they differ in.

use locks::Family;

use super::super::si::ratio;
use crate::lab::{
    point::Point,
    study::{Axis, Comparison, Study},
};

/// Axes that make a series within a panel.
const SERIES: [Axis; 4] = [Axis::Label, Axis::Lock, Axis::Backend, Axis::Handoff];

/// The lock, and the label of one that is otherwise alike.
pub fn series(point: &Point) -> String {
    match point.label.is_empty() {
        true => point.contender().lock(),
        false => format!("{} {}", point.contender().lock(), point.label),
    }
}

/// The panel that a point is drawn in, of those whose surroundings are these: what is no lock of one
/// kind has another scale, and another baseline.
pub fn panel(study: &Study, point: &Point, surroundings: String) -> String {
    let family = point.lock.family();
    let has_others = study.points.iter().any(|its| its.point.lock.family() != family);
    let family = if has_others { plural(family).to_owned() } else { String::new() };
    [family, surroundings]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(", ")
}

/// Systems of a family.
pub const fn plural(family: Family) -> &'static str {
    match family {
        Family::Spinlock => "spinlocks",
        Family::Mutex => "mutexes",
        Family::Counter => "counters",
        Family::Lockref => "lockrefs",
    }
}

/// What beside lock and overcommit ratio makes a point another one than the rest of the study.
pub fn facet(study: &Study, point: &Point) -> String {
    facet_without(study, point, &[])
}

fn facet_without(study: &Study, point: &Point, but: &[Axis]) -> String {
    let mut words = Vec::new();
    for axis in &study.varying {
        if SERIES.contains(axis) || *axis == study.ratio_axis() || but.contains(axis) {
            continue;
        }
        let value = axis.of(point);
        words.push(match axis {
            Axis::Policy => format!("under {}", policy(&value)),
            Axis::Guest | Axis::Host => value,
            Axis::Fault if value == "none" => "no faults".to_owned(),
            _ => format!("{} {value}", axis.name()),
        });
    }
    words.join(", ")
}

fn policy(value: &str) -> &str {
    if value == "host" { "the host's scheduler" } else { value }
}

/// All that tells a point from the others of its study.
pub fn whole(study: &Study, point: &Point) -> String {
    let mut name = within(point);
    let facet = facet(study, point);
    if !facet.is_empty() {
        name = format!("{name}, {facet}");
    }
    name
}

/// What tells a point from the others of its facet.
pub fn within(point: &Point) -> String {
    format!("{} at {}", series(point), overcommit(point))
}

/// The overcommit ratio, as it is written.
pub fn overcommit(point: &Point) -> String {
    let text = ratio(point.overcommit());
    let number = text.trim_end_matches('x');
    match number.contains('.') {
        true => format!("{}x", number.trim_end_matches('0').trim_end_matches('.')),
        false => text,
    }
}

/// What of a comparison is compared: one over the other.
pub fn sides(study: &Study, comparison: &Comparison) -> (String, String) {
    let [of, against] = [comparison.of, comparison.against].map(|ix| &study.points[ix].point);
    match comparison.axis {
        Axis::Lock | Axis::Handoff | Axis::Label | Axis::Backend => (series(of), series(against)),
        Axis::Policy => {
            let name = |point| policy(&Axis::Policy.of(point)).to_owned();
            (name(of), name(against))
        }
        axis => {
            let name = |point| format!("{} {}", axis.name(), axis.of(point));
            (name(of), name(against))
        }
    }
}

/// In what surroundings a comparison is made.
pub fn surroundings(study: &Study, comparison: &Comparison) -> String {
    let point = &study.points[comparison.of].point;
    let facet = facet_without(study, point, &[comparison.axis]);
    let is_within_series = SERIES.contains(&comparison.axis);
    let name = if is_within_series { String::new() } else { series(point) };
    [name, facet].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}
