//! Errors in a spec, with their line.

use base::sanitize;
use thiserror::Error;

/// Error in a spec, in one line regardless of line feeds in the spec's texts.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {}{}", sanitize::line(&fault.to_string()), fault.remedy())]
pub struct SpecError {
    /// Line number, from 1.
    pub line: usize,
    /// The kind of fault, with the affected words.
    pub fault: SpecFault,
}

/// Kinds of errors in a spec.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SpecFault {
    /// The spec is not valid TOML.
    #[error("{0}")]
    Toml(String),
    /// A key is unknown.
    #[error("unknown key '{key}'; there are {}", .known.join(", "))]
    UnknownKey {
        /// The key, as written in the spec.
        key: String,
        /// The keys that are valid in this place.
        known: Vec<&'static str>,
    },
    /// A value has the wrong type.
    #[error("{key} must be {expected}, not {actual}")]
    Kind {
        /// The key whose value is wrong.
        key: &'static str,
        /// The expected type.
        expected: &'static str,
        /// The actual type, as named by TOML.
        actual: &'static str,
    },
    /// A value is invalid.
    #[error("{name}: {why}")]
    Value {
        /// The key or option whose value is invalid.
        name: String,
        /// Reason why it is invalid.
        why: String,
    },
    /// A list is empty, which would leave nothing to run.
    #[error("{0} is empty: leave it out, or name at least one")]
    Empty(&'static str),
    /// A value occurs twice; both would be measured as one point.
    #[error("{key} names {value} twice; for an A/A run use two labels")]
    Twice {
        /// The key of the list.
        key: &'static str,
        /// The repeated value, as text.
        value: String,
    },
    /// A combination of values cannot be run.
    #[error("{cell}: {why}")]
    Impossible {
        /// The values that conflict.
        cell: String,
        /// Reason for the conflict.
        why: String,
    },
    /// An exclude matches no cell, which is probably a mistake.
    #[error("this [[exclude]] matches no cell")]
    ExcludesNothing,
    /// There are too many excludes.
    #[error("{0} times [[exclude]]: at most {max}; one exclude may list several values of a key", max = super::exclude::MAX_EXCLUDES)]
    TooManyExcludes(usize),
    /// There are too many cells.
    #[error("{0} cells: at most {max}", max = super::MAX_CELLS)]
    TooMany(u64),
    /// Everything is excluded.
    #[error("no cells are left to run")]
    Nothing,
}

impl SpecFault {
    /// Advice to the author of a spec.
    const fn remedy(&self) -> &'static str {
        match self {
            Self::Impossible { .. } => "; change it, or remove it with [[exclude]]",
            _ => "",
        }
    }

    pub(super) const fn at(self, line: usize) -> SpecError {
        SpecError { line, fault: self }
    }
}
