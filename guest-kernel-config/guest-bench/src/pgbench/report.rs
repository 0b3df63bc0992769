//! The results of a measurement.

use std::io;

use serde::Serialize;

use crate::{
    locks::{Configuration, Slow},
    options::TableOptions,
    plan::PlannedRun,
    statistics::Summary,
};

/// A row of a block: the runs of one configuration at one scale with one number of clients.
#[derive(Debug, Clone, Serialize)]
pub struct TableRow {
    /// The configuration of the locks.
    pub configuration: Configuration,
    /// The database's scale.
    pub scale: u32,
    /// Number of clients.
    pub clients: u32,
    /// Transactions per second, one entry per run, in order.
    pub tps: Vec<f64>,
    /// Statistics of `tps`.
    #[serde(flatten)]
    pub summary: Option<Summary>,
}

/// The counters of a configuration's locks over all its runs.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Total {
    pub configuration: Configuration,
    /// Measured time in seconds.
    pub seconds: f64,
    /// Halts and kicks in that time.
    #[serde(flatten)]
    pub slow: Slow,
}

/// Facts about the guest.
#[derive(Debug, Clone, Serialize)]
pub struct GuestFacts {
    /// CPUs online.
    pub cpus: usize,
    /// The kernel's release.
    pub kernel: String,
    /// The backend of halts and kicks.
    pub backend: String,
    /// Looks at the head before a waiter halts.
    pub spin_threshold: u64,
    /// PostgreSQL's version.
    pub postgresql: String,
    /// PostgreSQL's shared buffers, in MiB.
    pub shared_buffers_mib: u32,
}

/// All results.
#[derive(Debug, Clone, Serialize)]
pub struct Results {
    /// Facts about the guest.
    #[serde(flatten)]
    pub guest: GuestFacts,
    /// Runs per row.
    pub runs: u32,
    /// Length of a run in seconds.
    pub seconds: u32,
    /// Seconds from the beginning of the first run to the end of the last.
    pub elapsed_seconds: f64,
    /// Steal time of all CPUs in that time, if the kernel reports it.
    pub steal_seconds: Option<f64>,
    /// Halts and kicks, in the order of [`Configuration::ALL`].
    pub totals: Vec<Total>,
    /// The rows, ordered by configuration, scale and clients.
    pub rows: Vec<TableRow>,
}

impl Results {
    /// Results without runs.
    pub fn new(guest: GuestFacts, options: &TableOptions) -> Self {
        let mut rows = Vec::new();
        for configuration in Configuration::ALL {
            for &scale in &options.scales {
                rows.extend(options.clients.iter().map(|&clients| TableRow {
                    configuration,
                    scale,
                    clients,
                    tps: Vec::new(),
                    summary: None,
                }));
            }
        }
        let totals = Configuration::ALL.map(|configuration| Total {
            configuration,
            seconds: 0.0,
            slow: Slow::default(),
        });
        Self {
            guest,
            runs: options.runs,
            seconds: options.seconds,
            elapsed_seconds: 0.0,
            steal_seconds: None,
            totals: totals.into(),
            rows,
        }
    }

    /// Adds a run's figure, its length in seconds, and its halts and kicks.
    pub fn add(&mut self, run: &PlannedRun, tps: f64, seconds: f64, slow: Slow) {
        let key = (run.configuration, run.scale, run.clients);
        for row in &mut self.rows {
            if (row.configuration, row.scale, row.clients) == key {
                row.tps.push(tps);
                row.summary = Summary::of(&row.tps);
            }
        }
        for total in &mut self.totals {
            if total.configuration == run.configuration {
                total.seconds += seconds;
                total.slow += slow;
            }
        }
    }

    /// The rows of a block.
    pub fn block(
        &self,
        configuration: Configuration,
        scale: u32,
    ) -> impl Iterator<Item = &TableRow> {
        self.rows.iter().filter(move |row| (row.configuration, row.scale) == (configuration, scale))
    }

    /// The scales, in order.
    pub fn scales(&self) -> Vec<u32> {
        let mut scales: Vec<u32> = self.rows.iter().map(|row| row.scale).collect();
        let mut seen = Vec::new();
        scales.retain(|scale| {
            let new = !seen.contains(scale);
            seen.push(*scale);
            new
        });
        scales
    }

    /// One line of JSON, for programs.
    pub fn json(&self) -> io::Result<String> {
        Ok(serde_json::to_string(self)? + "\n")
    }
}

#[cfg(test)]
pub mod fixture {
    use super::*;

    /// A guest of two CPUs.
    pub fn guest() -> GuestFacts {
        GuestFacts {
            cpus: 2,
            kernel: "6.1.192-pvticket".into(),
            backend: "vmm".into(),
            spin_threshold: 32_768,
            postgresql: "15.20 (Debian 15.20-0+deb12u1)".into(),
            shared_buffers_mib: 64,
        }
    }

    /// Two runs of each row at scales 1 and 2 with 1 and 8 clients. Native: 100 and 200; with PV
    /// and no halts 190 and 210, with PV 300 and 500. Each at scale 2 ten times as much.
    pub fn results() -> Results {
        let options = TableOptions {
            clients: vec![1, 8],
            scales: vec![1, 2],
            runs: 2,
            seconds: 1,
            ..TableOptions::default()
        };
        let mut results = Results::new(guest(), &options);
        for run in crate::plan::order(&options) {
            let figures = match run.configuration {
                Configuration::Native => [100.0, 200.0],
                Configuration::NoHalts => [190.0, 210.0],
                Configuration::Pv => [300.0, 500.0],
            };
            let factor = if run.scale == 2 { 10.0 } else { 1.0 };
            let halts = if run.configuration == Configuration::Pv { 7 } else { 0 };
            let slow = Slow { halts, kicks: halts };
            results.add(&run, figures[run.round as usize] * factor, 1.0, slow);
        }
        results.elapsed_seconds = 25.0;
        results.steal_seconds = Some(0.5);
        results
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_go_to_their_rows() {
        let results = fixture::results();
        assert_eq!(results.scales(), [1, 2]);
        let block: Vec<_> = results.block(Configuration::NoHalts, 2).collect();
        assert_eq!(block.len(), 2);
        assert_eq!(block[1].tps, [1900.0, 2100.0]);
        assert_eq!(block[1].summary.map(|summary| summary.average), Some(2000.0));
        assert_eq!(results.totals[2].slow, Slow { halts: 56, kicks: 56 });
        assert_eq!(results.totals[0].slow, Slow::default());
    }

    #[test]
    fn json_has_every_run_and_the_summaries() {
        let json: serde_json::Value =
            serde_json::from_str(&fixture::results().json().unwrap()).unwrap();
        let row = &json["rows"][0];
        assert_eq!(row["configuration"], "native");
        assert_eq!((&row["scale"], &row["clients"]), (&1.into(), &1.into()));
        assert_eq!(row["tps"], serde_json::json!([100.0, 200.0]));
        assert_eq!(row["median"], 150.0);
        assert_eq!(json["rows"].as_array().map(Vec::len), Some(12));
        assert_eq!(json["totals"][2]["halts"], 56);
        assert_eq!(json["backend"], "vmm");
    }
}
