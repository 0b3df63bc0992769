//! A spec as it is written: keys with values, each with its line.

use std::{collections::HashSet, ops::Range};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::error::{SpecError, SpecFault};

/// Keys whose values make the matrix, in the order of its loops: the outermost first.
pub const AXES: [&str; 17] = [
    "guests",
    "workloads",
    "slots",
    "vms",
    "policies",
    "slice",
    "faults",
    "critical",
    "think",
    "spin-threshold",
    "seconds",
    "vcpus",
    "seeds",
    "labels",
    "locks",
    "backends",
    "handoffs",
];

/// Keys that hold for the whole run.
const SETTINGS: [&str; 7] =
    ["name", "question", "repetitions", "warm-up", "latency", "sum-every", "host"];

/// A value as it is written, without TOML's quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    pub text: String,
    pub line: usize,
}

/// A key of the matrix with its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    pub key: &'static str,
    pub values: Vec<Value>,
}

/// Cells that are not to be run: those that have one of the values of each axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exclude {
    pub line: usize,
    pub axes: Vec<Axis>,
}

/// Everything that was written.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Form {
    pub axes: Vec<Axis>,
    pub settings: Vec<(&'static str, Value)>,
    pub excludes: Vec<Exclude>,
}

impl Form {
    /// Reads a spec.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let lines = Lines::new(text);
        let table = DeTable::parse(text).map_err(|error| {
            let line = error.span().map_or(1, |span| lines.of(&span));
            SpecFault::Toml(error.message().replace('\n', " ")).at(line)
        })?;
        let mut form = Self::default();
        for (key, value) in table.get_ref() {
            let line = lines.of(&key.span());
            let name: &str = key.get_ref();
            if name == "exclude" {
                form.excludes = excludes(&lines, value)?;
            } else if let Some(key) = AXES.iter().find(|key| **key == name) {
                form.axes.push(axis(&lines, key, value)?);
            } else if let Some(key) = SETTINGS.iter().find(|key| **key == name) {
                form.settings.push((*key, scalar(&lines, key, value)?));
            } else {
                let known = [SETTINGS.as_slice(), &AXES, &["exclude"]].concat();
                return Err(SpecFault::UnknownKey { key: name.into(), known }.at(line));
            }
        }
        Ok(form)
    }

    /// The axis of that key, if it was written.
    pub fn axis(&self, key: &str) -> Option<&Axis> {
        self.axes.iter().find(|axis| axis.key == key)
    }

    /// The setting of that key, if it was written.
    pub fn setting(&self, key: &str) -> Option<&Value> {
        self.settings.iter().find(|(its, _)| *its == key).map(|(_, value)| value)
    }
}

/// Where the lines of a text end.
struct Lines(Vec<usize>);

impl Lines {
    fn new(text: &str) -> Self {
        Self(memchr::memchr_iter(b'\n', text.as_bytes()).collect())
    }

    /// The line in which a span begins.
    fn of(&self, span: &Range<usize>) -> usize {
        self.0.partition_point(|end| *end < span.start) + 1
    }
}

fn excludes(lines: &Lines, value: &Spanned<DeValue<'_>>) -> Result<Vec<Exclude>, SpecError> {
    let wrong = |value: &Spanned<DeValue<'_>>| {
        let (wanted, found) = ("tables: [[exclude]]", value.get_ref().type_str());
        SpecFault::Kind { key: "exclude", wanted, found }.at(lines.of(&value.span()))
    };
    let tables = value.get_ref().as_array().ok_or_else(|| wrong(value))?;
    tables.iter().map(|table| exclude(lines, table).ok_or_else(|| wrong(table))?).collect()
}

