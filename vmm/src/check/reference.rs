//! Rates in a file, for comparison with another kernel.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::check::{Failure, ktap::TestResult};
use base::{files, shown, units::ByteSize};
use experiment::Usage;
use study::{
    host_facts::FileFacts,
    stats::{self, Direction, Verdict, judge},
};

/// The format of the file.
pub const FORMAT: &str = "pvticket-check-1";
/// A median that is significantly lower is a failure only below this share of the reference's: runs at
/// different times differ by more than a rank test attributes to chance.
pub const WORSE: f64 = 0.8;
/// Seed of the bootstrap.
const SEED: u64 = 1;
/// Limit of the file's size.
const MOST: ByteSize = ByteSize::mib(16);

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
pub struct Compared {
    /// The other median divided by the reference's, with a confidence interval.
    pub ratio: Option<stats::Estimate>,
    /// Whether they differ by more than chance.
    pub verdict: Verdict,
}

impl Reference {
    /// Reads a file written by `--json`.
    pub fn read(file: &Path) -> Result<Self, Usage> {
        let refused =
            |why: &dyn std::fmt::Display| Usage(format!("--against {}: {why}", file.display()));
        let bytes = files::read(file, MOST).map_err(|error| refused(&error))?;
        let what = "not a result of pvticket check (create it with --json)";
        let read: Self =
            serde_json::from_slice(&bytes).map_err(|error| refused(&format!("{what}: {error}")))?;
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

    /// Fails if one of these rates, measured on `host`, is worse than the reference's.
    pub fn judge(&self, host: &str, all: &[Rates]) -> TestResult {
        let mut notes: Vec<String> = all.iter().map(Rates::line).collect();
        if self.host != host {
            let theirs = shown::cut(&self.host, 200);
            let why =
                format!("the reference was measured on another host: {theirs}; this host: {host}");
            return TestResult { notes, ..TestResult::skipped(why) };
        }
        let pairs: Vec<(&Rates, &Rates)> =
            all.iter().filter_map(|rates| Some((self.beside(rates)?, rates))).collect();
        if pairs.is_empty() {
            return TestResult::skipped("the reference has no rates of these locks");
        }
        let mut worse = Vec::new();
        for ((reference, rates), compared) in pairs.iter().zip(compare(&pairs)) {
            notes.push(format!("{}: {} of the reference", rates.name(), compared.words()));
            if compared.is_worse() {
                worse.push(format!("{} is slower than {}", rates.name(), reference.line()));
            }
        }
        let is_gone = |reference: &&Rates| {
            let here = all.iter().filter(|rates| rates.overcommit == reference.overcommit);
            let locks: Vec<&str> = here.map(|rates| rates.locks.as_str()).collect();
            !locks.is_empty() && !locks.contains(&reference.locks.as_str())
        };
        let gone: Vec<&Rates> = self.rates.iter().filter(is_gone).collect();
        worse.extend(
            gone.iter().map(|gone| format!("the kernel no longer has {} locks", gone.locks)),
        );
        if worse.is_empty() {
            return TestResult::ok(notes);
        }
        TestResult::failed(Failure { why: worse.join("; "), is_late: gone.is_empty() }, notes)
    }

    fn beside(&self, other: &Rates) -> Option<&Rates> {
        let is_same =
            |rates: &&Rates| (&rates.locks, rates.overcommit) == (&other.locks, other.overcommit);
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
pub fn compare(pairs: &[(&Rates, &Rates)]) -> Vec<Compared> {
    let samples =
        |(reference, other): &(&Rates, &Rates)| (other.rates.clone(), reference.rates.clone());
    let samples: Vec<_> = pairs.iter().map(samples).collect();
    let verdicts = judge(&samples, SEED);
    let compared = |((other, reference), verdict): (&(Vec<f64>, Vec<f64>), _)| Compared {
        ratio: stats::ratio_of_medians(other, reference, SEED),
        verdict,
    };
    samples.iter().zip(verdicts).map(compared).collect()
}

impl Compared {
    /// Whether the rate is significantly lower, and below [`WORSE`].
    pub fn is_worse(&self) -> bool {
        self.verdict.finds(Direction::Less) && self.ratio.is_some_and(|ratio| ratio.value < WORSE)
    }

    /// The ratio with its interval.
    pub fn words(&self) -> String {
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

    fn rates(locks: &str, around: f64) -> Rates {
        let rates = (0..8).map(|ix| around * (1.0 + f64::from(ix) / 100.0)).collect();
        Rates { rates, ..Rates::new(locks, 2) }
    }

    fn reference() -> Reference {
        let rates = vec![rates("native", 100.0), rates("pv", 1000.0)];
        Reference { rates, ..Reference::new(FileFacts::default(), String::new()) }
    }

    #[test]
    fn only_what_is_much_slower_fails() {
        let judged =
            |native, pv| reference().judge("", &[rates("native", native), rates("pv", pv)]);
        assert_eq!(judged(100.0, 1000.0).verdict, ktap::Verdict::Ok);
        assert_eq!(judged(100.0, 5000.0).verdict, ktap::Verdict::Ok);
        // Significant, but only a tenth.
        assert_eq!(judged(100.0, 880.0).verdict, ktap::Verdict::Ok);
        let slower = judged(100.0, 500.0);
        let ktap::Verdict::NotOk(why) = &slower.verdict else { panic!("{slower:?}") };
        assert!(why.starts_with("pv at 2x is slower than pv at 2x: 103"), "{why}");
        assert!(slower.notes.iter().any(|note| note.contains("0.50x")), "{slower:?}");
        let other = reference().judge("", &[rates("other", 1.0)]);
        assert_eq!(other.verdict.name(), "skipped");
        assert!(slower.is_late, "a busy host has lower rates");
        let gone = reference().judge("", &[rates("native", 100.0)]);
        assert!(!gone.is_late);
        let why = "the kernel no longer has pv locks";
        assert_eq!(gone.verdict, ktap::Verdict::NotOk(why.into()));
    }

    /// Regression: rates of different hosts were compared.
    #[test]
    fn a_reference_of_another_host_is_not_one() {
        let here = Reference { host: "A CPU, 2 CPUs".into(), ..reference() };
        let judged = |host| here.judge(host, &[rates("native", 1.0)]).verdict;
        assert!(matches!(judged("A CPU, 2 CPUs"), ktap::Verdict::NotOk(_)));
        let ktap::Verdict::Skipped(why) = judged("A CPU, 1 CPU") else { panic!("compared") };
        assert!(why.ends_with("another host: A CPU, 2 CPUs; this host: A CPU, 1 CPU"), "{why}");
    }

    #[test]
    fn a_file_that_is_no_result_is_refused_in_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("reference");
        let refused = |text: &str| {
            fs::write(&file, text).unwrap();
            Reference::read(&file).unwrap_err().0
        };
        for text in ["", "{}", "[1]", "\u{0}"] {
            let why = refused(text);
            assert!(
                why.contains("not a result of pvticket check") && why.lines().count() == 1,
                "{why}"
            );
        }
        let other = Reference { format: "x".into(), ..reference() };
        assert!(refused(&serde_json::to_string(&other).unwrap()).contains("unsupported format"));
        let text = serde_json::to_string(&reference()).unwrap();
        assert!(refused(&text.replacen("100.0", "-1.0", 1)).contains("invalid rate"));
        fs::write(&file, text).unwrap();
        assert_eq!(Reference::read(&file).unwrap(), reference());
    }
}
