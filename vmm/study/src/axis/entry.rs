//! Table entries of the axes.

use crate::{point::Point, spec::Setting, store::export::columns::Column};

/// Value of a spec for a disabled option.
pub(crate) const OFF: &str = "off";

/// Value of a spec for no faults, options or groups.
pub(crate) const NONE: &str = "none";

/// Properties of an axis. Compiler and tests require a field of [`Point`] and a key of [`super::KEYS`].
pub(super) struct Entry {
    /// Key in a spec and for `--only`; None if a spec cannot vary it.
    pub(super) key: Option<&'static str>,
    /// Name in reports.
    pub(super) name: &'static str,
    /// Title of a chart's axis, if it differs from the name.
    pub(super) title: Option<&'static str>,
    /// Values of a spec that omits the key.
    pub(super) default: Defaults,
    /// Formats a point's value as in a spec; unused by [`Numbers::Counts`].
    pub(super) text: fn(&Point) -> String,
    /// Values as numbers, for charts.
    pub(super) numbers: Numbers,
    /// Whether its first value is the baseline of the others (locks: [`Point::is_baseline_of`]). Other axes
    /// change the work itself, and a ratio along them is meaningless.
    pub(super) has_baseline: bool,
    /// Whether values may contain commas, which separate the values of other keys in an option.
    pub(super) has_commas: bool,
    /// Columns in exported tables.
    pub(super) columns: &'static [Column],
}

/// Values of a spec that omits a key.
pub(super) enum Defaults {
    /// Fixed values.
    Words(&'static [&'static str]),
    /// A value that depends on the host's CPUs or the run's guest kernel, or is a constant of the program.
    Computed(fn(&Setting<'_>) -> String),
}

impl Defaults {
    pub(super) const NONE: Self = Self::Words(&[NONE]);
    pub(super) const OFF: Self = Self::Words(&[OFF]);
}

/// Conversion of values to numbers.
pub(super) enum Numbers {
    /// The values are categories.
    No,
    /// Numbers.
    Counts(fn(&Point) -> f64),
    /// Times in nanoseconds.
    Nanos(fn(&Point) -> f64),
}

impl Entry {
    /// An entry whose values are categories.
    pub(super) const fn new(
        key: &'static str,
        name: &'static str,
        text: fn(&Point) -> String,
    ) -> Self {
        Self { key: Some(key), name, text, ..Self::PLAIN }
    }

    /// An entry whose values are numbers.
    pub(super) const fn counted(
        key: &'static str,
        name: &'static str,
        number: fn(&Point) -> f64,
    ) -> Self {
        Self { key: Some(key), name, numbers: Numbers::Counts(number), ..Self::PLAIN }
    }

    /// Defaults of an entry: no key, no columns, and categories as values.
    pub(super) const PLAIN: Self = Self {
        key: None,
        name: "",
        title: None,
        default: Defaults::Words(&[""]),
        text: |_| String::new(),
        numbers: Numbers::No,
        has_baseline: false,
        has_commas: false,
        columns: &[],
    };
}

/// Formats a value that may be switched off.
pub(super) fn or_off(value: Option<impl ToString>) -> String {
    value.map_or_else(|| OFF.to_owned(), |value| value.to_string())
}

/// Formats a value that is on or off.
pub(super) const fn on_or_off(value: bool) -> &'static str {
    if value { "on" } else { OFF }
}

/// Formats a value that may be absent.
pub(super) fn or_none(value: Option<&impl ToString>) -> String {
    value.map_or_else(|| NONE.to_owned(), ToString::to_string)
}
