//! Parses numbers of a command line, and writes counts in sentences.

use std::{fmt::Display, ops::RangeInclusive, str::FromStr};

/// A number and its noun, whose plural ends in s: `1 CPU`, `2 CPUs`.
pub fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Parses the value of a numeric option. The error is one line that names the option and the value.
pub fn number<T: FromStr + PartialOrd + Display>(
    option: &str,
    text: &str,
    range: &RangeInclusive<T>,
) -> Result<T, String> {
    text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
        format!("{option} '{text}' is not a number from {} to {}", range.start(), range.end())
    })
}
