//! The form of a spec: keys and values as written, each with its line or option.

use std::{collections::HashSet, fmt::Write as _, ops::RangeInclusive, str::FromStr};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    charts::{self, Charts},
    error::{SpecError, SpecFault},
    key_values::KeyValues,
};
use crate::{
    axis::{KEYS, key_named},
    point::GuestKind,
};
use base::text_lines::TextLines;

/// Line of a value that is not written in the spec, such as a default.
pub(super) const UNWRITTEN: usize = 0;

/// Keys that apply to the whole run.
pub(super) const SETTINGS: [&str; 8] =
    ["name", "question", "repetitions", "warm-up", "latency", "sum-every", "host", "root"];

/// Prefix of the option that sets any key; the key follows.
const SET: &str = "--set ";

/// A value as written, without TOML's quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// The name known to the user: the key, the option, or `--set` with the key.
    pub name: String,
    pub text: String,
    /// Line number from 1; 1 for all options, `UNWRITTEN` for defaults.
    pub line: usize,
}

impl Value {
    /// Formats the value with its name, as the user wrote them.
    pub(super) fn written(&self) -> String {
        let joint = if self.name.starts_with(SET) { '=' } else { ' ' };
        format!("{}{joint}{}", self.name, self.text)
    }

    pub(super) fn parse<T: FromStr<Err: ToString>>(&self) -> Result<T, SpecError> {
        self.text.parse::<T>().map_err(|error| {
            let reason = error.to_string();
            let is_named = reason.contains(&format!("'{}'", self.text));
            self.invalid(if is_named { reason } else { format!("'{}': {reason}", self.text) })
        })
    }

    pub(super) fn number(&self, range: RangeInclusive<u32>) -> Result<u32, SpecError> {
        let number = self.text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| {
            let (low, high) = (range.start(), range.end());
            self.invalid(format!("'{}' is not a number from {low} to {high}", self.text))
        })
    }

    /// Returns the error for an invalid value.
    pub(super) fn invalid(&self, why: impl ToString) -> SpecError {
        SpecFault::Value { name: self.name.clone(), why: why.to_string() }.at(self.line)
    }
}

/// A key of the matrix with its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    pub key: &'static str,
    pub values: Vec<Value>,
}

/// Excludes the cells that have one of the listed values on each of its axes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exclude {
    pub line: usize,
    pub axes: Vec<Axis>,
}

/// A spec before defaults, from a text or from options.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Form {
    /// The spec as TOML.
    text: String,
    pub(super) axes: Vec<Axis>,
    settings: Vec<(&'static str, Value)>,
    pub(super) excludes: Vec<Exclude>,
    pub(super) charts: Charts,
}

