//! `--handoff`: optimizations of the handoffs of a guest's PV locks.

use std::{fmt, str::FromStr};

use hypercalls::payload::handoff;
use serde::{Serialize, Serializer};
use thiserror::Error;

/// The flags, with their bits in the payload's parameters.
const FLAGS: [(&str, u32); 5] = [
    ("predecessor", handoff::PREDECESSOR),
    ("adapt", handoff::ADAPT),
    ("claim", handoff::CLAIM),
    ("ahead", handoff::AHEAD),
    ("fuse", handoff::FUSE),
];

/// Settings of `locks::Handoff`: `none`, or one or more of `adapt`, `claim`, `ahead`,
/// `predecessor`, `fuse`, `far:N`, `queue:N`, and `restrict:N` or `restrict:auto` joined by `+`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HandoffSpec {
    /// Flags of [`hypercalls::payload::handoff`].
    pub bits: u32,
    /// A waiter with at least this many vCPUs ahead halts without spinning; zero: disabled.
    pub far: u16,
    /// Maximum number of vCPUs in a lock's queue; zero: no limit.
    pub queue: u16,
    /// Maximum number of vCPUs that hold a lock of any kind or wait for it at once; zero: no
    /// limit; [`handoff::ADAPTIVE`]: the lock adapts the limit.
    pub restrict: u16,
}

/// Error parsing the settings.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HandoffError {
    /// An unknown setting.
    #[error(
        "unknown handoff '{0}' (expected: none, or predecessor, adapt, claim, ahead, fuse, far:N, queue:N, and restrict:N or restrict:auto joined by '+')"
    )]
    Unknown(String),
    /// Two limits at once.
    #[error("queue:N and restrict:N are alternatives: use one of them")]
    TwoLimits,
    /// A number that is invalid or out of range.
    #[error("{0}:N requires a number of vCPUs from 1 to {max}, not '{1}'", max = hypercalls::MAX_VCPUS)]
    Number(&'static str, String),
}

/// Reason to reject `restrict:N` for Linux guests.
pub const NO_GUEST_KERNEL: &str =
    "guest kernels do not support restrict:N, only payloads and sim do; pv-ticket has queue:N";

impl HandoffSpec {
    /// Plain halts and kicks without optimizations.
    pub const NONE: Self = Self { bits: 0, far: 0, queue: 0, restrict: 0 };

    /// Returns the settings without those that only PV ticketlocks have.
    pub fn without_pv(self) -> Self {
        Self { restrict: self.restrict, ..Self::NONE }
    }
}

impl FromStr for HandoffSpec {
    type Err = HandoffError;

    fn from_str(text: &str) -> Result<Self, HandoffError> {
        let mut spec = Self::NONE;
        if text == "none" {
            return Ok(spec);
        }
        for word in text.split('+') {
            let (name, number) = word.split_once(':').unzip();
            match (name, number) {
                (Some("far"), Some(text)) => spec.far = count("far", text)?,
                (Some("queue"), Some(text)) => spec.queue = count("queue", text)?,
                (Some("restrict"), Some("auto")) => spec.restrict = handoff::ADAPTIVE,
                (Some("restrict"), Some(text)) => spec.restrict = count("restrict", text)?,
                _ => spec.bits |= flag(word)?,
            }
        }
        if spec.queue != 0 && spec.restrict != 0 {
            return Err(HandoffError::TwoLimits);
        }
        Ok(spec)
    }
}

fn flag(word: &str) -> Result<u32, HandoffError> {
    let flag = FLAGS.iter().find(|(name, _)| *name == word);
    flag.map(|(_, bit)| *bit).ok_or_else(|| HandoffError::Unknown(word.into()))
}

fn count(name: &'static str, text: &str) -> Result<u16, HandoffError> {
    let number = text.parse().ok().filter(|n| (1..=hypercalls::MAX_VCPUS as u16).contains(n));
    number.ok_or_else(|| HandoffError::Number(name, text.into()))
}

impl fmt::Display for HandoffSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words: Vec<String> = Vec::new();
        if self.far != 0 {
            words.push(format!("far:{}", self.far));
        }
        let flags = FLAGS.iter().filter(|(_, bit)| self.bits & bit != 0);
        words.extend(flags.map(|(name, _)| (*name).into()));
        if self.queue != 0 {
            words.push(format!("queue:{}", self.queue));
        }
        match self.restrict {
            0 => {}
            handoff::ADAPTIVE => words.push("restrict:auto".into()),
            limit => words.push(format!("restrict:{limit}")),
        }
        if words.is_empty() { f.write_str("none") } else { f.write_str(&words.join("+")) }
    }
}

impl Serialize for HandoffSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_round_trip() {
        for text in [
            "none",
            "far:2",
            "predecessor+adapt+claim+ahead+fuse",
            "adapt+queue:128",
            "restrict:2",
            "restrict:auto",
        ] {
            assert_eq!(text.parse::<HandoffSpec>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn rejects_invalid_settings() {
        for text in
            ["", "fast", "none+fuse", "far", "queue:", "queue:0", "far:129", "adapt+", "restrict:0"]
        {
            let error = text.parse::<HandoffSpec>().unwrap_err().to_string();
            assert!(error.contains("far:N") || error.contains(":N requires"), "{text}: {error}");
        }
    }
}
