//! Rates in a file, for comparison with another kernel.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::check::ktap::TestResult;
use base::{files, sanitize, units::ByteSize};
use experiment::Usage;
use study::{
    host_facts::FileFacts,
    stats::{self, Direction, Verdict, judge},
};

/// The format of the file.
pub const FORMAT: &str = "pvticket-check-1";
/// A median that is significantly lower is a failure only below this share of the reference's: runs at
/// different times differ by more than a rank test attributes to chance.
pub const FLOOR: f64 = 0.8;
/// Seed of the bootstrap.
const SEED: u64 = 1;
/// Limit of the file's size.
const MAX_FILE: ByteSize = ByteSize::mib(16);

/// The results of a test run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reference {
    /// [`FORMAT`].
    pub format: String,
    /// The kernel.
    pub kernel: FileFacts,
    /// The host's CPU and KVM.
    pub host: String,
    /// Test names with verdicts: `ok`, `not ok` or `skipped`.
    pub results: Vec<(String, String)>,
    /// The rates.
    pub rates: Vec<Rates>,
}

/// Rates of one kind of locks at one overcommit ratio.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// `native` or `pv`.
    pub locks: String,
    /// vCPUs per CPU.
    pub overcommit: u32,
    /// Additions per second in each window.
    pub rates: Vec<f64>,
}

/// A comparison of two sets of rates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// The other median divided by the reference's, with a confidence interval.
    pub ratio: Option<stats::Estimate>,
    /// Whether the rates differ by more than chance.
    pub verdict: Verdict,
}

impl Reference {
    /// Reads a file written by `--json`.
    pub fn read(file: &Path) -> Result<Self, Usage> {
        let refused =
            |text: &dyn std::fmt::Display| Usage(format!("--against {}: {text}", file.display()));
        let bytes = files::read(file, MAX_FILE).map_err(|error| refused(&error))?;
        let title = "not a result of pvticket check (create it with --json)";
        let read: Self = serde_json::from_slice(&bytes)
            .map_err(|error| refused(&format!("{title}: {error}")))?;
        if read.format != FORMAT {
            return Err(refused(&format!("unsupported format {:?}, not {FORMAT}", read.format)));
        }
        let mut rates = read.rates.iter().flat_map(|rates| &rates.rates);
        if !rates.all(|rate| rate.is_finite() && *rate >= 0.0) {
            return Err(refused(&"invalid rate: must be at least 0"));
        }
        Ok(read)
    }

    /// No results yet, for this kernel on this host.
    pub fn new(kernel: FileFacts, host: String) -> Self {
        Self { format: FORMAT.into(), kernel, host, results: Vec::new(), rates: Vec::new() }
    }

    /// Fails if one of these rates, measured on `host`, is missing or worse than the reference's.
    pub fn judge(&self, host: &str, rates: &[Rates]) -> TestResult {
        let mut notes: Vec<String> = rates.iter().map(Rates::line).collect();
        if self.host != host {
            let theirs = sanitize::truncate(&self.host, 200);
            let reason =
                format!("the reference was measured on another host: {theirs}; this host: {host}");
            return TestResult { notes, ..TestResult::skipped(reason) };
        }
        let pairs: Vec<(&Rates, &Rates)> =
            rates.iter().filter_map(|rates| Some((self.matching(rates)?, rates))).collect();
        if pairs.is_empty() {
            return TestResult::skipped("the reference has no rates of these locks");
        }
        let mut worse = Vec::new();
        for ((reference, rates), comparison) in pairs.iter().zip(compare(&pairs)) {
            notes.push(format!("{}: {} of the reference", rates.name(), comparison.text()));
            if comparison.is_worse() {
                worse.push(format!("{} is slower than {}", rates.name(), reference.line()));
            }
        }
        let is_missing = |reference: &&Rates| {
            let measured = rates.iter().filter(|rates| rates.overcommit == reference.overcommit);
            let locks: Vec<&str> = measured.map(|rates| rates.locks.as_str()).collect();
            !locks.is_empty() && !locks.contains(&reference.locks.as_str())
        };
        let missing: Vec<&Rates> = self.rates.iter().filter(is_missing).collect();
        worse.extend(
            missing.iter().map(|rates| format!("the kernel no longer has {} locks", rates.locks)),
        );
        if worse.is_empty() {
            return TestResult::ok(notes);
        }
        TestResult { is_timeout: missing.is_empty(), ..TestResult::not_ok(worse.join("; "), notes) }
    }

    fn matching(&self, key: &Rates) -> Option<&Rates> {
        let is_same =
            |rates: &&Rates| (&rates.locks, rates.overcommit) == (&key.locks, key.overcommit);
        self.rates.iter().find(is_same)
    }
}

impl Rates {
    /// No rates yet.
    pub fn new(locks: &str, overcommit: u32) -> Self {
        Self { locks: locks.to_owned(), overcommit, rates: Vec::new() }
    }

    fn name(&self) -> String {
        format!("{} at {}x", self.locks, self.overcommit)
    }

