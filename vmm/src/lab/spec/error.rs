//! What is wrong with a spec, and where.

use thiserror::Error;

/// A spec that cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {fault}")]
pub struct SpecError {
    /// In which line of it, from 1.
    pub line: usize,
    /// What.
    pub fault: SpecFault,
}

/// What can be wrong.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SpecFault {
    /// It is no TOML.
    #[error("{0}")]
    Toml(String),
    /// A key that means nothing.
    #[error("unknown key '{key}'; there are {}", .known.join(", "))]
    UnknownKey {
        /// The key.
        key: String,
        /// Those that mean something there.
        known: Vec<&'static str>,
    },
    /// A value of a kind that the key does not take.
    #[error("{key} wants {wanted}, not {found}")]
    Kind {
        /// The key.
        key: &'static str,
        /// What it takes.
        wanted: &'static str,
        /// What was written, in TOML's words.
        found: &'static str,
    },
    /// A value that is none.
    #[error("{key}: {why}")]
    Value {
        /// The key.
        key: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// A list with nothing in it leaves nothing to run.
    #[error("{0} is empty: leave it out, or name at least one")]
    Empty(&'static str),
    /// The same value twice would be measured twice as one.
    #[error("{key} names {value} twice; for an A/A run give two labels")]
    Twice {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
    },
    /// A cell that cannot be run.
    #[error("{cell}: {why}; change it, or take it out with [[exclude]]")]
    Impossible {
        /// The values that do not go together.
        cell: String,
        /// Why.
        why: String,
    },
    /// An exclude that matches no cell is a mistake.
    #[error("this [[exclude]] matches no cell")]
    ExcludesNothing,
    /// More excludes than are looked at for each cell.
    #[error("{0} times [[exclude]]: at most {max}; one exclude may list several values of a key", max = super::exclude::MOST)]
    TooManyExcludes(usize),
    /// More cells than anybody waits for.
    #[error("{0} cells: at most {max}", max = super::MOST_CELLS)]
    TooMany(u64),
    /// Everything is excluded.
    #[error("nothing is left to run")]
    Nothing,
}

impl SpecFault {
    pub(super) const fn at(self, line: usize) -> SpecError {
        SpecError { line, fault: self }
    }
}
