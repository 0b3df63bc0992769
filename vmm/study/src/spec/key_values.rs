//! A key of a spec with values, in the syntax of options.

use base::sanitize;
use thiserror::Error;

use super::form::SETTINGS;
use crate::axis::{KEYS, has_commas};

/// Error parsing a key with values, in one line regardless of line feeds in the text.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum KeyError {
    /// The text does not have the form KEY=VALUE.
    #[error("'{}': write KEY=VALUE[,VALUE], for example vcpus=2x,4x", sanitize::line(.0))]
    Form(String),
    /// The key is not among the known keys.
    #[error("unknown key '{}'; there are {}", sanitize::line(.0), .1.join(", "))]
    Key(String, Vec<&'static str>),
}

/// `KEY=VALUE[,VALUE]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValues {
    pub(super) key: &'static str,
    pub(super) values: String,
}

impl KeyValues {
    /// Parses a key of the matrix with values.
    pub fn parse_matrix(text: &str) -> Result<Self, KeyError> {
        Self::new(text, KEYS.into())
    }

    /// Parses any key of a spec with values, except keys of charts and excludes.
    pub fn parse_spec(text: &str) -> Result<Self, KeyError> {
        Self::new(text, Self::keys())
    }

    /// Returns the values, split at commas except for settings and keys whose values have commas.
    pub(super) fn split_values(&self) -> Vec<&str> {
        if KEYS.contains(&self.key) && !has_commas(self.key) {
            self.values.split(',').map(str::trim).collect()
        } else {
            vec![&self.values]
        }
    }

    /// Returns the keys accepted by [`parse_spec`](Self::parse_spec).
    pub fn keys() -> Vec<&'static str> {
        [SETTINGS.as_slice(), &KEYS].concat()
    }

    /// Parses one of the `known` keys with values. Users may write underscores in the key.
    fn new(text: &str, known: Vec<&'static str>) -> Result<Self, KeyError> {
        let (name, values) = text.split_once('=').ok_or_else(|| KeyError::Form(text.into()))?;
        let key = name.trim().replace('_', "-");
        match known.iter().find(|known| **known == key) {
            Some(key) => Ok(Self { key, values: values.trim().to_owned() }),
            None => Err(KeyError::Key(name.trim().to_owned(), known)),
        }
    }
}
