//! The kernel's `pvticket/stats` in debugfs: lines `name value`.

use alloc::{string::String, vec::Vec};

use crate::json;

/// The value of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// A counter, which only grows.
    Count(u64),
    /// Anything else, such as the backend's name.
    Text(&'a str),
}

/// The figures, in the kernel's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats<'a>(Vec<(&'a str, Value<'a>)>);

impl<'a> Stats<'a> {
    /// Parses the file's text; lines without a value are left out.
    pub fn parse(text: &'a str) -> Self {
        Self(
            text.lines()
                .filter_map(|line| {
                    let (name, value) = line.split_once(char::is_whitespace)?;
                    let value = value.trim();
                    Some((name, value.parse().map_or(Value::Text(value), Value::Count)))
                })
                .collect(),
        )
    }

    /// The counts since `earlier`; texts are kept as they are now.
    pub fn since(mut self, earlier: &Stats<'_>) -> Self {
        for (name, value) in &mut self.0 {
            if let Value::Count(now) = value
                && let Some((_, Value::Count(then))) = earlier.0.iter().find(|(n, _)| n == name)
            {
                *now = now.saturating_sub(*then);
            }
        }
        self
    }

    /// Appends them as one JSON object.
    pub fn write_json(&self, out: &mut String) {
        out.push('{');
        json::separated(out, &self.0, |out, (name, value)| {
            json::string(out, name);
            out.push(':');
            match value {
                Value::Text(text) => json::string(out, text),
                Value::Count(count) => json::number(out, *count),
            }
        });
        out.push('}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_subtracted_and_texts_kept() {
        let before = Stats::parse("backend vmm\ntaken_slow 3\nkicked 1\n");
        let after = Stats::parse("backend vmm\ntaken_slow 10\nkicked 1\nnew 2\n");
        let mut json = String::new();
        after.since(&before).write_json(&mut json);
        assert_eq!(json, r#"{"backend":"vmm","taken_slow":7,"kicked":0,"new":2}"#);
    }

    #[test]
    fn odd_lines_are_left_out() {
        assert_eq!(Stats::parse("\nlonely\n"), Stats::parse(""));
    }
}
