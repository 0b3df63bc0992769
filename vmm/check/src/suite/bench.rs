//! The benchmark of the tests: all vCPUs add to one eventfd, whose spinlock every kernel has.

use std::time::Duration;

use serde_json::Value;

use crate::guests::{Boot, Ended, Guests};
use base::backend::PvBackend;

/// How much a run of the tests does.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// The length of a benchmark.
    pub seconds: Duration,
    /// The length of a benchmark that looks for rare failures.
    pub long: Duration,
    /// Boots for the rates of one lock.
    pub rounds: u32,
    /// Windows of each.
    pub windows: u32,
}

impl Load {
    /// `--quick`.
    pub const QUICK: Self = Self {
        seconds: Duration::from_millis(500),
        long: Duration::from_secs(2),
        rounds: 2,
        windows: 4,
    };
    /// Without it.
    pub const FULL: Self = Self {
        seconds: Duration::from_secs(3),
        long: Duration::from_secs(15),
        rounds: 5,
        windows: 4,
    };
    /// The length of a window of a rate.
    pub const WINDOW: Duration = Duration::from_millis(250);
}

/// What the benchmark has found.
#[derive(Debug)]
pub struct BenchResult {
    /// Additions per second.
    pub rate: f64,
    /// Those of the vCPU with the fewest, in the window.
    pub fewest: u64,
    /// vCPUs that took part.
    pub workers: usize,
    /// The longest addition.
    pub longest: Duration,
    /// What the kernel's log says of its spinlocks.
    pub spinlocks: Option<String>,
    /// The VMM's account of the schedule.
    pub schedule: Value,
}

impl BenchResult {
    /// Of a boot with a [`bench_script`]; else why there is none.
    pub fn read(ended: &Ended) -> Result<Self, String> {
        if let Some(why) = ended.failure() {
            return Err(why);
        }
        let line = ended.stdout.lines().next().unwrap_or_default();
        let schedule = ended.stats.as_ref().map_or(Value::Null, |stats| stats["schedule"].clone());
        Self::parse(line, schedule)
            .ok_or_else(|| format!("the guest's benchmark has no result: {line}"))
    }

    fn parse(line: &str, schedule: Value) -> Option<Self> {
        let report: Value = serde_json::from_str(line).ok()?;
        let each: Vec<u64> =
            report["operations"].as_array()?.iter().filter_map(Value::as_u64).collect();
        let seconds = report["seconds"].as_f64().filter(|seconds| *seconds > 0.0)?;
        Some(Self {
            rate: each.iter().sum::<u64>() as f64 / seconds,
            fewest: each.iter().copied().min()?,
            workers: each.len(),
            longest: Duration::try_from_secs_f64(report["parts"][0]["longest_seconds"].as_f64()?)
                .ok()?,
            spinlocks: report["spinlocks"].as_str().map(str::to_owned),
            schedule,
        })
    }

    /// How many preemptions of a kind the schedule counted.
    pub fn counted(&self, name: &str) -> u64 {
        self.schedule[name].as_u64().unwrap_or(0)
    }

    /// How many of the holders that the schedule preempted were guessed, in words; empty if none was.
    pub fn guessed(&self) -> String {
        match self.schedule["hits"]["guesses"].as_u64() {
            None | Some(0) => String::new(),
            Some(count) => format!(" ({count} of them guessed: preemption was disabled)"),
        }
    }
}

/// A script that runs it once.
pub fn bench_script(seconds: Duration) -> String {
    format!("bench eventfd --json --warm-up 0.1 --seconds {}", seconds.as_secs_f64())
}

/// The rates of some windows of one boot, with `ratio` vCPUs for each slot, in turns (`rr`); a string: why
/// there are none.
pub fn rates_of(
    guests: &Guests,
    load: Load,
    pv: PvBackend,
    ratio: u32,
) -> anyhow::Result<Result<Vec<f64>, String>> {
    let one = bench_script(Load::WINDOW);
    let script = format!("for i in $(seq {}); do {one} || exit 1; done", load.windows);
    let slots = guests.slots();
    let boot = Boot::new(ratio * slots, pv).under("rr", slots);
    let ended = guests.run(&boot.script(&script, Load::WINDOW * load.windows * 2))?;
    if let Some(why) = ended.failure() {
        return Ok(Err(why));
    }
    let results = ended.stdout.lines().map(|line| BenchResult::parse(line, Value::Null));
    let rates: Option<Vec<f64>> = results.map(|result| Some(result?.rate)).collect();
    let rates = rates.filter(|rates| rates.len() == load.windows as usize);
    Ok(rates.ok_or_else(|| format!("the guest's benchmark has no result: {}", ended.stdout.trim())))
}
