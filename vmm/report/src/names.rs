//! Names of points in a report: only the axes on which they differ.

use locks::{Family, System};

use super::{lists::unique, si::ratio};
use base::{backend::PvBackend, handoff::HandoffSpec, plural::count};
use study::{
    findings::{Axis, Comparison, LOCK_AXES, Study, layout::Role, league::LEAGUE_AXES},
    point::Point,
};

/// The lock with its options, and the point's label if it has one.
pub fn system(point: &Point) -> String {
    if point.label.is_empty() {
        point.lock_name()
    } else {
        format!("{} {}", point.lock_name(), point.label)
    }
}

/// The name of a point's series within its chart; may be empty.
pub fn series(study: &Study, point: &Point) -> String {
    role_values(study, point, Role::Series, &[])
}

/// The title of a point's panel: its family, if the study has several, and `surroundings`. Families have
/// separate scales and baselines.
pub fn panel(study: &Study, point: &Point, surroundings: String) -> String {
    let family = point.lock.family();
    let has_others = study.points.iter().any(|point| point.point.lock.family() != family);
    let family = if has_others { plural(family).to_owned() } else { String::new() };
    joined([family, surroundings])
}

/// Plural name of a family's systems.
pub const fn plural(family: Family) -> &'static str {
    match family {
        Family::Spinlock => "spinlocks",
        Family::Mutex => "mutexes",
        Family::Counter => "counters",
        Family::Lockref => "lockrefs",
    }
}

/// The values that a point shares with its entire chart.
pub fn facet(study: &Study, point: &Point) -> String {
    role_values(study, point, Role::Facet, &[])
}

fn joined(parts: impl IntoIterator<Item = String>) -> String {
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(", ")
}

/// The point's values on the axes of one role, except the axes in `except`.
fn role_values(study: &Study, point: &Point, role: Role, except: &[Axis]) -> String {
    let is_asked = |axis: &&Axis| study.layout.role(**axis) == role && !except.contains(*axis);
    let others = study.varying.iter().filter(is_asked).filter(|axis| !LOCK_AXES.contains(*axis));
    let others = others.map(|axis| axis_value(*axis, &axis.value(point)));
    joined([lock_words(study, point, role, except)].into_iter().chain(others))
}

/// The parts of a lock's name that belong to a role.
fn lock_words(study: &Study, point: &Point, role: Role, except: &[Axis]) -> String {
    let layout = &study.layout;
    // A lock that does not vary is named with the series; options that do not vary, with the lock.
    let of_lock = match layout.role(Axis::Lock) {
        Role::None => Role::Series,
        role => role,
    };
    let is_here = |axis: Axis| {
        let part = match (axis, layout.role(axis)) {
            (Axis::Lock, _) | (Axis::Backend | Axis::Handoff, Role::None) => of_lock,
            (_, role) => role,
        };
        part == role && !except.contains(&axis)
    };
    let name = if is_here(Axis::Lock) {
        let mut named = point.clone();
        if !is_here(Axis::Backend) {
            named.backend = PvBackend::Off;
        }
        if !is_here(Axis::Handoff) {
            named.handoff = HandoffSpec::NONE;
        }
        match layout.role(Axis::GuestKernel) {
            role if named.lock != System::Kernel || role == Role::None => named.lock_name(),
            // The kernel's name is another part of the point's name.
            role if role == of_lock => String::new(),
            _ => named.lock.to_string(),
        }
    } else {
        let options = [Axis::Backend, Axis::Handoff].into_iter().filter(|axis| is_here(*axis));
        options.map(|axis| axis.value(point)).collect::<Vec<_>>().join(" ")
    };
    let label = if is_here(Axis::Label) { point.label.as_str() } else { "" };
    format!("{name} {label}").trim().to_owned()
}

/// A value on an axis other than the lock, as a part of a name.
pub fn axis_value(axis: Axis, value: &str) -> String {
    match axis {
        Axis::Policy => format!("under {}", policy(value)),
        Axis::Guest | Axis::Host => value.to_owned(),
        Axis::Fault if value == "none" => "no faults".to_owned(),
        _ => format!("{} {value}", axis.name()),
    }
}

fn policy(value: &str) -> &str {
    if value == "host" { "the host's scheduler" } else { value }
}

/// The full name of a point within its study.
pub fn full_name(study: &Study, point: &Point) -> String {
    joined([name_in_facet(study, point), facet(study, point)])
}

