//! Changes of a machine's costs, to find out what depends on them.

use thiserror::Error;

use super::{CostEntry, KeyError, Machine, Source};
use crate::time::Picos;

/// The reason why a change of a cost is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ChangeError {
    /// It has another form.
    #[error("'{0}' must be KEY=COST, such as pause=140cycles, wakeup=16us or one-hop.wakeup=500ns")]
    Form(String),
    /// The machine has no such cost.
    #[error("'{key}' is not a cost of the machine; known: {}", .known.join(", "))]
    Unknown {
        /// The key.
        key: String,
        /// The costs that its file states.
        known: Vec<String>,
    },
    /// The cost is not valid for its key.
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl Machine {
    /// The machine with other costs: `KEY=COST`, separated by `+`. A key without a level is one of `costs`. A
    /// changed cost counts as assumed.
    pub fn with_costs(mut self, changes: &str) -> Result<Self, ChangeError> {
        for change in changes.split('+') {
            let parsed = change
                .split_once('=')
                .and_then(|(key, cost)| Some((key, parse_cost(cost, self.mhz)?)));
            let (key, cost) = parsed.ok_or_else(|| ChangeError::Form(change.to_owned()))?;
            let key = if key.contains('.') { key.to_owned() } else { format!("costs.{key}") };
            let (source, note) = (Source::Assumed, "changed by its name".to_owned());
            let changed = CostEntry { key: key.clone(), cost, source, note };
            match self.cost_entries.iter().position(|entry| entry.key == key) {
                Some(ix) => self.cost_entries[ix] = changed,
                None if self.is_optional(&key) => self.cost_entries.push(changed),
                None => {
                    let known = self.cost_entries.iter().map(|entry| entry.key.clone()).collect();
                    return Err(ChangeError::Unknown { key, known });
                }
            }
        }
        Ok(Self::parse(&self.to_toml())?)
    }

    /// Whether the file may leave out this cost.
    fn is_optional(&self, key: &str) -> bool {
        let is_wakeup = |name: &str| key.strip_prefix(name) == Some(".wakeup");
        self.levels.iter().any(|level| is_wakeup(&level.name))
    }
}

/// Parses `140cycles`, `500ns` or `16us`.
fn parse_cost(text: &str, mhz: f64) -> Option<Picos> {
    let units = [("cycles", 1e3 / mhz), ("ns", 1.0), ("us", 1e3)];
    units.into_iter().find_map(|(unit, nanos)| {
        let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
        // A larger cost is a unit error, as in files.
        (0.0..=1e9).contains(&(number * nanos)).then(|| Picos::from_nanos(number * nanos))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(changes: &str) -> Result<Machine, String> {
        let machine = Machine::shipped("haswell-ex-32").expect("it is shipped");
        machine.with_costs(changes).map_err(|error| error.to_string())
    }

    #[test]
    fn costs_change_by_name() {
        let base = Machine::shipped("haswell-ex-32").expect("it is shipped");
        let machine = changed("pause=140cycles+wakeup=16us+one-hop.wakeup=500ns").expect("valid");
        assert_eq!(machine.costs.pause, Picos(56_000));
        assert_eq!(machine.costs.wakeup, Picos(16_000_000));
        assert_eq!(machine.levels[1].lines.wakeup, Picos(500_000));
        assert_eq!(
            (machine.costs.exit, machine.levels[0].clone()),
            (base.costs.exit, base.levels[0].clone())
        );
        assert_eq!(machine.assumed().1, base.assumed().1 + 1);
    }

    #[test]
    fn invalid_changes_name_the_cause() {
        for (changes, cause) in [
            ("pause", "'pause' must be KEY=COST"),
            ("pause=1", "'pause=1' must be KEY=COST"),
            ("pause=-1ns", "must be KEY=COST"),
            ("pause=2000000us", "must be KEY=COST"),
            ("paws=1ns", "'costs.paws' is not a cost of the machine; known: costs.hit"),
            ("core.wakeup=1ns", "'core.wakeup' is not a cost"),
            ("pause=0ns", "pause: a spin loop cannot be free"),
        ] {
            let error = changed(changes).expect_err(changes);
            assert!(error.contains(cause), "{error}");
        }
    }
}
