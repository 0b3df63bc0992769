//! Systems of the lock library as named on the command line.

use std::{fmt, str::FromStr};

use locks::{System, UnknownSystem};

/// One system or all; parses a name or `all`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Systems {
    /// All systems.
    All,
    /// One system.
    One(System),
}

impl Systems {
    /// Returns the name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::One(system) => system.name(),
        }
    }
}

/// Returns the systems of a list in its order, without duplicates.
pub fn expand(list: &[Systems]) -> Vec<System> {
    let mut expanded = Vec::new();
    for entry in list {
        let systems = match entry {
            Systems::All => System::ALL,
            Systems::One(system) => std::slice::from_ref(system),
        };
        for system in systems {
            if !expanded.contains(system) {
                expanded.push(*system);
            }
        }
    }
    expanded
}

impl FromStr for Systems {
    type Err = UnknownSystemError;

    fn from_str(text: &str) -> Result<Self, UnknownSystemError> {
        match text {
            "all" => Ok(Self::All),
            name => name.parse().map(Self::One).map_err(UnknownSystemError),
        }
    }
}

/// Error for an unknown system.
#[derive(Debug, thiserror::Error)]
pub struct UnknownSystemError(UnknownSystem);

impl fmt::Display for UnknownSystemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: see `pvticket locks`, or all", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expands_lists_without_duplicates() {
        let list = ["pv-ticket", "all", "ticket"].map(|name| name.parse().unwrap());
        let systems = expand(&list);
        assert_eq!(systems.len(), System::ALL.len());
        assert_eq!(systems[0], System::PvTicket);
        assert!("tickets".parse::<Systems>().is_err());
    }
}
