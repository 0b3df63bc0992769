//! Words of a command line.

use std::{fmt::Display, ops::RangeInclusive, str::FromStr};

/// The number of an option. The error is one line, and names both.
pub fn number<T: FromStr + PartialOrd + Display>(
    option: &str,
    text: &str,
    range: &RangeInclusive<T>,
) -> Result<T, String> {
    text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
        format!("{option} '{text}' is not a number from {} to {}", range.start(), range.end())
    })
}