/// The full names of the first few points, and the number of other points.
pub fn list<'a>(study: &Study, points: impl ExactSizeIterator<Item = &'a Point>) -> String {
    first_names(points.map(|point| full_name(study, point)))
}

/// The first few of these names, and the number of other points.
pub fn first_names(points: impl ExactSizeIterator<Item = String>) -> String {
    const NAMED: usize = 3;
    let more = points.len().saturating_sub(NAMED);
    let more = (more > 0).then(|| count(more, "other point").to_string());
    points.take(NAMED).chain(more).collect::<Vec<_>>().join("; ")
}

/// The name of a point's league within its study.
pub fn league(study: &Study, point: &Point) -> String {
    let others = study.varying.iter().filter(|axis| !LEAGUE_AXES.contains(axis));
    joined(others.map(|axis| axis_value(*axis, &axis.value(point))))
}

/// The name of a point within its facet.
pub fn name_in_facet(study: &Study, point: &Point) -> String {
    let at = match study.layout.x {
        // The lock is the whole name.
        axis if LOCK_AXES.contains(&axis) => x_value(study, point),
        Axis::GuestKernel if point.lock == System::Kernel => {
            return axis_value(Axis::GuestKernel, &x_value(study, point));
        }
        _ => x_position(study, &[point]),
    };
    format!("{} {at}", series(study, point)).trim_start().to_owned()
}

/// A point's value on the axis of the charts.
pub fn x_value(study: &Study, point: &Point) -> String {
    match study.layout.x {
        _ if study.layout.is_ratio => overcommit(point),
        axis if LOCK_AXES.contains(&axis) => lock_words(study, point, Role::X, &[]),
        axis => axis.value(point),
    }
}

/// The positions of these points on the axis of the charts, with a preposition.
pub fn x_position(study: &Study, points: &[&Point]) -> String {
    let value = |point: &&Point| match x_value(study, point) {
        value if study.layout.x == Axis::Policy => policy(&value).to_owned(),
        value => value,
    };
    let values = unique(points.iter().map(value));
    let values = listed(&values);
    match study.layout.x {
        _ if study.layout.is_ratio => format!("at {values}"),
        Axis::Policy => format!("under {values}"),
        axis if LOCK_AXES.contains(&axis) => format!("with {values}"),
        Axis::Guest | Axis::Host => format!("on {values}"),
        axis => format!("with {} {values}", axis.name()),
    }
}

/// `a, b and c`.
pub fn listed<T: ToString>(all: impl IntoIterator<Item = T>) -> String {
    let all: Vec<String> = all.into_iter().map(|each| each.to_string()).collect();
    match all.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => all.concat(),
    }
}

/// The overcommit ratio as text.
pub fn overcommit(point: &Point) -> String {
    overcommit_of(point.overcommit())
}

/// A ratio of vCPUs to CPUs as text: `2x`, `1.5x`.
pub fn overcommit_of(value: f64) -> String {
    let text = ratio(value);
    let number = text.trim_end_matches('x');
    if number.contains('.') {
        format!("{}x", number.trim_end_matches('0').trim_end_matches('.'))
    } else {
        text
    }
}

/// The names of a comparison's two sides.
pub fn sides(study: &Study, comparison: &Comparison) -> (String, String) {
    let [subject, against] =
        [comparison.subject, comparison.against].map(|ix| &study.points[ix].point);
    match comparison.axis {
        axis if LOCK_AXES.contains(&axis) => (system(subject), system(against)),
        Axis::Policy => {
            let name = |point| policy(&Axis::Policy.value(point)).to_owned();
            (name(subject), name(against))
        }
        axis => {
            let name = |point| format!("{} {}", axis.name(), axis.value(point));
            (name(subject), name(against))
        }
    }
}

/// Whether both sides of a comparison are points of one series.
pub fn is_along_x(study: &Study, comparison: &Comparison) -> bool {
    let [subject, against] =
        [comparison.subject, comparison.against].map(|ix| &study.points[ix].point);
    study.layout.is_along_x(subject, against)
}

/// The values that both sides of a comparison share, if the study has others. Excludes the value
/// on the axis of the charts.
pub fn surroundings(study: &Study, comparison: &Comparison) -> String {
    let point = &study.points[comparison.subject].point;
    let of_lock = LOCK_AXES.contains(&comparison.axis);
    let except = if of_lock { &LOCK_AXES[..] } else { &[comparison.axis][..] };
    joined([Role::Series, Role::Facet].map(|role| role_values(study, point, role, except)))
}
