//! The result of a workload, as text and as JSON.

use std::io;

use serde::Serialize;
use serde_json::Value;

/// The text's label of the steal time.
const STEAL: &str = "steal time";

/// The operations of the workers in a period.
#[derive(Debug, Default, Serialize)]
pub struct WorkloadPart {
    /// Distinguishes the part from the other parts, if there are several.
    pub name: String,
    /// The length of the period.
    pub seconds: f64,
    /// Operations per worker.
    pub operations: Vec<u64>,
    /// See [`WorkloadReport::steal_seconds`].
    pub steal_seconds: Option<f64>,
    /// The longest operation, if it was timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_seconds: Option<f64>,
    /// See [`WorkloadReport::output`].
    #[serde(skip)]
    pub output: Option<String>,
    /// Number of violations of mutual exclusion, if it was checked.
    #[serde(skip)]
    pub violations: Option<u64>,
}

impl WorkloadPart {
    fn rate(&self) -> f64 {
        self.operations.iter().sum::<u64>() as f64 / self.seconds
    }
}

/// Steal time over all parts, if it is known for each of them.
pub fn steal_seconds(parts: &[WorkloadPart]) -> Option<f64> {
    parts.iter().map(|part| part.steal_seconds).sum()
}

/// Operations per worker over all parts.
pub fn sums(parts: &[WorkloadPart]) -> Vec<u64> {
    let workers = parts.iter().map(|part| part.operations.len()).max().unwrap_or(0);
    let sum = |worker| parts.iter().filter_map(move |part| part.operations.get(worker)).sum();
    (0..workers).map(sum).collect()
}

/// A number and its noun, whose plural ends in s: `1 CPU`, `2 CPUs`.
fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[derive(Debug, Serialize)]
pub struct WorkloadReport {
    /// The name of the workload.
    pub bench: &'static str,
    /// Number of online CPUs.
    pub cpus: usize,
    /// Steal time of all CPUs, if the kernel reports it. Excludes halts.
    pub steal_seconds: Option<f64>,
    /// Length of the measurement, over all parts.
    pub seconds: f64,
    /// Operations per worker, over all parts.
    pub operations: Vec<u64>,
    /// Number of violations of mutual exclusion, if it was checked.
    pub violations: Option<u64>,
    /// The kernel's description of its spinlocks, if it has one.
    pub spinlocks: Option<String>,
    /// The kernel's lock counters over the windows, if it has any.
    pub stats: Option<Value>,
    /// The end of a program's stdout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    pub parts: Vec<WorkloadPart>,
}

impl WorkloadReport {
    pub fn json(&self) -> io::Result<String> {
        Ok(serde_json::to_string(self)? + "\n")
    }

    pub fn text(&self) -> String {
        let workers = self.parts.first().map_or(0, |part| part.operations.len());
        let mut text = format!(
            "{}: {} on {}\n",
            self.bench,
            count(workers, "worker"),
            count(self.cpus, "CPU")
        );
        for part in &self.parts {
            let (rate, per_cpu) = (part.rate(), part.rate() / self.cpus as f64);
            let name = format!("{} operations/s", part.name);
            text += &format!("  {:<28}{rate:>12.0}{per_cpu:>12.0} per CPU\n", name.trim());
        }
        text += &match self.steal_seconds {
            Some(steal) => {
                let share = 100.0 * steal / (self.seconds * self.cpus as f64);
                format!("  {STEAL:<28}{steal:>12.2} s, {share:.1} % of the CPUs' time\n")
            }
            None => format!("  {STEAL:<28}{:>12}\n", "unknown"),
        };
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_per_second_and_per_cpu() {
        let part = |name: &str| WorkloadPart {
            name: name.into(),
            seconds: 2.0,
            operations: vec![100, 300],
            steal_seconds: Some(0.2),
            ..WorkloadPart::default()
        };
        let parts = vec![part("512 bytes:"), part("")];
        let (seconds, operations) = (4.0, sums(&parts));
        assert_eq!(operations, [200, 600]);
        let steal_seconds = steal_seconds(&parts);
        let report = WorkloadReport {
            bench: "b",
            cpus: 2,
            steal_seconds,
            seconds,
            operations,
            violations: None,
            spinlocks: None,
            stats: None,
            output: None,
            parts,
        };
        let text = report.text();
        assert!(text.contains("512 bytes: operations/s              200         100 per CPU"));
        assert!(text.contains("0.40 s, 5.0 % of the CPUs' time"), "{text}");
        assert!(text.starts_with("b: 2 workers on 2 CPUs\n"), "{text}");
        assert!(report.json().unwrap().contains("\"operations\":[100,300]"));
        let alone = WorkloadReport {
            cpus: 1,
            parts: vec![WorkloadPart { operations: vec![1], ..part("") }],
            ..report
        };
        assert!(alone.text().starts_with("b: 1 worker on 1 CPU\n"), "{}", alone.text());
    }
}
