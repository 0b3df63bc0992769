//! Reads the TOML of machine files. An error is one line with the line number and the key.

use base::sanitize;
use base::text_lines::TextLines;
use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// An error in a machine file. Its message is one line, even if the file's strings are not.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {}", sanitize::line(&fault.to_string()))]
pub struct KeyError {
    /// The line, from 1.
    pub line: usize,
    /// The kind of error.
    pub fault: KeyFault,
}

/// The kinds of errors in a machine file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum KeyFault {
    /// The file is not valid TOML.
    #[error("{0}")]
    Toml(String),
    /// A key is unknown.
    #[error("unknown key '{key}'; known keys: {}", .known.join(", "))]
    Unknown {
        /// The key, with its table.
        key: String,
        /// The valid keys at this place.
        known: Vec<&'static str>,
    },
    /// A key is missing.
    #[error("'{key}' is missing")]
    Missing {
        /// The key, with its table.
        key: String,
    },
    /// A value has the wrong type.
    #[error("{key} must be {expected}, not {actual}")]
    Kind {
        /// The key.
        key: String,
        /// The expected type.
        expected: &'static str,
        /// The type found, as TOML names it.
        actual: &'static str,
    },
    /// A value is invalid.
    #[error("{key}: {why}")]
    Value {
        /// The key.
        key: String,
        /// The reason.
        why: String,
    },
}

impl KeyFault {
    const fn at_line(self, line: usize) -> KeyError {
        KeyError { line, fault: self }
    }
}

/// The value of a key, or its error.
pub(super) type Result<T> = std::result::Result<T, KeyError>;

/// Reads a text whose top-level keys are `known`.
pub(super) fn read<T>(
    text: &str,
    known: &[&'static str],
    convert: impl FnOnce(&Keys<'_>) -> Result<T>,
) -> Result<T> {
    let lines = TextLines::new(text);
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| lines.line_at(&span));
        KeyFault::Toml(error.message().replace('\n', " ")).at_line(line)
    })?;
    convert(&Keys::new(&lines, table.get_ref(), String::new(), 1, known)?)
}

/// A table whose keys are known.
pub(super) struct Keys<'t> {
    lines: &'t TextLines,
    table: &'t DeTable<'t>,
    /// Prefix of its keys in messages: empty, or ends with a dot.
    prefix: String,
    /// Line of its header.
    line: usize,
}