impl Form {
    /// Parses a spec.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let lines = TextLines::new(text);
        let table = DeTable::parse(text).map_err(|error| {
            let line = error.span().map_or(1, |span| lines.line_at(&span));
            SpecFault::Toml(error.message().replace('\n', " ")).at(line)
        })?;
        let mut form = Self { text: text.to_owned(), ..Self::default() };
        for (key, value) in table.get_ref() {
            let line = lines.line_at(&key.span());
            let name: &str = key.get_ref();
            if name == "exclude" {
                form.excludes = excludes(&lines, value)?;
            } else if let Some(key) = key_named(name) {
                // TOML rejects duplicate keys, but not keys that differ in `-` and `_`.
                if form.axis(key).is_some() {
                    return Err(SpecFault::Toml(format!("duplicate key {key}")).at(line));
                }
                form.axes.push(axis(&lines, key, value)?);
            } else if let Some(key) = SETTINGS.iter().find(|key| **key == name) {
                form.settings.push((*key, scalar(&lines, key, value)?));
            } else if let Some(key) = charts::KEYS.iter().find(|key| **key == name) {
                form.charts.set(key, line, &list(&lines, key, value)?)?;
            } else {
                let known = [SETTINGS.as_slice(), &charts::KEYS, &KEYS, &["exclude"]].concat();
                return Err(SpecFault::UnknownKey { key: name.into(), known }.at(line));
            }
        }
        Ok(form)
    }

    /// Adds the values of a key from the option `name`, without duplicates. No values: omits the key.
    pub fn set<T: ToString>(
        &mut self,
        key: &'static str,
        name: &str,
        values: impl IntoIterator<Item = T>,
    ) -> &mut Self {
        let mut texts: Vec<String> = Vec::new();
        for text in values.into_iter().map(|value| value.to_string()) {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        // JSON strings are valid TOML strings, and writing to a String cannot fail.
        let _ = match texts.as_slice() {
            [] => return self,
            [text] => writeln!(self.text, "{key} = {}", serde_json::json!(text)),
            texts => writeln!(self.text, "{key} = {}", serde_json::json!(texts)),
        };
        let mut values =
            texts.into_iter().map(|text| Value { name: name.to_owned(), text, line: 1 });
        if SETTINGS.contains(&key) {
            self.settings.extend(values.next().map(|value| (key, value)));
        } else {
            self.axes.push(Axis { key, values: values.collect() });
        }
        self
    }

    /// Adds keys from `--set`, which may repeat a key for more values. Fails for keys that have been set by
    /// other options, and for several values of a setting.
    pub fn assign(&mut self, assignments: &[KeyValues]) -> Result<(), SpecError> {
        for key in KeyValues::keys() {
            let of_key = assignments.iter().filter(|assignment| assignment.key == key);
            let values: Vec<&str> = of_key.flat_map(KeyValues::split_values).collect();
            let name = format!("{SET}{key}");
            let why = match self.name(key) {
                Some(option) if !values.is_empty() => {
                    format!("it has a separate option, {option}")
                }
                _ if SETTINGS.contains(&key) && values.len() > 1 => "it has one value".to_owned(),
                _ => {
                    self.set(key, &name, values);
                    continue;
                }
            };
            return Err(SpecFault::Value { name, why }.at(1));
        }
        Ok(())
    }

    /// Returns the name by which the user knows the values of a key; None if the form does not have the key.
    fn name(&self, key: &str) -> Option<&str> {
        let of_axis = self.axis(key).and_then(|axis| axis.values.first());
        of_axis.or_else(|| self.setting(key)).map(|value| value.name.as_str())
    }

    /// Whether the form has this key.
    pub fn has(&self, key: &str) -> bool {
        self.name(key).is_some()
    }

    /// Returns the spec as TOML: as written, or generated from options.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the values of a key of the matrix as written.
    pub fn values(&self, key: &str) -> impl Iterator<Item = &str> {
        self.axis(key).into_iter().flat_map(|axis| &axis.values).map(|value| value.text.as_str())
    }

    /// Whether all guests, and therefore the CPUs, are simulated.
    pub fn is_simulated(&self) -> bool {
        let mut guests = self.values("guests").peekable();
        guests.peek().is_some() && guests.all(|guest| guest == GuestKind::Sim.name())
    }

    /// Returns the largest number of slots; None if it depends on the host.
    pub fn max_slots(&self) -> Option<usize> {
        self.values("slots").filter_map(|slots| slots.parse().ok()).max()
    }

    /// Returns the axis with this key, if the spec has it.
    pub(super) fn axis(&self, key: &str) -> Option<&Axis> {
        self.axes.iter().find(|axis| axis.key == key)
    }

    /// Returns the setting with this key, if the spec has it.
    pub(super) fn setting(&self, key: &str) -> Option<&Value> {
        self.settings.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }
}

fn excludes(lines: &TextLines, value: &Spanned<DeValue<'_>>) -> Result<Vec<Exclude>, SpecError> {
    let invalid = |value: &Spanned<DeValue<'_>>| {
        let (expected, actual) = ("tables: [[exclude]]", value.get_ref().type_str());
        SpecFault::Kind { key: "exclude", expected, actual }.at(lines.line_at(&value.span()))
    };
    let tables = value.get_ref().as_array().ok_or_else(|| invalid(value))?;
    tables.iter().map(|table| exclude(lines, table).ok_or_else(|| invalid(table))?).collect()
}

/// Parses an exclude; None if it is not a table.
fn exclude(lines: &TextLines, value: &Spanned<DeValue<'_>>) -> Option<Result<Exclude, SpecError>> {
    let table = value.get_ref().as_table()?;
    let first = table.keys().map(|key| lines.line_at(&key.span())).min();
    let line = first.unwrap_or_else(|| lines.line_at(&value.span()));
    let axes = table.iter().map(|(key, value)| {
        let name: &str = key.get_ref();
        match key_named(name) {
            Some(key) => axis(lines, key, value),
            None => Err(SpecFault::UnknownKey { key: name.into(), known: KEYS.into() }
                .at(lines.line_at(&key.span()))),
        }
    });
    Some(axes.collect::<Result<_, _>>().map(|axes| Exclude { line, axes }))
}

