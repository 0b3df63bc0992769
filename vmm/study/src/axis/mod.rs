//! Axes of a matrix: properties that a spec can give several values, and that points can differ in.
//!
//! [`table`] defines each axis. Keys, defaults, orders and columns are looked up through this module.

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

/// Axes that distinguish locks; the first is the lock itself.
pub const LOCK_AXES: [Axis; 4] = [Axis::Lock, Axis::Backend, Axis::Handoff, Axis::Label];

/// Formats a point's value for a key of a spec's matrix as in a spec; empty for an unknown key.
pub fn value(point: &Point, key: &str) -> String {
    match axis_for(key) {
        Some(axis) => axis.value(point),
        // Points that differ only in the seed are repetitions of one point.
        None if key == SEEDS => point.seed.to_string(),
        None => String::new(),
    }
}

/// Returns the default values of a key of the matrix; a single empty value if they depend on the guest.
pub(crate) fn default_values(key: &str, setting: &Setting<'_>) -> Vec<String> {
    match axis_for(key).map(|axis| &axis.entry().default) {
        Some(Defaults::Words(words)) => words.iter().map(|word| (*word).to_owned()).collect(),
        Some(Defaults::Computed(value)) => vec![value(setting)],
        None => vec!["1".to_owned()],
    }
}

/// Sets all fields of a point except its host from the values of a combination.
pub(crate) fn read(
    from: &Combination<'_>,
    setting: &Setting<'_>,
    point: &mut Point,
) -> Result<(), SpecError> {
    /// In the order of the keys. Computed only once: a spec may have 10^5 combinations.
    static IN_ORDER: LazyLock<Vec<Axis>> =
        LazyLock::new(|| KEYS.into_iter().filter_map(axis_for).collect());
    point.seed = from.parse(SEEDS)?;
    IN_ORDER.iter().try_for_each(|axis| axis.read(from, setting, point))
}

/// Returns the key of a spec's matrix with this name, in which underscores are allowed.
pub(crate) fn key_named(name: &str) -> Option<&'static str> {
    let name = name.replace('_', "-");
    KEYS.into_iter().find(|key| *key == name)
}

/// Whether a value of this key may have commas.
pub(crate) fn has_commas(key: &str) -> bool {
    axis_for(key).is_some_and(|axis| axis.entry().has_commas)
}

fn axis_for(key: &str) -> Option<Axis> {
    Axis::ALL.into_iter().find(|axis| axis.key() == Some(key))
}

impl Axis {
    /// Returns the key in a spec and for `--only`; None if the axis cannot be selected.
    pub const fn key(self) -> Option<&'static str> {
        self.entry().key
    }

    /// Returns the name in reports.
    pub const fn name(self) -> &'static str {
        self.entry().name
    }

    /// Returns the title of a chart's axis.
    pub fn title(self) -> &'static str {
        self.entry().title.unwrap_or(self.name())
    }

    /// Formats a point's value on this axis as in a spec.
    pub fn value(self, point: &Point) -> String {
        match self.entry().numbers {
            Numbers::Counts(number) => number(point).to_string(),
            Numbers::No | Numbers::Nanos(_) => (self.entry().text)(point),
        }
    }

    /// Returns a point's value on a numeric axis; times are in nanoseconds, the window in seconds.
    pub fn number(self, point: &Point) -> Option<f64> {
        match self.entry().numbers {
            Numbers::No => None,
            Numbers::Counts(number) | Numbers::Nanos(number) => Some(number(point)),
        }
    }

    /// Whether its numbers are times in nanoseconds.
    pub const fn is_time(self) -> bool {
        matches!(self.entry().numbers, Numbers::Nanos(_))
    }

    /// Whether the first of its values is the baseline of the others.
    pub const fn has_baseline(self) -> bool {
        self.entry().has_baseline
    }

    /// Returns its columns in exported tables.
    pub(crate) const fn columns(self) -> &'static [Column] {
        self.entry().columns
    }

    /// Returns the axes along which `points` differ.
    pub fn varying<'a>(points: impl Iterator<Item = &'a Point> + Clone) -> Vec<Self> {
        let differs = |axis: &Self| {
            let mut points = points.clone().filter(|point| axis.applies_to(point));
            let Some(first) = points.next() else { return false };
            points.any(|point| !axis.has_same(first, point))
        };
        Self::ALL.into_iter().filter(differs).collect()
    }

    /// Whether both points have the same value. Steal time that follows from the schedule is no further difference.
    fn has_same(self, a: &Point, b: &Point) -> bool {
        match self {
            Self::StealTime => a.named_steal() == b.named_steal(),
            axis => axis.is_same(a, b),
        }
    }

    /// Whether the axis applies to this point. Only Linux guests boot a kernel.
    fn applies_to(self, point: &Point) -> bool {
        self != Self::GuestKernel || point.guest == GuestKind::Linux
    }

    /// Returns the axes along which two points differ.
    pub fn between(a: &Point, b: &Point) -> Vec<Self> {
        Self::varying([a, b].into_iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::steal_source::StealSource;

    #[test]
    fn specs_can_vary_every_axis_with_a_key() {
        let mut keys: Vec<&str> = Axis::ALL.into_iter().filter_map(Axis::key).collect();
        keys.push(SEEDS);
        keys.sort_unstable();
        let mut matrix_keys = KEYS;
        matrix_keys.sort_unstable();
        assert_eq!(keys, matrix_keys);
    }

    /// A payload has no kernel: compared with Linux guests of one kernel, the kernel does not vary.
    #[test]
    fn kernels_vary_only_among_linux_guests() {
        use base::guest_kernel::GuestKernel;
        let payload = Point::empty();
        let linux =
            |guest_kernel| Point { guest: GuestKind::Linux, guest_kernel, ..Point::empty() };
        let [older, newer] = [GuestKernel::Linux6_1, GuestKernel::Linux6_12].map(linux);
        assert_eq!(Axis::between(&payload, &newer), [Axis::Guest]);
        assert_eq!(Axis::between(&older, &newer), [Axis::GuestKernel]);
    }

    /// Otherwise no schedule of a Linux guest would be compared with the host's, or a driver with another.
    #[test]
    fn steal_time_varies_only_if_named() {
        let point = |policy: &str, steal_time| {
            let policy = policy.parse().unwrap();
            Point { guest: GuestKind::Linux, policy, steal_time, ..Point::empty() }
        };
        let [host, kvm] = ["host", "rr"].map(|policy| point(policy, StealSource::Kvm));
        let [ours, none] =
            [StealSource::Schedule, StealSource::Off].map(|steal_time| point("rr", steal_time));
        assert_eq!(Axis::between(&host, &ours), [Axis::Policy]);
        assert_eq!(Axis::between(&host, &kvm), [Axis::Policy, Axis::StealTime]);
        for other in [&kvm, &none] {
            assert_eq!(Axis::between(&ours, other), [Axis::StealTime]);
        }
    }

    /// An entry without a name or column would merge two values, or hide them.
    #[test]
    fn every_axis_has_a_name_and_a_column() {
        for axis in Axis::ALL {
            assert!(!axis.name().is_empty() && !axis.columns().is_empty(), "{axis:?}");
        }
    }
}
