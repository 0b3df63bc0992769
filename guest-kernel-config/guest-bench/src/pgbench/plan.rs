//! The order of the runs.

use crate::{locks::Configuration, options::TableOptions};

/// One run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedRun {
    /// The round, from 0.
    pub round: u32,
    /// The database's scale.
    pub scale: u32,
    /// Number of clients.
    pub clients: u32,
    /// The configuration of the locks.
    pub configuration: Configuration,
}

/// All runs: in each round every row once, and in each row one run of every configuration, adjacent
/// in time, so that a drift of the machine's speed affects all of them. They take turns at being
/// first.
pub fn order(options: &TableOptions) -> Vec<PlannedRun> {
    let mut runs = Vec::new();
    for round in 0..options.runs {
        for &scale in &options.scales {
            for &clients in &options.clients {
                let mut configurations = Configuration::ALL;
                configurations.rotate_left(round as usize % Configuration::ALL.len());
                runs.extend(configurations.map(|configuration| PlannedRun {
                    round,
                    scale,
                    clients,
                    configuration,
                }));
            }
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_run_as_often_with_every_configuration() {
        let options = TableOptions {
            clients: vec![1, 8],
            scales: vec![1, 3],
            runs: 4,
            ..TableOptions::default()
        };
        let runs = order(&options);
        assert_eq!(runs.len(), 2 * 2 * 4 * 3);
        for configuration in Configuration::ALL {
            let is_in_cell = |run: &&PlannedRun| {
                (run.scale, run.clients, run.configuration) == (3, 8, configuration)
            };
            assert_eq!(runs.iter().filter(is_in_cell).count(), 4);
        }
    }

    #[test]
    fn configurations_alternate_and_take_turns_to_be_first() {
        let options =
            TableOptions { clients: vec![2], scales: vec![1], runs: 3, ..TableOptions::default() };
        let order: Vec<_> = order(&options).iter().map(|run| run.configuration).collect();
        let [a, b, c] = Configuration::ALL;
        assert_eq!(order, [a, b, c, b, c, a, c, a, b]);
    }
}
