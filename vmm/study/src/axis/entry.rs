//! What is known of an axis.

use crate::{point::Point, spec::Setting, store::export::columns::Column};

/// What a spec writes for what is not asked for.
pub(crate) const OFF: &str = "off";

/// The word for no faults, options or groups.
pub(crate) const NONE: &str = "none";

/// An axis, but for its value. Compiler and tests ask for its field in [`Point`], and for its key in [`KEYS`](super::KEYS).
pub(super) struct Entry {
    /// Key in a spec and for `--only`; None: a spec cannot vary it.
    pub(super) key: Option<&'static str>,
    /// Name in a report.
    pub(super) name: &'static str,
    /// Title of a chart's axis, if the name does not say enough.
    pub(super) title: Option<&'static str>,
    /// The values of a spec without the key.
    pub(super) default: Defaults,
    /// A point's value, as a spec writes it.
    pub(super) text: fn(&Point) -> String,
    /// Its values as numbers, for charts.
    pub(super) numbers: Numbers,
    /// The first of its values is the baseline of the others. Other axes change the work itself, and a ratio along them
    /// says nothing.
    pub(super) has_baseline: bool,
    /// A value may have commas, which separate the values of other keys in an option.
    pub(super) has_commas: bool,
    /// Its columns in exported tables.
    pub(super) columns: &'static [Column],
}

/// The values of a spec without a key.
pub(super) enum Defaults {
    /// These.
    Words(&'static [&'static str]),
    /// One that depends on the host's CPUs or on the time of the spec, or is a number of the program.
    Of(fn(&Setting<'_>) -> String),
}

impl Defaults {
    pub(super) const NONE: Self = Self::Words(&[NONE]);
    pub(super) const OFF: Self = Self::Words(&[OFF]);
}

/// Values as numbers.
pub(super) enum Numbers {
    /// They are categories.
    No,
    /// Numbers.
    Counts(fn(&Point) -> f64),
    /// Times in nanoseconds.
    Nanos(fn(&Point) -> f64),
}

impl Entry {
    /// What an entry leaves out: a field that nothing reads, whose values are categories.
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

/// A value that may be switched off.
pub(super) fn or_off(value: Option<impl ToString>) -> String {
    value.map_or_else(|| OFF.to_owned(), |value| value.to_string())
}

/// A value that there may be none of.
pub(super) fn or_none(value: Option<&impl ToString>) -> String {
    value.map_or_else(|| NONE.to_owned(), ToString::to_string)
}
