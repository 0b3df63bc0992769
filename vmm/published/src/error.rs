//! Errors in a file of figures, with their line.

use base::shown;
use thiserror::Error;

/// Why a file of figures cannot be used, in one line whatever the file has in its texts.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {}", shown::line(&fault.to_string()))]
pub struct KeyError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub fault: KeyFault,
}

/// The kinds of errors in such a file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum KeyFault {
    /// The file is not valid TOML.
    #[error("{0}")]
    Toml(String),
    /// A key is unknown.
    #[error("unknown key '{key}'; there are {}", .known.join(", "))]
    Unknown {
        /// The key, as written.
        key: String,
        /// The keys that are valid there.
        known: Vec<&'static str>,
    },
    /// A key is missing.
    #[error("'{key}' is missing")]
    Missing {
        /// The key, with its table.
        key: String,
    },
    /// A value has the wrong type.
    #[error("{key} wants {wanted}, not {found}")]
    Kind {
        /// The key.
        key: String,
        /// What it wants.
        wanted: &'static str,
        /// What was found, as TOML names it.
        found: &'static str,
    },
    /// A value is invalid.
    #[error("{key}: {why}")]
    Value {
        /// The key.
        key: String,
        /// What is wrong with the value.
        why: String,
    },
}

impl KeyFault {
    pub(crate) const fn at(self, line: usize) -> KeyError {
        KeyError { line, fault: self }
    }
}
