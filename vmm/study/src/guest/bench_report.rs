//! Reads the report of a Linux guest's benchmark. Guests are untrusted, so counts are checked.

use serde::Deserialize;
use thiserror::Error;

/// Maximum plausible count: at one per cycle, it takes about a day.
const MAX_COUNT: u64 = 1 << 48;
/// Maximum plausible rate: hundreds per cycle.
const MAX_RATE: f64 = 1e12;
const DAY: f64 = 86_400.0;
/// Maximum plausible number of workers, above the vCPUs of any VM.
const MAX_WORKERS: usize = 1 << 16;

/// Error in the output of a benchmark.
#[derive(Debug, Error)]
pub enum BenchReportError {
    /// The output is no report.
    #[error("not the report of a benchmark")]
    Parse(#[from] serde_json::Error),
    /// No guest can have achieved these figures.
    #[error("the guest claims {0}")]
    Impossible(String),
}

/// Output of the benchmark.
#[derive(Debug, Deserialize)]
pub struct BenchReport {
    /// Length of the window.
    pub seconds: f64,
    /// Violations of mutual exclusion, if checked.
    pub violations: Option<u64>,
    /// Operations of each worker.
    pub operations: Vec<u64>,
    /// Number of CPUs in the guest; omitted by the lock benchmark, which has a worker on each CPU.
    pub cpus: Option<usize>,
    /// The kernel's line about its spinlocks.
    pub spinlocks: Option<String>,
    /// Steal time of all vCPUs during the window.
    pub steal_seconds: Option<f64>,
    /// Counts of the guest's kernel.
    pub stats: Option<GuestKernelStats>,
    /// The end of a program's output.
    pub output: Option<String>,
    /// Parts of the measurement.
    #[serde(default)]
    pub parts: Vec<BenchPart>,
}

/// A part of the measurement.
#[derive(Debug, Deserialize)]
pub struct BenchPart {
    /// Duration of the longest operation, if timed.
    pub longest_seconds: Option<f64>,
}

/// Counts of the kernel over the run: first for our ticketlocks, then for queued spinlocks.
#[derive(Debug, Default, Deserialize)]
pub struct GuestKernelStats {
    /// Backend of its locks.
    pub backend: Option<String>,
    /// Acquisitions that took the slow path.
    pub taken_slow: Option<u64>,
    /// Kicked waiters.
    #[serde(default)]
    pub kicked: u64,
    /// Halts with interrupts off.
    #[serde(default)]
    pub halted_irq_off: u64,
    /// Halts with interrupts on.
    #[serde(default)]
    pub halted_irq_on: u64,
    /// Halts of queue heads.
    pub pv_wait_head: Option<u64>,
    /// Halts of waiters behind queue heads.
    #[serde(default)]
    pub pv_wait_node: u64,
    /// Kicks at a release.
    #[serde(default)]
    pub pv_kick_unlock: u64,
}

impl GuestKernelStats {
    fn counts(&self) -> impl Iterator<Item = u64> {
        let Self { taken_slow, kicked, halted_irq_off, halted_irq_on, pv_wait_head, .. } = *self;
        let known = [kicked, halted_irq_off, halted_irq_on, self.pv_wait_node, self.pv_kick_unlock];
        known.into_iter().chain(taken_slow).chain(pv_wait_head)
    }
}

impl BenchReport {
    /// Reads a report and checks it: sums of its counts do not overflow, and its rate is finite.
    pub fn read(text: &str) -> Result<Self, BenchReportError> {
        let report: Self = serde_json::from_str(text)?;
        report.impossible().map_or(Ok(report), |reason| Err(BenchReportError::Impossible(reason)))
    }

    /// Returns the operations per second of all workers.
    pub fn rate(&self) -> f64 {
        self.operations.iter().map(|count| *count as f64).sum::<f64>() / self.seconds
    }

    /// Describes an implausible figure, if there is one.
    fn impossible(&self) -> Option<String> {
        let Self { seconds, operations, violations, steal_seconds, stats, parts, .. } = self;
        if !(*seconds > 0.0 && *seconds <= DAY) {
            return Some(format!("that it measured for {seconds} s"));
        }
        if operations.len() > MAX_WORKERS {
            return Some(format!("{} workers", operations.len()));
        }
        let stolen = steal_seconds.unwrap_or(0.0);
        if !(0.0..=DAY * operations.len() as f64).contains(&stolen) {
            return Some(format!("that {stolen} s were stolen"));
        }
        let longest = parts.iter().filter_map(|part| part.longest_seconds);
        if let Some(longest) = longest.into_iter().find(|longest| !(0.0..=DAY).contains(longest)) {
            return Some(format!("an operation of {longest} s"));
        }
        let kernel_counts = stats.iter().flat_map(GuestKernelStats::counts);
        let counts = operations.iter().copied().chain(*violations).chain(kernel_counts);
        if let Some(count) = counts.max().filter(|count| *count > MAX_COUNT) {
            return Some(format!("a count of {count}"));
        }
        let rate = self.rate();
        (rate > MAX_RATE).then(|| format!("{rate:.1e} operations a second"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: `pvticket check` had another reader, which panicked when it added two counts.
    #[test]
    fn impossible_counts_are_rejected() {
        let good = "{\"seconds\":2.003,\"violations\":0,\"operations\":[12,30],\
            \"stats\":{\"kicked\":4},\"parts\":[{\"longest_seconds\":0.5}]}";
        assert_eq!(BenchReport::read(good).unwrap().rate(), 42.0 / 2.003);
        let huge = u64::MAX.to_string();
        for (from, to, reason) in [
            ("2.003", "1e-300", "operations a second"),
            ("2.003", "0", "measured for 0 s"),
            ("2.003", "-1", "measured for -1 s"),
            ("2.003", "1e308", "measured for"),
            (
                "\"violations\":0",
                &format!("\"violations\":{huge}"),
                "a count of 18446744073709551615",
            ),
            ("[12,30]", &format!("[{huge},{huge}]"), "a count of"),
            ("\"kicked\":4", &format!("\"kicked\":{huge}"), "a count of"),
            ("\"stats\"", "\"steal_seconds\":-1,\"stats\"", "that -1 s were stolen"),
            ("\"stats\"", "\"steal_seconds\":1e9,\"stats\"", "that 1000000000 s were stolen"),
            ("[12,30]", "[200000000000000,1]", "1.0e14 operations a second"),
            ("0.5}", "-1}", "an operation of -1 s"),
            ("0.5}", "1e300}", "an operation of 1"),
        ] {
            let error = BenchReport::read(&good.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains("claims") && error.contains(reason), "{to}: {error}");
        }
        for text in
            ["", "sh: not found", "{}", &good.replace("30", "-30"), &good.replace("30", "1e30")]
        {
            assert!(matches!(BenchReport::read(text), Err(BenchReportError::Parse(_))), "{text}");
        }
    }
}