impl<'t> Keys<'t> {
    fn new(
        lines: &'t TextLines,
        table: &'t DeTable<'t>,
        prefix: String,
        line: usize,
        known: &[&'static str],
    ) -> Result<Self> {
        for key in table.keys() {
            let name: &str = key.get_ref();
            if !known.contains(&name) {
                let (key, line) = (format!("{prefix}{name}"), lines.line_at(&key.span()));
                return Err(KeyFault::Unknown { key, known: known.into() }.at_line(line));
            }
        }
        Ok(Self { lines, table, prefix, line })
    }

    /// A key with its table, as shown in messages.
    pub(super) fn key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    pub(super) fn get(&self, key: &str) -> Option<&'t Spanned<DeValue<'t>>> {
        self.table.get(key)
    }

    fn require(&self, key: &str) -> Result<&'t Spanned<DeValue<'t>>> {
        self.get(key).ok_or_else(|| self.missing(key))
    }

    fn missing(&self, key: &str) -> KeyError {
        KeyFault::Missing { key: self.key(key) }.at_line(self.line)
    }

    fn bad_type(&self, key: &str, kind: &'static str, value: &Spanned<DeValue<'_>>) -> KeyError {
        let (key, actual) = (self.key(key), value.get_ref().type_str());
        KeyFault::Kind { key, expected: kind, actual }.at_line(self.lines.line_at(&value.span()))
    }

    /// The error for an invalid value of the right type.
    pub(super) fn invalid(&self, key: &str, reason: String) -> KeyError {
        let line = self.get(key).map_or(self.line, |value| self.lines.line_at(&value.span()));
        KeyFault::Value { key: self.key(key), why: reason }.at_line(line)
    }

    /// A nonempty text in one line.
    pub(super) fn text(&self, key: &str) -> Result<String> {
        let value = self.require(key)?;
        let text = value.get_ref().as_str().ok_or_else(|| self.bad_type(key, "a text", value))?;
        if text.is_empty() || text.chars().any(char::is_control) {
            return Err(self.invalid(key, "must be a text in one line".into()));
        }
        Ok(text.to_owned())
    }

    /// A decimal number from `min` to `max`.
    pub(super) fn number(&self, key: &str, min: f64, max: f64) -> Result<f64> {
        let value = self.require(key)?;
        let text = match value.get_ref() {
            DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
            DeValue::Float(number) => number.as_str(),
            _ => return Err(self.bad_type(key, "a decimal number", value)),
        };
        let number = text.replace('_', "").parse::<f64>();
        match number.ok().filter(|number| (min..=max).contains(number)) {
            Some(number) => Ok(number),
            None => Err(self.invalid(key, format!("{text} is not in the range {min} to {max}"))),
        }
    }

    /// A table whose valid keys are `known`.
    pub(super) fn table(&self, key: &str, known: &[&'static str]) -> Result<Keys<'t>> {
        self.subtable(key, self.require(key)?, self.key(key) + ".", known)
    }

    /// The tables of an array of tables; empty if the key is absent.
    pub(super) fn tables(&self, key: &str, known: &[&'static str]) -> Result<Vec<Keys<'t>>> {
        let Some(value) = self.get(key) else { return Ok(Vec::new()) };
        let items = value.get_ref().as_array();
        let items = items.ok_or_else(|| self.bad_type(key, "an array of tables", value))?;
        items.iter().map(|value| self.subtable(key, value, self.key(key) + ".", known)).collect()
    }

    /// The same table, with `name` as the prefix of its keys in messages.
    pub(super) fn with_prefix(self, name: &str) -> Self {
        Self { prefix: format!("{name}."), ..self }
    }

    pub(super) fn texts(&self, key: &str) -> Result<Vec<String>> {
        let value = self.require(key)?;
        let items = value.get_ref().as_array();
        let items = items.ok_or_else(|| self.bad_type(key, "an array of texts", value))?;
        let text = |value: &Spanned<DeValue<'_>>| {
            let text =
                value.get_ref().as_str().ok_or_else(|| self.bad_type(key, "texts", value))?;
            Ok(text.to_owned())
        };
        items.iter().map(text).collect()
    }

    pub(super) fn opt_text(&self, key: &str) -> Result<Option<String>> {
        self.get(key).map(|_| self.text(key)).transpose()
    }

    /// The value named by a text.
    pub(super) fn name<T: Copy>(&self, key: &str, names: &[(&str, T)]) -> Result<T> {
        self.opt_name(key, names)?.ok_or_else(|| self.missing(key))
    }

    /// The value named by an optional text.
    pub(super) fn opt_name<T: Copy>(&self, key: &str, names: &[(&str, T)]) -> Result<Option<T>> {
        let Some(text) = self.opt_text(key)? else { return Ok(None) };
        let entry = names.iter().find(|(name, _)| *name == text);
        entry.map(|(_, value)| Some(*value)).ok_or_else(|| {
            let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
            self.invalid(key, format!("'{text}' is not one of {}", names.join(", ")))
        })
    }

    /// An integer from `min` to `max`.
    pub(super) fn integer(&self, key: &str, min: u32, max: u32) -> Result<u32> {
        let number = self.number(key, min.into(), max.into())?;
        if number.fract() == 0.0 {
            Ok(number as u32)
        } else {
            Err(self.invalid(key, format!("{number} is not an integer")))
        }
    }

    fn subtable(
        &self,
        key: &str,
        value: &'t Spanned<DeValue<'t>>,
        prefix: String,
        known: &[&'static str],
    ) -> Result<Keys<'t>> {
        let table =
            value.get_ref().as_table().ok_or_else(|| self.bad_type(key, "a table", value))?;
        Keys::new(self.lines, table, prefix, self.lines.line_at(&value.span()), known)
    }
}
