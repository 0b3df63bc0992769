//! Numbers of vCPUs, CPUs and durations in the syntax of options and specs, resolved for this host.

use std::{fmt, str::FromStr, time::Duration};

use thiserror::Error;

use base::{
    plural::count,
    units::{CpuList, UnitError, VcpuCount},
};

/// Reasons to reject a plan.
#[derive(Debug, Error, PartialEq)]
pub enum PlanError {
    /// A level is not a valid number of vCPUs.
    #[error(transparent)]
    Vcpus(#[from] UnitError),
    /// A level is not a ratio.
    #[error("'{0}' is not a ratio: write for example 1.5x")]
    Ratio(String),
    /// A ratio results in an invalid number of vCPUs.
    #[error(
        "{ratio}x of {} is {vcpus:.0} vCPUs: a machine has 1 to {max}; at most {:.2}x of them",
        count(*.cpus, "CPU"),
        largest_ratio(*.cpus, *.max)
    )]
    RatioRange {
        /// vCPUs per CPU, as written.
        ratio: f64,
        /// The number of CPUs.
        cpus: usize,
        /// The resulting number of vCPUs.
        vcpus: f64,
        /// The maximum number of vCPUs of a machine.
        max: u32,
    },
    /// This process may not use a requested CPU.
    #[error("host CPU {cpu} is not available: this process may use {allowed}")]
    Cpu {
        /// The requested CPU.
        cpu: usize,
        /// The CPUs that the process may use.
        allowed: CpuList,
    },
    /// The process's CPU affinity cannot be read.
    #[error("cannot determine which CPUs this process may use")]
    Allowed,
    /// Invalid duration.
    #[error("'{0}' is not a number of seconds from 0.001 to 3600")]
    Seconds(String),
}

/// Returns the largest vCPU ratio, rounded down to hundredths, of machines with up to `max` vCPUs.
fn largest_ratio(cpus: usize, max: u32) -> f64 {
    (100.0 * f64::from(max) / cpus as f64).floor() / 100.0
}

/// A number of vCPUs, absolute or per CPU; parses `4`, `1.5x`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Level {
    /// A number of vCPUs.
    Count(VcpuCount),
    /// A number of vCPUs per CPU, rounded up.
    Ratio(f64),
}

impl Level {
    /// Returns the number of vCPUs on `cpus` CPUs, for a machine with at most `max` vCPUs.
    pub(crate) fn vcpus(self, cpus: usize, max: u32) -> Result<VcpuCount, PlanError> {
        match self {
            Level::Count(vcpus) => Ok(vcpus),
            Level::Ratio(ratio) => {
                let vcpus = (ratio * cpus as f64).ceil();
                // A cast from float saturates, and both extremes are rejected.
                let count = VcpuCount::simulated(vcpus as u32).filter(|count| count.get() <= max);
                count.ok_or(PlanError::RatioRange { ratio, cpus, vcpus, max })
            }
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Level::Count(vcpus) => vcpus.fmt(f),
            Level::Ratio(ratio) => write!(f, "{ratio}x"),
        }
    }
}

impl FromStr for Level {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        match text.strip_suffix(['x', 'X']) {
            None => Ok(Level::Count(text.parse()?)),
            Some(ratio) => match ratio.parse() {
                Ok(ratio) if ratio > 0.0 && f64::is_finite(ratio) => Ok(Level::Ratio(ratio)),
                _ => Err(PlanError::Ratio(text.into())),
            },
        }
    }
}

/// A duration in seconds; parses `1`, `0.25`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seconds(pub Duration);

impl FromStr for Seconds {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        match text.parse::<f64>() {
            Ok(seconds) if (0.001..=3600.0).contains(&seconds) => {
                Ok(Self(Duration::from_secs_f64(seconds)))
            }
            _ => Err(PlanError::Seconds(text.into())),
        }
    }
}

/// Checks that all CPUs of a list are `allowed`.
pub fn check_cpus(list: &CpuList, allowed: &CpuList) -> Result<(), PlanError> {
    match list.cpus().iter().find(|cpu| !allowed.cpus().contains(cpu)) {
        Some(cpu) => Err(PlanError::Cpu { cpu: *cpu, allowed: allowed.clone() }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(text: &str) -> CpuList {
        text.parse().unwrap()
    }

    #[test]
    fn ratios_refer_to_cpus() {
        let vcpus = |ratio, cpus, max| Level::Ratio(ratio).vcpus(cpus, max);
        let counts = |cpus| [1.0, 1.5, 2.0].map(|ratio| vcpus(ratio, cpus, 128).unwrap().get());
        assert_eq!([counts(2), counts(8), counts(1)], [[2, 3, 4], [8, 12, 16], [1, 2, 2]]);
        let error = |ratio, cpus| vcpus(ratio, cpus, 128).unwrap_err().to_string();
        assert_eq!(
            error(100.0, 2),
            "100x of 2 CPUs is 200 vCPUs: a machine has 1 to 128; at most 64.00x of them"
        );
        assert!(error(2.0, 96).ends_with("at most 1.33x of them"));
        assert!(vcpus(1.33, 96, 128).is_ok() && vcpus(1e300, 2, 128).is_err());
        assert_eq!(vcpus(100.0, 2, VcpuCount::MAX_SIMULATED).unwrap().get(), 200);
        assert!(vcpus(513.0, 2, VcpuCount::MAX_SIMULATED).is_err());
    }

    #[test]
    fn levels_parse_as_counts_and_ratios() {
        assert_eq!("1.5x".parse(), Ok(Level::Ratio(1.5)));
        assert_eq!("4".parse(), Ok(Level::Count(VcpuCount::try_from(4).unwrap())));
        for text in ["1.5x", "2x", "128"] {
            assert_eq!(text.parse::<Level>().unwrap().to_string(), text);
        }
        for text in ["0", "129", "x", "-1x", "0x", "infx", "four", ""] {
            assert!(text.parse::<Level>().is_err(), "{text}");
        }
    }

    #[test]
    fn seconds_parse() {
        assert_eq!("0.25".parse(), Ok(Seconds(Duration::from_millis(250))));
        for text in ["0", "1e-9", "-1", "nan", "inf", "3601", "", "1s"] {
            assert!(text.parse::<Seconds>().is_err(), "{text}");
        }
    }

    #[test]
    fn cpus_must_be_allowed() {
        let allowed = cpus("0-3");
        assert_eq!(check_cpus(&cpus("1,3"), &allowed), Ok(()));
        assert_eq!(
            check_cpus(&cpus("2-5"), &allowed).unwrap_err().to_string(),
            "host CPU 4 is not available: this process may use 0-3"
        );
    }
}