    /// The name, the median and the range.
    pub fn line(&self) -> String {
        let Some(summary) = stats::summarise(&self.rates) else {
            return format!("{}: no rates", self.name());
        };
        let (low, high) = (summary.min, summary.max);
        format!("{}: {:.0} additions/s ({low:.0} .. {high:.0})", self.name(), summary.median.value)
    }
}

/// Compares pairs of (reference, other), with one correction for multiple tests.
pub fn compare(pairs: &[(&Rates, &Rates)]) -> Vec<Comparison> {
    let samples =
        |(reference, other): &(&Rates, &Rates)| (other.rates.clone(), reference.rates.clone());
    let samples: Vec<_> = pairs.iter().map(samples).collect();
    let verdicts = judge(&samples, SEED);
    let comparison = |((other, reference), verdict): (&(Vec<f64>, Vec<f64>), _)| Comparison {
        ratio: stats::ratio_of_medians(other, reference, SEED),
        verdict,
    };
    samples.iter().zip(verdicts).map(comparison).collect()
}

impl Comparison {
    /// Whether the rate is significantly lower, and the ratio below [`FLOOR`].
    pub fn is_worse(&self) -> bool {
        self.verdict.finds(Direction::Less) && self.ratio.is_some_and(|ratio| ratio.value < FLOOR)
    }

    /// The ratio with its interval.
    pub fn text(&self) -> String {
        match self.ratio {
            None => "no ratio".into(),
            Some(stats::Estimate { value, interval: None }) => format!("{value:.2}x"),
            Some(stats::Estimate { value, interval: Some(interval) }) => {
                format!("{value:.2}x ({:.2} .. {:.2})", interval.low, interval.high)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::check::ktap;

    fn rates(locks: &str, base: f64) -> Rates {
        let rates = (0..8).map(|ix| base * (1.0 + f64::from(ix) / 100.0)).collect();
        Rates { rates, ..Rates::new(locks, 2) }
    }

    fn reference() -> Reference {
        let rates = vec![rates("native", 100.0), rates("pv", 1000.0)];
        Reference { rates, ..Reference::new(FileFacts::default(), String::new()) }
    }

    #[test]
    fn much_slower_fails() {
        let judged =
            |native, pv| reference().judge("", &[rates("native", native), rates("pv", pv)]);
        assert_eq!(judged(100.0, 1000.0).verdict, ktap::Verdict::Ok);
        assert_eq!(judged(100.0, 5000.0).verdict, ktap::Verdict::Ok);
        // Significant, but only a tenth.
        assert_eq!(judged(100.0, 880.0).verdict, ktap::Verdict::Ok);
        let slower = judged(100.0, 500.0);
        let ktap::Verdict::NotOk(reason) = &slower.verdict else { panic!("{slower:?}") };
        assert!(reason.starts_with("pv at 2x is slower than pv at 2x: 103"), "{reason}");
        assert!(slower.notes.iter().any(|note| note.contains("0.50x")), "{slower:?}");
        let unknown = reference().judge("", &[rates("other", 1.0)]);
        assert_eq!(unknown.verdict.name(), "skipped");
        assert!(slower.is_timeout, "a busy host has lower rates");
        let missing = reference().judge("", &[rates("native", 100.0)]);
        assert!(!missing.is_timeout);
        let reason = "the kernel no longer has pv locks";
        assert_eq!(missing.verdict, ktap::Verdict::NotOk(reason.into()));
    }

    /// Regression: rates of different hosts were compared.
    #[test]
    fn reference_of_another_host_is_skipped() {
        let reference = Reference { host: "A CPU, 2 CPUs".into(), ..reference() };
        let judged = |host| reference.judge(host, &[rates("native", 1.0)]).verdict;
        assert!(matches!(judged("A CPU, 2 CPUs"), ktap::Verdict::NotOk(_)));
        let ktap::Verdict::Skipped(text) = judged("A CPU, 1 CPU") else { panic!("compared") };
        assert!(text.ends_with("another host: A CPU, 2 CPUs; this host: A CPU, 1 CPU"), "{text}");
    }

    #[test]
    fn invalid_file_is_one_line_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("reference");
        let error = |text: &str| {
            fs::write(&file, text).unwrap();
            Reference::read(&file).unwrap_err().0
        };
        for text in ["", "{}", "[1]", "\u{0}"] {
            let reason = error(text);
            assert!(
                reason.contains("not a result of pvticket check") && reason.lines().count() == 1,
                "{reason}"
            );
        }
        let newer = Reference { format: "x".into(), ..reference() };
        assert!(error(&serde_json::to_string(&newer).unwrap()).contains("unsupported format"));
        let text = serde_json::to_string(&reference()).unwrap();
        assert!(error(&text.replacen("100.0", "-1.0", 1)).contains("invalid rate"));
        fs::write(&file, text).unwrap();
        assert_eq!(Reference::read(&file).unwrap(), reference());
    }
}
