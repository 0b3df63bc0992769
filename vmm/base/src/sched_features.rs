//! Features of the host's scheduler that can be switched while it runs (kernel/sched/features.h).

use std::{fmt, str::FromStr};

use thiserror::Error;

/// The file with the state of each feature, in debugfs. A name that is written to it switches the feature,
/// with `NO_` before it off.
pub const FILE: &str = "/sys/kernel/debug/sched/features";

/// What the file has in Debian 12's cloud kernel, 6.1.192.
pub const OF_LINUX_6_1: &str = "GENTLE_FAIR_SLEEPERS START_DEBIT NO_NEXT_BUDDY LAST_BUDDY CACHE_HOT_BUDDY \
    WAKEUP_PREEMPTION NO_HRTICK NO_HRTICK_DL NO_DOUBLE_TICK NONTASK_CAPACITY TTWU_QUEUE NO_SIS_PROP \
    SIS_UTIL NO_WARN_DOUBLE_CLOCK NO_RT_PUSH_IPI NO_RT_RUNTIME_SHARE NO_LB_MIN ATTACH_AGE_LOAD WA_IDLE \
    WA_WEIGHT WA_BIAS UTIL_EST UTIL_EST_FASTUP NO_LATENCY_WARN NI_RANDOM ALT_PERIOD BASE_SLICE";

/// What the file has in the cloud kernel 7.3.4 of Debian 13's backports.
pub const OF_LINUX_7: &str = "PLACE_LAG PLACE_DEADLINE_INITIAL PLACE_REL_DEADLINE RUN_TO_PARITY \
    PREEMPT_SHORT NO_NEXT_BUDDY PICK_BUDDY CACHE_HOT_BUDDY DELAY_DEQUEUE DELAY_ZERO NO_PARANOID_AVG \
    WAKEUP_PREEMPTION HRTICK HRTICK_DL NONTASK_CAPACITY TTWU_QUEUE SIS_UTIL NO_WARN_DOUBLE_CLOCK \
    NO_RT_PUSH_IPI NO_RT_RUNTIME_SHARE NO_LB_MIN ATTACH_AGE_LOAD WA_IDLE WA_WEIGHT WA_BIAS UTIL_EST \
    NO_LATENCY_WARN NI_RANDOM NI_RATE";

/// The most features that are switched together.
const MOST: usize = 8;

/// The longest name of a feature, `NO_` included.
const LONGEST: usize = 48;

/// Features to switch, by the names of [`FILE`]: `NEXT_BUDDY`, or `NEXT_BUDDY+NO_RUN_TO_PARITY`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SchedFeatures(Vec<String>);

/// A text that names no features.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SchedFeaturesError {
    /// A part of it is not a name.
    #[error("unknown scheduler feature '{0}': names are as in {FILE}, joined by '+'")]
    Name(String),
    /// A feature is named twice.
    #[error("'{0}' is switched twice")]
    Twice(String),
    /// Too many features.
    #[error("at most {MOST} features at a time")]
    Many,
}

/// The feature that a name switches.
fn feature(name: &str) -> &str {
    name.strip_prefix("NO_").unwrap_or(name)
}

impl SchedFeatures {
    /// The names to write.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// The first feature that a kernel whose file has this text does not have.
    pub fn missing(&self, listed: &str) -> Option<&str> {
        let has = |name: &str| listed.split_whitespace().any(|other| feature(other) == name);
        self.names().map(feature).find(|name| !has(name))
    }

    /// The first name that does not hold in a file of this text.
    pub fn unlike(&self, listed: &str) -> Option<&str> {
        self.names().find(|name| !listed.split_whitespace().any(|other| other == *name))
    }

    /// The names to write so that these features are again as this text has them.
    pub fn undo<'a>(&self, before: &'a str) -> Vec<&'a str> {
        let is_ours = |old: &&str| self.names().any(|name| feature(name) == feature(old));
        before.split_whitespace().filter(is_ours).collect()
    }
}

impl fmt::Display for SchedFeatures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("+"))
    }
}

impl FromStr for SchedFeatures {
    type Err = SchedFeaturesError;

    fn from_str(text: &str) -> Result<Self, SchedFeaturesError> {
        let is_letter = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        let mut names: Vec<String> = Vec::new();
        for name in text.split('+') {
            let is_name = (1..=LONGEST).contains(&name.len()) && name.chars().all(is_letter);
            if !is_name || feature(name).is_empty() {
                return Err(SchedFeaturesError::Name(name.into()));
            }
            if names.iter().any(|other| feature(other) == feature(name)) {
                return Err(SchedFeaturesError::Twice(feature(name).into()));
            }
            names.push(name.into());
        }
        if names.len() > MOST {
            return Err(SchedFeaturesError::Many);
        }
        Ok(Self(names))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> SchedFeatures {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_switched_is_switched_back() {
        let asked = parse("NEXT_BUDDY+NO_WAKEUP_PREEMPTION");
        assert_eq!(asked.to_string(), "NEXT_BUDDY+NO_WAKEUP_PREEMPTION");
        for listed in [OF_LINUX_6_1, OF_LINUX_7] {
            assert_eq!(asked.missing(listed), None);
            assert_eq!(asked.unlike(listed), Some("NEXT_BUDDY"));
            assert_eq!(asked.undo(listed), ["NO_NEXT_BUDDY", "WAKEUP_PREEMPTION"]);
        }
        assert_eq!(asked.unlike("NO_WAKEUP_PREEMPTION NEXT_BUDDY\n"), None);
        assert_eq!(parse("RUN_TO_PARITY").missing(OF_LINUX_6_1), Some("RUN_TO_PARITY"));
        assert_eq!(parse("NO_RUN_TO_PARITY").missing(OF_LINUX_7), None);
    }

    #[test]
    fn other_texts_are_no_features() {
        for text in ["", "next_buddy", "A B", "A+", "NO_", "A\n", &"A".repeat(49)] {
            let error = text.parse::<SchedFeatures>().unwrap_err();
            assert!(matches!(error, SchedFeaturesError::Name(_)), "{text:?}: {error}");
        }
        let twice = "A+NO_A".parse::<SchedFeatures>();
        assert_eq!(twice, Err(SchedFeaturesError::Twice("A".into())));
        let many = "A+B+C+D+E+F+G+H+I".parse::<SchedFeatures>();
        assert_eq!(many, Err(SchedFeaturesError::Many));
    }
}
