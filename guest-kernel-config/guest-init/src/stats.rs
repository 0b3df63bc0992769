//! The kernel's `pvticket/stats` in debugfs: lines `name value`.

use alloc::{string::String, vec::Vec};

use crate::json;

/// The value of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatValue<'a> {
    /// A counter, which only grows.
    Count(u64),
    /// Anything else, such as the backend's name.
    Text(&'a str),
}

/// The figures, in the kernel's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelStats<'a>(Vec<(&'a str, StatValue<'a>)>);

impl<'a> KernelStats<'a> {
    /// Parses the file's text; lines without a value are left out.
    pub fn parse(text: &'a str) -> Self {
        Self(
            text.lines()
                .filter_map(|line| {
                    let (name, value) = line.split_once(char::is_whitespace)?;
                    let value = value.trim();
                    Some((name, value.parse().map_or(StatValue::Text(value), StatValue::Count)))
                })
                .collect(),
        )
    }

    /// The counts since `earlier`; texts are kept as they are now.
    pub fn since(mut self, earlier: &KernelStats<'_>) -> Self {
        for (name, value) in &mut self.0 {
            if let StatValue::Count(now) = value
                && let Some((_, StatValue::Count(then))) = earlier.0.iter().find(|(n, _)| n == name)
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
                StatValue::Text(text) => json::string(out, text),
                StatValue::Count(count) => json::number(out, *count),
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
        let before = KernelStats::parse("backend vmm\ntaken_slow 3\nkicked 1\n");
        let after = KernelStats::parse("backend vmm\ntaken_slow 10\nkicked 1\nnew 2\n");
        let mut json = String::new();
        after.since(&before).write_json(&mut json);
        assert_eq!(json, r#"{"backend":"vmm","taken_slow":7,"kicked":0,"new":2}"#);
    }

    #[test]
    fn odd_lines_are_left_out() {
        assert_eq!(KernelStats::parse("\nlonely\n"), KernelStats::parse(""));
    }
}
