//! Arguments of policies.

use std::{fmt, str::FromStr};

use super::inject::Inject;
use base::units::Nanos;

/// Arguments of a policy, as written after its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Args(pub(super) Vec<String>);

impl Args {
    pub(super) fn word(&self, ix: usize) -> Option<&str> {
        self.0.get(ix).map(String::as_str)
    }

    pub(super) fn get<T>(&self, ix: usize, default: T) -> Result<T, String>
    where
        T: FromStr,
        T::Err: fmt::Display,
    {
        self.word(ix).map_or(Ok(default), |word| {
            word.parse().map_err(|error: T::Err| format!("'{word}': {error}"))
        })
    }

    /// Returns the number of words before a host scheduler model's times: 1 with `kick-yield`.
    pub(super) fn num_options(&self) -> usize {
        usize::from(self.word(0) == Some("kick-yield"))
    }

    /// Returns a time whose presence the caller has checked.
    pub(super) fn time(&self, ix: usize) -> Result<Nanos, String> {
        self.get(ix, Nanos::ZERO)
    }

    pub(super) fn weight(&self, ix: usize) -> Result<u32, String> {
        match self.get(ix, 1)? {
            weight @ 1..=1000 => Ok(weight),
            weight => Err(format!("weight {weight} is out of range: 1 to 1000")),
        }
    }

    pub(super) fn rate(&self, ix: usize) -> Result<f64, String> {
        let rate = self.get(ix, Inject::RATE)?;
        if (0.001..=100_000.0).contains(&rate) {
            Ok(rate)
        } else {
            Err(format!("rate {rate} is out of range: 0.001 to 100000 per second"))
        }
    }
}
