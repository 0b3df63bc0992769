//! Further VMs, of any sizes, that run concurrently with the VMs of a point.

use std::{fmt, str::FromStr};

use thiserror::Error;

use crate::units::{UnitError, VcpuCount};

/// Number of vCPUs of each further VM: `4`, or `1+4`. Never empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OtherVms(Vec<VcpuCount>);

/// Error parsing [`OtherVms`].
#[derive(Debug, Error, PartialEq, Eq)]
#[error("'{text}' describes no VMs: write the vCPUs of each, as in 1+4 ({error})")]
pub struct OtherVmsError {
    text: String,
    error: UnitError,
}

impl OtherVms {
    /// Returns the number of vCPUs of each VM.
    pub fn sizes(&self) -> &[VcpuCount] {
        &self.0
    }
}

impl fmt::Display for OtherVms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&sizes.join("+"))
    }
}

impl FromStr for OtherVms {
    type Err = OtherVmsError;

    fn from_str(text: &str) -> Result<Self, OtherVmsError> {
        let sizes = text.split('+').map(str::parse).collect::<Result<_, _>>();
        sizes.map(Self).map_err(|error| OtherVmsError { text: text.to_owned(), error })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_keep_their_order() {
        for text in ["4", "1+4", "128+1+1"] {
            assert_eq!(text.parse::<OtherVms>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn rejects_invalid_lists() {
        for text in ["", "0", "1+", "129", "1,4", "2x", "+1"] {
            let error = text.parse::<OtherVms>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("'{text}' describes no VMs")), "{error}");
        }
    }
}
