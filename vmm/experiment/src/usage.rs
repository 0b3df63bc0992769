//! Usage errors.

use base::units::UnitError;
use study::{plan::PlanError, spec::SpecError};
use thiserror::Error;

/// A fault in an option, a variable or a file, which the text names with the remedy; exit status 2.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// The CPUs, levels and durations of a plan come from options.
impl From<PlanError> for Usage {
    fn from(error: PlanError) -> Self {
        Self(error.to_string())
    }
}

impl From<SpecError> for Usage {
    fn from(error: SpecError) -> Self {
        Self(error.to_string())
    }
}

impl From<UnitError> for Usage {
    fn from(error: UnitError) -> Self {
        PlanError::from(error).into()
    }
}
