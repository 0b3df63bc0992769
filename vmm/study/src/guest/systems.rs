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
pub fn all_of(list: &[Systems]) -> Vec<System> {
    let mut all = Vec::new();
    for one in list {
        let systems = match one {
            Systems::All => System::ALL,
            Systems::One(system) => std::slice::from_ref(system),
        };
        for system in systems {
            if !all.contains(system) {
                all.push(*system);
            }
        }
    }
    all
}

impl FromStr for Systems {
    type Err = NoSystem;

    fn from_str(text: &str) -> Result<Self, NoSystem> {
        match text {
            "all" => Ok(Self::All),
            name => name.parse().map(Self::One).map_err(NoSystem),
        }
    }
}

/// Error for an unknown system.
#[derive(Debug, thiserror::Error)]
pub struct NoSystem(UnknownSystem);

impl fmt::Display for NoSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: see `pvticket locks`, or all", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_each_system_once() {
        let list = ["pv-ticket", "all", "ticket"].map(|name| name.parse().unwrap());
        let all = all_of(&list);
        assert_eq!(all.len(), System::ALL.len());
        assert_eq!(all[0], System::PvTicket);
        assert!("tickets".parse::<Systems>().is_err());
    }
}
