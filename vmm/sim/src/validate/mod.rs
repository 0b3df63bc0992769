//! How far the simulator may be believed: comparisons with what is known otherwise.
//!
//! Rung 1 compares it with mathematics, rung 3 its costs with those of the machine files, rung 4 its
//! figures with published ones. (Rung 2 needs KVM: `vmm/src/cli/sim_command/measured.rs`.) What fails
//! is a row like any other, with its verdict.

pub mod markov;
mod rung1;
mod rung3;
mod rung4;

use std::fmt;

pub use rung1::rung1;
pub use rung3::rung3;
pub use rung4::{Rung4, rung4};

pub use crate::effort::Effort;

use crate::predict::PredictError;

use crate::{SimSpecError, Stuck};
use published::PublishedError;

/// How close a figure has to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// Within this share of what is expected.
    Within(f64),
    /// Not less.
    AtLeast,
    /// Not more.
    AtMost,
    /// For ratios, where 1 is no change: on the same side of 1, and off by at most the first number as a
    /// factor. A ratio within the second number, a share, of 1 counts as no change.
    Factor(f64, f64),
}

/// A simulated figure beside what is known.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The table it belongs to, and what is simulated.
    pub table: &'static str,
    /// The cell: lock, CPUs, parameters.
    pub cell: String,
    /// The figure by mathematics, by a machine file or by a publication.
    pub expected: f64,
    /// How close `simulated` has to be.
    pub bound: Bound,
    /// The simulator's figure.
    pub simulated: f64,
}

impl Row {
    /// Does it hold?
    pub fn holds(&self) -> bool {
        match self.bound {
            Bound::Within(share) => self.error().abs() <= share,
            Bound::AtLeast => self.simulated >= self.expected,
            Bound::AtMost => self.simulated <= self.expected,
            Bound::Factor(most, noise) => {
                let off = (self.simulated / self.expected).ln().abs();
                side(self.simulated, noise) == side(self.expected, noise) && off <= most.ln()
            }
        }
    }

    /// The deviation, as a share of what is expected.
    pub fn error(&self) -> f64 {
        self.simulated / self.expected - 1.0
    }
}

/// 1 if the ratio is more than 1, -1 if it is less, 0 if it is within `noise`, a share, of 1.
fn side(ratio: f64, noise: f64) -> i8 {
    match ratio.ln() {
        log if log.abs() <= (1.0 + noise).ln() => 0,
        log if log > 0.0 => 1,
        _ => -1,
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cell, expected, simulated, .. } = self;
        let verdict = if self.holds() { "holds" } else { "FAILS" };
        let (wanted, off) = match self.bound {
            Bound::Within(share) => {
                (format!("{:.1} %", share * 1e2), format!("{:+.2} %", self.error() * 1e2))
            }
            Bound::AtLeast => (">=".to_owned(), String::new()),
            Bound::AtMost => ("<=".to_owned(), String::new()),
            Bound::Factor(most, _) => {
                (format!("{most:.0}x"), format!("{:.2}x", self.simulated / self.expected))
            }
        };
        write!(f, "{cell:<38} {expected:>9.3} {simulated:>9.3} {off:>9} {wanted:>6}  {verdict}")
    }
}

/// Why a validation could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum ValidateError {
    /// A cell cannot be simulated.
    #[error("{cell} cannot be simulated")]
    Spec {
        /// The cell.
        cell: String,
        /// Why.
        #[source]
        source: SimSpecError,
    },
    /// A published table cannot be read.
    #[error("a published table cannot be read")]
    Published(#[from] PublishedError),
    /// A published cell has no prediction.
    #[error(transparent)]
    Predict(#[from] PredictError),
    /// A cell came to a standstill.
    #[error("{cell} came to a standstill, with seed {seed}")]
    Stuck {
        /// The cell.
        cell: String,
        /// The simulation's seed.
        seed: u64,
        /// How.
        #[source]
        source: Stuck,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Brake;

    /// Was the simulation ended by its brake, for lack of time?
    fn is_out_of_time(error: &ValidateError) -> bool {
        match error {
            ValidateError::Stuck { source, .. }
            | ValidateError::Predict(PredictError::Stuck { source, .. }) => {
                *source == Stuck::NoTime(120)
            }
            _ => false,
        }
    }

    #[test]
    fn rungs_and_the_predictions_of_the_last_end_by_their_brake() {
        let pulled = Brake::watching(|_| Some(Stuck::NoTime(120)));
        let mathematics = rung1(Effort::Short, &pulled, |_| ()).map(drop);
        let published = rung4(Effort::Short, &pulled, |_| ()).map(drop);
        for result in [mathematics, published] {
            assert!(result.as_ref().is_err_and(is_out_of_time), "{result:?}");
        }
    }
}