/// None: it is no table.
fn exclude(lines: &Lines, value: &Spanned<DeValue<'_>>) -> Option<Result<Exclude, SpecError>> {
    let table = value.get_ref().as_table()?;
    let first = table.keys().map(|key| lines.of(&key.span())).min();
    let line = first.unwrap_or_else(|| lines.of(&value.span()));
    let axes = table.iter().map(|(key, value)| {
        let name: &str = key.get_ref();
        match AXES.iter().find(|axis| **axis == name) {
            Some(key) => axis(lines, key, value),
            None => Err(SpecFault::UnknownKey { key: name.into(), known: AXES.into() }
                .at(lines.of(&key.span()))),
        }
    });
    Some(axes.collect::<Result<_, _>>().map(|axes| Exclude { line, axes }))
}

/// One value, or a list of them.
fn axis(lines: &Lines, key: &'static str, value: &Spanned<DeValue<'_>>) -> Result<Axis, SpecError> {
    let values = match value.get_ref().as_array() {
        None => vec![scalar(lines, key, value)?],
        Some(list) => list.iter().map(|one| scalar(lines, key, one)).collect::<Result<_, _>>()?,
    };
    let line = lines.of(&value.span());
    if values.is_empty() {
        return Err(SpecFault::Empty(key).at(line));
    }
    let mut seen = HashSet::new();
    if let Some(again) = values.iter().find(|value| !seen.insert(value.text.as_str())) {
        return Err(SpecFault::Twice { key, value: again.text.clone() }.at(again.line));
    }
    Ok(Axis { key, values })
}

fn scalar(
    lines: &Lines,
    key: &'static str,
    value: &Spanned<DeValue<'_>>,
) -> Result<Value, SpecError> {
    let line = lines.of(&value.span());
    let text = match value.get_ref() {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(accounting) => accounting.to_string(),
        other => {
            let wanted = "a text or a decimal number, or a list of them";
            return Err(SpecFault::Kind { key, wanted, found: other.type_str() }.at(line));
        }
    };
    Ok(Value { text, line })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_know_their_lines() {
        let text = "name = \"x\"\nlocks = [\n  \"ticket\",\n  \"pv-ticket\",\n]\nvcpus = 4\n\n[[exclude]]\nvcpus = [4]\nlocks = \"ticket\"\n";
        let form = Form::parse(text).unwrap();
        let locks = form.axis("locks").unwrap();
        assert_eq!(locks.values[1], Value { text: "pv-ticket".into(), line: 4 });
        assert_eq!(form.axis("vcpus").unwrap().values[0].text, "4");
        assert_eq!(form.setting("name").unwrap().text, "x");
        assert_eq!((form.excludes.len(), form.excludes[0].line), (1, 9));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, line, what) in [
            (
                "name = \"x\"\nlock = \"ticket\"\n",
                2,
                "unknown key 'lock'; there are name, question",
            ),
            ("vcpus = 4\nvcpus = 5\n", 2, "duplicate key"),
            ("\n\nlocks = [\"ticket\"\n", 3, "unclosed array"),
            ("locks = []\n", 1, "locks is empty"),
            ("seconds = [0.5,\n 0.5]\n", 2, "seconds names 0.5 twice"),
            ("locks = { a = 1 }\n", 1, "locks wants a text"),
            ("vcpus = 0x10\n", 1, "vcpus wants a text or a decimal number"),
            ("exclude = 3\n", 1, "exclude wants tables"),
            ("[[exclude]]\nname = \"x\"\n", 2, "unknown key 'name'"),
        ] {
            let error = Form::parse(text).unwrap_err();
            let said = error.to_string();
            assert!(said.contains(what) && !said.contains('\n'), "{text:?}: {said}");
            assert_eq!(error.line, line, "{text:?}: {said}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "(?s).{0,200}") {
            let _ = Form::parse(&text);
        }

        #[test]
        fn no_pieces_of_a_spec_do_either(
            pieces in prop::collection::vec(prop::sample::select(vec![
                "locks", "vcpus", "=", "[", "]", "\"ticket\"", "4", "0.5", "\n", "[[exclude]]",
                "{", "}", ",", "'", "#", "true", "1979-05-27", "\u{1f512}", "seconds",
            ]), 0..40),
        ) {
            let _ = Form::parse(&pieces.join(" "));
        }
    }
}
