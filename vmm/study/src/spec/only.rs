//! `--only`: selects a part of a matrix.

use std::ops::Range;

use super::key_values::{KeyError, KeyValues};
use crate::{axis, plan::Level, point::Point};

/// All `--only` options together. A point has to match each of them.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Only(Vec<KeyValues>);

impl Only {
    /// Combines the options of a command line.
    pub fn new(options: Vec<KeyValues>) -> Self {
        Self(options)
    }

    /// Returns the options as written.
    pub fn texts(&self) -> Vec<String> {
        self.0.iter().map(|KeyValues { key, values }| format!("{key}={values}")).collect()
    }

    /// Parses options in the form in which they were written.
    pub fn parse(texts: &[String]) -> Result<Self, KeyError> {
        texts.iter().map(|text| KeyValues::parse_matrix(text)).collect::<Result<_, _>>().map(Self)
    }

    /// Whether the point matches all options.
    pub fn selects(&self, point: &Point) -> bool {
        self.0.iter().all(|only| only.parts().any(|(_, text)| is_value(point, only.key, text)))
    }

    /// Returns the first option with a value that no point has, as KEY=VALUE.
    pub fn without_effect(&self, points: &[Point]) -> Option<String> {
        self.0.iter().find_map(|option| option.without_effect(points))
    }
}

impl KeyValues {
    /// Returns the values and, because some values contain commas themselves, all sequences of adjacent
    /// values, each with the range of its indices.
    fn parts(&self) -> impl Iterator<Item = (Range<usize>, &str)> {
        let ends = || self.values.match_indices(',').map(|(at, _)| at);
        let begins = [0].into_iter().chain(ends().map(|at| at + 1));
        let last = [self.values.len()];
        begins.enumerate().flat_map(move |(first, from)| {
            let ends = ends().chain(last).enumerate().skip(first);
            ends.map(move |(end, to)| (first..end + 1, &self.values[from..to]))
        })
    }

    fn without_effect(&self, points: &[Point]) -> Option<String> {
        let is_present = |text| points.iter().any(|point| is_value(point, self.key, text));
        let present: Vec<_> = self.parts().filter(|(_, text)| is_present(text)).collect();
        let is_absent =
            |(place, _): &(usize, &str)| !present.iter().any(|(places, _)| places.contains(place));
        let (_, value) = self.values.split(',').enumerate().find(is_absent)?;
        Some(format!("{}={}", self.key, value.trim()))
    }
}

fn is_value(point: &Point, key: &str, text: &str) -> bool {
    let text = text.trim();
    if key == "vcpus"
        && let Ok(Level::Ratio(ratio)) = text.parse()
    {
        return (ratio * f64::from(point.slots)).ceil() == f64::from(point.vcpus.get());
    }
    let value = axis::value(point, key);
    match (text.parse::<f64>(), value.parse::<f64>()) {
        (Ok(a), Ok(b)) => a == b,
        _ => text == value,
    }
}
