//! Specs: from a text to the cells of an experiment.
//!
//! ```text
//! text ── form (keys, values, lines) ── matrix (combinations, excludes) ── points
//!      ── order (rounds, interleaved by a seed) ── cells
//! ```
//!
//! Pure: what depends on this host comes in as a [`Setting`].

mod error;
mod exclude;
mod form;
mod matrix;
pub mod only;
mod order;

use std::{ops::RangeInclusive, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

pub use error::{SpecError, SpecFault};
pub use only::Only;
pub use order::PlannedCell;

use super::{
    PayloadCell,
    plan::Seconds,
    point::{GuestKind, HostKind, Point},
};
use crate::{guest::payload::PayloadSpec, units::CpuList};
use form::{Form, Value};

/// Cells of a run at most: a day of short ones. A spec of so many is read in less than a second.
pub const MOST_CELLS: u64 = 100_000;

/// Repetitions when the spec does not say.
const REPETITIONS: u32 = 10;

/// What of this host an experiment depends on.
pub struct Setting<'a> {
    /// CPUs that may carry vCPUs: the first of them are the slots.
    pub cpus: &'a CpuList,
    /// Where a guest runs that does or does not need ring 0, if the spec says `host = TEXT`; or why
    /// that cannot be.
    pub place: &'a dyn Fn(&str, GuestKind, bool) -> Result<HostKind, String>,
}

/// The values that a spec has for a key of its matrix, as they are written; none if it has no such
/// key, or is no spec.
pub fn values(text: &str, key: &str) -> Vec<String> {
    let form = Form::parse(text).unwrap_or_default();
    let values = form.axis(key).map(|axis| axis.values.iter().map(|value| value.text.clone()));
    values.into_iter().flatten().collect()
}

/// How every cell is measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Method {
    /// Contention before the measurement of the payload.
    pub warm_up: Duration,
    /// Payload: keep how long operations take.
    pub timed: bool,
    /// Payload: adds of each vCPU between two sums of a counter.
    pub sum_every: u32,
}

/// A spec with nothing left open.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// Its name: of files, and above its report.
    pub name: String,
    /// What its author wants to know; may be empty.
    pub question: String,
    /// How often each point is run.
    pub repetitions: u32,
    /// How each run is measured.
    pub method: Method,
    /// Decides the order of the cells: the first of the spec's seeds.
    pub seed: u64,
    /// The matrix, less what is excluded.
    pub points: Vec<Point>,
}

impl Experiment {
    /// Reads a spec; `name` is its name if it has none of its own.
    pub fn parse(text: &str, name: &str, setting: &Setting<'_>) -> Result<Self, SpecError> {
        let form = Form::parse(text)?;
        let repetitions = match form.setting("repetitions") {
            None => REPETITIONS,
            Some(value) => number(value, "repetitions", 1..=100_000)?,
        };
        let points = matrix::points(&form, setting)?;
        let cells = points.len() as u64 * u64::from(repetitions);
        if cells > MOST_CELLS {
            return Err(
                SpecFault::TooMany(cells).at(form.setting("repetitions").map_or(1, |v| v.line))
            );
        }
        let text = |key| form.setting(key).map(|value| value.text.clone());
        Ok(Self {
            name: named(&form, name)?,
            question: text("question").unwrap_or_default(),
            repetitions,
            method: method(&form)?,
            seed: points.first().map_or(1, |point| point.seed),
            points,
        })
    }

    /// Leaves out what `only` does not want.
    pub fn retain(&mut self, only: &Only) {
        self.points.retain(|point| only.wants(point));
    }
}

/// A name is a part of a file's name.
fn named(form: &Form, otherwise: &str) -> Result<String, SpecError> {
    let Some(value) = form.setting("name") else { return Ok(otherwise.to_owned()) };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let text = &value.text;
    if text.is_empty() || text.len() > 64 || text.starts_with('.') || !text.chars().all(is_plain) {
        let why = format!("'{text}' is no name: 1 to 64 letters, digits, '-', '_' and '.'");
        return Err(SpecFault::Value { key: "name", why }.at(value.line));
    }
    Ok(text.clone())
}

fn method(form: &Form) -> Result<Method, SpecError> {
    let warm_up = match form.setting("warm-up") {
        None => PayloadCell::WARM_UP,
        Some(value) if matches!(value.text.as_str(), "0" | "0.0") => Duration::ZERO,
        Some(value) => parse::<Seconds>(value, "warm-up")?.0,
    };
    let timed = match form.setting("latency") {
        None => false,
        Some(value) => parse(value, "latency")?,
    };
    let sum_every = match form.setting("sum-every") {
        None => PayloadSpec::SUM_EVERY,
        Some(value) => number(value, "sum-every", 0..=u32::MAX)?,
    };
    Ok(Method { warm_up, timed, sum_every })
}

fn parse<T: FromStr<Err: ToString>>(value: &Value, key: &'static str) -> Result<T, SpecError> {
    value.text.parse::<T>().map_err(|error| {
        let why = error.to_string();
        let named = why.contains(&format!("'{}'", value.text));
        let why = if named { why } else { format!("'{}': {why}", value.text) };
        SpecFault::Value { key, why }.at(value.line)
    })
}

fn number(value: &Value, key: &'static str, range: RangeInclusive<u32>) -> Result<u32, SpecError> {
    match value.text.parse() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => {
            let (low, high) = (range.start(), range.end());
            let why = format!("'{}' is not a number from {low} to {high}", value.text);
            Err(SpecFault::Value { key, why }.at(value.line))
        }
    }
}

#[cfg(test)]
mod tests;
