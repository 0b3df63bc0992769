//! The tests' benchmark: all vCPUs add to one eventfd, which every kernel protects with a spinlock.

use std::time::Duration;

use serde_json::Value;

use crate::check::{
    Failure,
    guests::{Boot, BootResult, Guests},
    reference::Rates,
};
use base::{backend::PvBackend, chain::chain, sanitize};
use study::guest::bench_report::BenchReport;

/// Characters of guest output in a message.
const SHOWN: usize = 200;

/// Amount of work of a test run.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Duration of a benchmark.
    pub duration: Duration,
    /// Duration of a benchmark that looks for rare failures.
    pub long: Duration,
    /// Boots per lock for the rates.
    pub rounds: u32,
    /// Windows per boot.
    pub windows: u32,
}

impl Load {
    /// With `--quick`.
    pub const QUICK: Self = Self {
        duration: Duration::from_millis(500),
        long: Duration::from_secs(2),
        rounds: 2,
        windows: 4,
    };
    /// Without `--quick`.
    pub const FULL: Self = Self {
        duration: Duration::from_secs(3),
        long: Duration::from_secs(15),
        rounds: 5,
        windows: 4,
    };
    /// Length of a window.
    pub const WINDOW: Duration = Duration::from_millis(250);
}

/// The benchmark's result.
#[derive(Debug)]
pub struct BenchResult {
    /// Additions per second.
    pub rate: f64,
    /// Additions of the slowest vCPU in the window.
    pub fewest: u64,
    /// Number of participating vCPUs.
    pub workers: usize,
    /// The longest addition, in seconds.
    pub longest: f64,
    /// The line about spinlocks in the kernel's log.
    pub spinlocks: Option<String>,
    /// The VMM's statistics of the schedule.
    pub schedule: Value,
}

impl BenchResult {
    /// Reads the result of a boot that ran a [`bench_script`].
    pub fn read(result: &BootResult) -> Result<Self, Failure> {
        result.check()?;
        let line = result.stdout.lines().next().unwrap_or_default();
        let schedule = result.stats.as_ref().map_or(Value::Null, |stats| stats["schedule"].clone());
        Self::parse(line, schedule)
    }

    fn parse(line: &str, schedule: Value) -> Result<Self, Failure> {
        let report = BenchReport::read(line).map_err(|error| {
            let (error, line) = (chain(&error), sanitize::truncate(line, SHOWN));
            Failure::certain(format!("the guest's benchmark has no result: {error}: {line}"))
        })?;
        let longest = report.parts.first().and_then(|part| part.longest_seconds);
        let (Some(longest), Some(fewest)) = (longest, report.operations.iter().copied().min())
        else {
            return Err(Failure::certain("the guest's benchmark did not time its additions"));
        };
        Ok(Self {
            rate: report.rate(),
            fewest,
            workers: report.operations.len(),
            longest,
            spinlocks: report.spinlocks.map(|line| sanitize::truncate(&line, SHOWN).to_owned()),
            schedule,
        })
    }

    /// The schedule's counter `name`; 0 if absent.
    pub fn count(&self, name: &str) -> u64 {
        self.schedule[name].as_u64().unwrap_or(0)
    }

    /// A phrase with the number of preempted vCPUs that may or may not have held a lock; empty if 0.
    pub fn guess_note(&self) -> String {
        match self.schedule["hits"]["guesses"].as_u64() {
            None | Some(0) => String::new(),
            Some(count) => format!(" ({count} of them only assumed: preemption was disabled)"),
        }
    }
}

/// A script that runs the benchmark once.
pub fn bench_script(seconds: Duration) -> String {
    format!("bench eventfd --json --warm-up 0.1 --seconds {}", seconds.as_secs_f64())
}

impl Rates {
    /// Adds the rates of one boot under `rr`. If the host takes much time, the boot is repeated once.
    pub fn measure(
        &mut self,
        guests: &mut Guests,
        load: Load,
        pv: PvBackend,
    ) -> anyhow::Result<()> {
        let run = bench_script(Load::WINDOW);
        let script = format!("for i in $(seq {}); do {run} || exit 1; done", load.windows);
        let slots = guests.slots();
        let boot = Boot::new(self.overcommit.saturating_mul(slots), pv).schedule("rr", slots);
        let script_time = Load::WINDOW.saturating_mul(load.windows.saturating_mul(2));
        let result = guests.run_undisturbed(&boot.script(&script, script_time))?;
        let rates = windows(&result, load.windows as usize)
            .map_err(|error| Failure { reason: format!("{}: {error}", self.locks), ..error })?;
        self.rates.extend(rates);
        Ok(())
    }
}

/// The rates of this many windows.
fn windows(result: &BootResult, count: usize) -> Result<Vec<f64>, Failure> {
    result.check()?;
    let lines = result.stdout.lines().take(count);
    let results = lines.map(|line| Ok(BenchResult::parse(line, Value::Null)?.rate));
    let rates = results.collect::<Result<Vec<f64>, Failure>>()?;
    if rates.len() < count {
        return Err(Failure::certain("the guest's benchmark has too few results"));
    }
    Ok(rates)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: two counts of 2^64 - 1 aborted the program with status 134, at which `git bisect run`
    /// stops, and 1e-300 seconds resulted in an infinite rate.
    #[test]
    fn impossible_figures_fail() {
        let parsed = |seconds: &str, count: &str| {
            let line = format!(
                "{{\"seconds\":{seconds},\"operations\":[{count},{count}],\"parts\":[{{\"longest_seconds\":0.5}}]}}"
            );
            BenchResult::parse(&line, Value::Null).map(|result| result.rate)
        };
        assert_eq!(parsed("0.5", "7").unwrap(), 28.0);
        for (seconds, count) in
            [("0.5", "18446744073709551615"), ("1e-300", "7"), ("0", "7"), ("0.5", "-1")]
        {
            let reason = parsed(seconds, count).unwrap_err().reason;
            assert!(reason.starts_with("the guest's benchmark has no result: "), "{reason}");
        }
        let flood = BenchResult::parse(&"x".repeat(1 << 20), Value::Null).unwrap_err().reason;
        assert!(flood.len() < 400, "{}", flood.len());
    }
}