/// Parses one value or a list of values.
fn list(
    lines: &TextLines,
    key: &'static str,
    value: &Spanned<DeValue<'_>>,
) -> Result<Vec<Value>, SpecError> {
    match value.get_ref().as_array() {
        None => Ok(vec![scalar(lines, key, value)?]),
        Some(list) => list.iter().map(|item| scalar(lines, key, item)).collect(),
    }
}

fn axis(
    lines: &TextLines,
    key: &'static str,
    value: &Spanned<DeValue<'_>>,
) -> Result<Axis, SpecError> {
    let values = list(lines, key, value)?;
    let line = lines.line_at(&value.span());
    if values.is_empty() {
        return Err(SpecFault::Empty(key).at(line));
    }
    let mut known = HashSet::new();
    if let Some(duplicate) = values.iter().find(|value| !known.insert(value.text.as_str())) {
        return Err(SpecFault::Twice { key, value: duplicate.text.clone() }.at(duplicate.line));
    }
    Ok(Axis { key, values })
}

fn scalar(
    lines: &TextLines,
    key: &'static str,
    value: &Spanned<DeValue<'_>>,
) -> Result<Value, SpecError> {
    let line = lines.line_at(&value.span());
    let text = match value.get_ref() {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(flag) => flag.to_string(),
        other => {
            let expected = "a text or a decimal number, or a list of them";
            return Err(SpecFault::Kind { key, expected, actual: other.type_str() }.at(line));
        }
    };
    Ok(Value { name: key.to_owned(), text, line })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_line_numbers() {
        let text = "name = \"x\"\nlocks = [\n  \"ticket\",\n  \"pv-ticket\",\n]\nvcpus = 4\n\n[[exclude]]\nvcpus = [4]\nlocks = \"ticket\"\n";
        let form = Form::parse(text).unwrap();
        let locks = form.axis("locks").unwrap();
        assert_eq!(
            locks.values[1],
            Value { name: "locks".into(), text: "pv-ticket".into(), line: 4 }
        );
        assert_eq!(form.axis("vcpus").unwrap().values[0].text, "4");
        assert_eq!(form.setting("name").unwrap().text, "x");
        assert_eq!((form.excludes.len(), form.excludes[0].line), (1, 9));
    }

    #[test]
    fn options_round_trip_through_text() {
        let mut form = Form::default();
        form.set("vcpus", "--vcpus", ["1x", "2", "1x"]).set("machines", "--machine", ["a \"b\""]);
        form.set("repetitions", "--runs", [3]).set("labels", "--label", [""; 0]);
        let read = Form::parse(form.text()).unwrap();
        let values = |form: &Form, key| form.values(key).map(str::to_owned).collect::<Vec<_>>();
        for key in ["vcpus", "machines", "labels"] {
            assert_eq!(values(&read, key), values(&form, key));
        }
        assert_eq!(values(&form, "vcpus"), ["1x", "2"]);
        assert_eq!(read.setting("repetitions").unwrap().text, "3");
        assert_eq!(form.setting("repetitions").unwrap().name, "--runs");
    }

    #[test]
    fn charts_are_named_by_keys() {
        let charts = |text| Form::parse(text).unwrap().charts;
        assert_eq!(charts("vcpus = 4"), Charts::default());
        let both = charts("x = \"policies\"\nfacets = \"locks\"");
        assert_eq!(both, Charts { x: Some("policies"), facets: Some(vec!["locks"]) });
        assert_eq!(charts("facets = []").facets, Some(vec![]));
    }

    #[test]
    fn errors_have_line_numbers() {
        let rows = include_str!("form_tests.txt").lines().filter(|line| !line.starts_with('#'));
        for row in rows {
            let [line, text, what] = row.split(" | ").collect::<Vec<_>>()[..] else {
                panic!("{row}")
            };
            let text = &text.replace('⏎', "\n");
            let error = Form::parse(text).unwrap_err();
            let message = error.to_string();
            assert!(message.contains(what) && !message.contains('\n'), "{text:?}: {message}");
            assert_eq!(error.line.to_string(), line, "{text:?}: {message}");
        }
    }
}
