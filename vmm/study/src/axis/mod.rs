//! The axes of a matrix: what a spec can give several values, and points can differ in.
//!
//! [`table`] has everything about each of them; who asks for a key, a default, an order or a column goes through here.

mod entry;
mod table;

use std::sync::LazyLock;

use crate::{
    point::{GuestKind, Point},
    spec::{Combination, Setting, SpecError},
    store::export::columns::Column,
};
pub(crate) use entry::NONE;
use entry::{Defaults, Numbers};
pub(crate) use table::SEEDS;
pub use table::{Axis, KEYS};

/// What tells locks apart; the first is the lock itself.
pub const OF_LOCKS: [Axis; 4] = [Axis::Lock, Axis::Backend, Axis::Handoff, Axis::Label];

/// The value of a point for a key of a spec's matrix, as a spec writes it; empty for an unknown key.
pub fn value(point: &Point, key: &str) -> String {
    match of_key(key) {
        Some(axis) => axis.value(point),
        // Repetitions that differ only in the seed are of one point.
        None if key == SEEDS => point.seed.to_string(),
        None => String::new(),
    }
}

/// The values of a spec without this key of its matrix; an empty one if they depend on the guest.
pub(crate) fn default_of(key: &str, setting: &Setting<'_>) -> Vec<String> {
    match of_key(key).map(|axis| &axis.entry().default) {
        Some(Defaults::Words(words)) => words.iter().map(|word| (*word).to_owned()).collect(),
        Some(Defaults::Of(value)) => vec![value(setting)],
        None => vec!["1".to_owned()],
    }
}

/// Sets all fields of a point but its host, from the values of a combination.
pub(crate) fn read(
    from: &Combination<'_>,
    setting: &Setting<'_>,
    point: &mut Point,
) -> Result<(), SpecError> {
    /// In the order of the keys: a spec may have 10^5 combinations.
    static IN_ORDER: LazyLock<Vec<Axis>> =
        LazyLock::new(|| KEYS.into_iter().filter_map(of_key).collect());
    point.seed = from.parse(SEEDS)?;
    IN_ORDER.iter().try_for_each(|axis| axis.read(from, setting, point))
}

/// The key of a spec's matrix that a user means, who may write underscores in it.
pub(crate) fn key_named(name: &str) -> Option<&'static str> {
    let name = name.replace('_', "-");
    KEYS.into_iter().find(|key| *key == name)
}

/// May a value of this key have commas?
pub(crate) fn has_commas(key: &str) -> bool {
    of_key(key).is_some_and(|axis| axis.entry().has_commas)
}

/// The axis with this key.
fn of_key(key: &str) -> Option<Axis> {
    Axis::ALL.into_iter().find(|axis| axis.key() == Some(key))
}

impl Axis {
    /// Key in a spec and for `--only`; None: it cannot be selected.
    pub const fn key(self) -> Option<&'static str> {
        self.entry().key
    }

    /// Name in a report.
    pub const fn name(self) -> &'static str {
        self.entry().name
    }

    /// Title of a chart's axis.
    pub fn title(self) -> &'static str {
        self.entry().title.unwrap_or(self.name())
    }

    /// A point's value on this axis, as a spec writes it.
    pub fn value(self, point: &Point) -> String {
        (self.entry().text)(point)
    }

    /// A point's value on an axis of numbers; times are in nanoseconds, the window in seconds.
    pub fn number(self, point: &Point) -> Option<f64> {
        match self.entry().numbers {
            Numbers::No => None,
            Numbers::Counts(number) | Numbers::Nanos(number) => Some(number(point)),
        }
    }

    /// Are its numbers times in nanoseconds?
    pub const fn is_of_times(self) -> bool {
        matches!(self.entry().numbers, Numbers::Nanos(_))
    }

    /// Is the first of its values the baseline of the others?
    pub const fn has_baseline(self) -> bool {
        self.entry().has_baseline
    }

    /// Its columns in exported tables.
    pub(crate) const fn columns(self) -> &'static [Column] {
        self.entry().columns
    }

    /// The axes along which `points` differ.
    pub fn varying<'a>(points: impl Iterator<Item = &'a Point> + Clone) -> Vec<Self> {
        let differs = |axis: &Self| {
            let mut points = points.clone().filter(|point| axis.is_of(point));
            let Some(first) = points.next() else { return false };
            points.any(|point| !axis.is_same(first, point))
        };
        Self::ALL.into_iter().filter(differs).collect()
    }

    /// Has the point a value on this axis? Only Linux guests boot a kernel.
    fn is_of(self, point: &Point) -> bool {
        self != Self::GuestKernel || point.guest == GuestKind::Linux
    }

    /// The axes along which two points differ.
    pub fn between(a: &Point, b: &Point) -> Vec<Self> {
        Self::varying([a, b].into_iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_can_vary_every_axis_that_has_a_key() {
        let mut keys: Vec<&str> = Axis::ALL.into_iter().filter_map(Axis::key).collect();
        keys.push(SEEDS);
        keys.sort_unstable();
        let mut of_matrix = KEYS;
        of_matrix.sort_unstable();
        assert_eq!(keys, of_matrix);
    }

    /// A payload has none: beside Linux guests of one kernel, none varies.
    #[test]
    fn only_linux_guests_differ_in_their_kernel() {
        use base::guest_kernel::GuestKernel;
        let payload = Point::blank();
        let linux =
            |guest_kernel| Point { guest: GuestKind::Linux, guest_kernel, ..Point::blank() };
        let [older, newer] = [GuestKernel::Linux6_1, GuestKernel::Linux6_12].map(linux);
        assert_eq!(Axis::between(&payload, &newer), [Axis::Guest]);
        assert_eq!(Axis::between(&older, &newer), [Axis::GuestKernel]);
    }

    /// An entry that leaves them out would make two values one, or hide them.
    #[test]
    fn every_axis_has_a_name_and_a_column() {
        for axis in Axis::ALL {
            assert!(!axis.name().is_empty() && !axis.columns().is_empty(), "{axis:?}");
        }
    }
}
