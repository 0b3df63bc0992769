//! The in-kernel lock benchmark: its command line, its output, and the result as JSON.

use alloc::{format, string::String, vec::Vec};
use core::fmt::Write;

use crate::{json, stats::KernelStats};

/// The usage message of the `lockbench` applet.
pub const USAGE: &str =
    "usage: lockbench [--critical N] [--think N] [--warm-up S] [--seconds S] [--cpus N]";

/// The parameters of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunParams {
    /// Increments inside the critical section.
    pub critical: u32,
    /// Increments between a release and the next acquisition.
    pub think: u32,
    /// Milliseconds of work before the measurement: a run is fast until the first holder is
    /// preempted.
    pub warm_up: u32,
    /// Length of the measurement in milliseconds.
    pub msecs: u32,
    /// Number of CPUs that take part; None: all.
    pub cpus: Option<u32>,
}

impl Default for RunParams {
    /// Critical section, think time and warm-up as in the ring-3 payload, for two seconds.
    fn default() -> Self {
        Self { critical: 50, think: 200, warm_up: 100, msecs: 2000, cpus: None }
    }
}

impl RunParams {
    /// Parses `--name value` or `--name=value`. The error names the wrong word.
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut run = Self::default();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word, None),
            };
            if !matches!(name, "--critical" | "--think" | "--warm-up" | "--seconds" | "--cpus") {
                return Err(format!("unknown option '{word}'"));
            }
            let value =
                value.or_else(|| words.next()).ok_or_else(|| format!("{name} needs a number"))?;
            let bad = || format!("{name} '{value}' is not a valid number");
            match name {
                "--critical" => run.critical = value.parse().map_err(|_| bad())?,
                "--think" => run.think = value.parse().map_err(|_| bad())?,
                "--warm-up" => run.warm_up = milliseconds(value).ok_or_else(bad)?,
                "--cpus" => run.cpus = Some(positive(value.parse().ok()).ok_or_else(bad)?),
                _ => run.msecs = positive(milliseconds(value)).ok_or_else(bad)?,
            }
        }
        Ok(run)
    }

    /// The line for the kernel's file.
    pub fn command(&self) -> String {
        let Self { critical, think, warm_up, msecs, cpus } = self;
        let mut line = format!("critical={critical} think={think} warmup={warm_up} msecs={msecs}");
        if let Some(cpus) = cpus {
            // Writing to a String cannot fail.
            let _ = write!(line, " cpus={cpus}");
        }
        line
    }
}

fn positive(number: Option<u32>) -> Option<u32> {
    number.filter(|n| *n > 0)
}

/// Parses seconds with up to three decimals; returns milliseconds.
fn milliseconds(text: &str) -> Option<u32> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || part.len() > 3 || !digits(whole) || !digits(part) {
        return None;
    }
    let thousandths = part.bytes().chain(*b"000").take(3);
    let part = thousandths.fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
    whole.parse::<u32>().ok()?.checked_mul(1000)?.checked_add(part)
}

/// The kernel's output after a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunResult {
    /// Measured length in milliseconds.
    pub msecs: u64,
    /// How often the check of mutual exclusion failed, if the kernel has the check.
    pub violations: Option<u64>,
    /// Operations of each CPU that took part, in order.
    pub operations: Vec<u64>,
}

impl RunResult {
    /// Parses `msecs N`, `violations N` and the `cpu I operations N` lines. None if the first is
    /// missing, or there is none of the last.
    pub fn parse(text: &str) -> Option<Self> {
        let (mut msecs, mut violations) = (None, None);
        let mut operations = Vec::new();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let number = words.clone().last().and_then(|word| word.parse().ok());
            match words.next() {
                Some("msecs") => msecs = number,
                Some("violations") => violations = number,
                Some("cpu") if words.nth(1) == Some("operations") => operations.push(number?),
                _ => {}
            }
        }
        (!operations.is_empty()).then_some(())?;
        Some(Self { msecs: msecs?, violations, operations })
    }

    /// The result of a run as one JSON object and a newline, with the kernel's lock counts over the
    /// run and its description of its spinlocks, if available.
    pub fn to_json(&self, stats: Option<&KernelStats<'_>>, spinlocks: Option<&str>) -> String {
        let (seconds, rest) = (self.msecs / 1000, self.msecs % 1000);
        let mut out = format!("{{\"seconds\":{seconds}.{rest:03},\"violations\":");
        match self.violations {
            Some(count) => json::number(&mut out, count),
            None => out.push_str("null"),
        }
        out.push_str(",\"operations\":[");
        json::separated(&mut out, self.operations.iter().copied(), json::number);
        out.push_str("],\"spinlocks\":");
        match spinlocks {
            Some(text) => json::string(&mut out, text),
            None => out.push_str("null"),
        }
        out.push_str(",\"stats\":");
        match stats {
            Some(stats) => stats.write_json(&mut out),
            None => out.push_str("null"),
        }
        out.push_str("}\n");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_become_the_kernels_line() {
        let run = RunParams::parse(["--critical", "7", "--seconds=0.25", "--cpus", "3"]).unwrap();
        assert_eq!(run.command(), "critical=7 think=200 warmup=100 msecs=250 cpus=3");
        let none = RunParams::parse(["--warm-up", "0"]).unwrap();
        assert_eq!(none.command(), "critical=50 think=200 warmup=0 msecs=2000");
    }

    #[test]
    fn wrong_options_are_named() {
        for (words, part) in [
            (&["--speed", "1"][..], "--speed"),
            (&["--seconds"], "needs a number"),
            (&["--seconds", "0"], "'0'"),
            (&["--seconds", "1.2.3"], "'1.2.3'"),
            (&["--seconds", "."], "'.'"),
            (&["--cpus", "0"], "'0'"),
            (&["--think", "-1"], "'-1'"),
            (&["--warm-up", "x"], "'x'"),
        ] {
            let error = RunParams::parse(words.iter().copied()).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn seconds_have_up_to_three_decimals() {
        assert_eq!(milliseconds("2"), Some(2000));
        assert_eq!(milliseconds("2.05"), Some(2050));
        assert_eq!(milliseconds("1.0001"), None);
        assert_eq!(milliseconds("99999999999"), None);
    }

    #[test]
    fn the_outcome_is_one_json_object() {
        let text = "msecs 2003\nviolations 0\ncpu 0 operations 12\ncpu 1 operations 30\n";
        let outcome = RunResult::parse(text).unwrap();
        assert_eq!(
            outcome.to_json(Some(&KernelStats::parse("kicked 4")), Some("PV")),
            "{\"seconds\":2.003,\"violations\":0,\"operations\":[12,30],\
             \"spinlocks\":\"PV\",\"stats\":{\"kicked\":4}}\n"
        );
        assert!(outcome.to_json(None, None).ends_with("\"spinlocks\":null,\"stats\":null}\n"));
        assert_eq!(RunResult::parse("msecs 1\ncpu 0 operations 3\n").unwrap().violations, None);
        assert_eq!(RunResult::parse("cpu 0 operations 3\n"), None);
        assert_eq!(RunResult::parse("msecs 1\nviolations 0\n"), None);
    }
}
