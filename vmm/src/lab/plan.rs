//! What a comparison runs: how many vCPUs on which CPUs, how often, how long.

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use thiserror::Error;

use super::Contender;
use crate::{
    kvm::signal,
    sched::{PolicySpec, ScheduleSpec, recording::Recording},
    units::{CpuList, Nanos, UnitError, VcpuCount},
    vcpu::fault::FaultSpec,
};

/// A plan that cannot be carried out.
#[derive(Debug, Error, PartialEq)]
pub enum PlanError {
    /// A level is no number of vCPUs.
    #[error(transparent)]
    Vcpus(#[from] UnitError),
    /// A level is no ratio.
    #[error("'{0}' is not a ratio: write for example 1.5x")]
    Ratio(String),
    /// A ratio comes to no machine.
    #[error(
        "{ratio}x of {cpus} CPUs is {vcpus:.0} vCPUs: a machine has 1 to {}",
        hypercalls::MAX_VCPUS
    )]
    RatioRange {
        /// As asked.
        ratio: f64,
        /// Of so many CPUs.
        cpus: usize,
        /// Comes to so many.
        vcpus: f64,
    },
    /// A CPU that this process may not use.
    #[error("host CPU {cpu} is not available: this process may use {allowed}")]
    Cpu {
        /// The one asked for.
        cpu: usize,
        /// Those there are.
        allowed: CpuList,
    },
    /// The process's own CPUs cannot be read.
    #[error("cannot tell which CPUs this process may use")]
    Allowed,
    /// Not a span of time.
    #[error("'{0}' is not a number of seconds from 0.001 to 3600")]
    Seconds(String),
}

/// A number of vCPUs, outright or by the number of CPUs; parses `4`, `1.5x`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Level {
    /// So many.
    Count(VcpuCount),
    /// So many for each CPU, rounded up.
    Ratio(f64),
}

impl Level {
    fn vcpus(self, cpus: usize) -> Result<VcpuCount, PlanError> {
        match self {
            Level::Count(vcpus) => Ok(vcpus),
            Level::Ratio(ratio) => {
                let vcpus = (ratio * cpus as f64).ceil();
                // A cast of a float saturates, and both ends are refused.
                VcpuCount::try_from(vcpus as u32).map_err(|_| PlanError::RatioRange {
                    ratio,
                    cpus,
                    vcpus,
                })
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

/// A span of time in seconds; parses `1`, `0.25`.
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

/// A comparison to carry out.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Numbers of vCPUs, in order.
    pub levels: Vec<VcpuCount>,
    /// Host CPUs that carry them.
    pub cpus: CpuList,
    /// Runs of each backend at each level.
    pub runs: u32,
    /// Time before the measurement in which the vCPUs already contend.
    pub warm_up: Duration,
    /// Time measured in a run.
    pub duration: Duration,
    /// What is compared.
    pub contenders: Vec<Contender>,
    /// Machines in each run.
    pub vms: u32,
    /// How many of the CPUs carry vCPUs under a schedule of ours: the first.
    pub slots: usize,
    /// How long a turn lasts there.
    pub slice: Nanos,
    /// What a replay replays.
    pub recording: Option<Arc<Recording>>,
    /// Keep the last run's decisions.
    pub record: bool,
    /// Trace the last round: a run of each contender at each level.
    pub trace: bool,
    /// Decides which contender begins, the bootstrap, and what is random in a schedule.
    pub seed: u64,
    /// What goes wrong on purpose in the machines with PV locks.
    pub faults: Option<FaultSpec>,
}

impl Plan {
    /// The order of a round's runs: forwards and backwards in turn (ABBA), so
    /// that a drift of the host falls on all alike. The seed says which way the
    /// first goes.
    pub fn order(&self, level: usize, round: u32) -> Vec<&Contender> {
        let mut order: Vec<&Contender> = self.contenders.iter().collect();
        let first = (self.seed >> (level % 64)) & 1;
        if (first + u64::from(round)) % 2 == 1 {
            order.reverse();
        }
        order
    }

    /// Runs in all.
    pub fn total_runs(&self) -> u64 {
        self.levels.len() as u64 * u64::from(self.runs) * self.contenders.len() as u64
    }

    /// vCPUs of all machines for each slot, at a level.
    pub fn overcommit(&self, vcpus: VcpuCount) -> f64 {
        f64::from(vcpus.get() * self.vms) / self.slots as f64
    }

    /// The schedule under this policy.
    pub fn schedule(&self, policy: &PolicySpec) -> ScheduleSpec {
        ScheduleSpec {
            policy: policy.clone(),
            cpus: self.cpus.cpus()[..self.slots].to_vec(),
            slice: self.slice,
            seed: self.seed,
            recording: self.recording.clone(),
            record: self.record,
        }
    }
}

/// The numbers of vCPUs that `levels` come to on `cpus`, without repeats.
pub fn resolve_levels(levels: &[Level], cpus: &CpuList) -> Result<Vec<VcpuCount>, PlanError> {
    let mut resolved = Vec::new();
    for level in levels {
        let vcpus = level.vcpus(cpus.cpus().len())?;
        if !resolved.contains(&vcpus) {
            resolved.push(vcpus);
        }
    }
    Ok(resolved)
}

/// The CPUs to use: those asked for, if this process may use them all, or all it
/// may use.
pub fn resolve_cpus(asked: Option<CpuList>) -> Result<CpuList, PlanError> {
    let allowed = CpuList::new(&signal::allowed_cpus()).map_err(|_| PlanError::Allowed)?;
    choose_cpus(asked, allowed)
}

fn choose_cpus(asked: Option<CpuList>, allowed: CpuList) -> Result<CpuList, PlanError> {
    let Some(asked) = asked else { return Ok(allowed) };
    match asked.cpus().iter().find(|cpu| !allowed.cpus().contains(cpu)) {
        Some(cpu) => Err(PlanError::Cpu { cpu: *cpu, allowed }),
        None => Ok(asked),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::compare::tests::pair, *};

    fn cpus(text: &str) -> CpuList {
        text.parse().unwrap()
    }

    fn counts(levels: &[Level], on: &str) -> Vec<u32> {
        resolve_levels(levels, &cpus(on)).unwrap().into_iter().map(VcpuCount::get).collect()
    }

    #[test]
    fn ratios_are_of_the_cpus() {
        let ratios = [1.0, 1.5, 2.0, 4.0].map(Level::Ratio);
        assert_eq!(counts(&ratios, "0-1"), [2, 3, 4, 8]);
        assert_eq!(counts(&ratios, "0-7"), [8, 12, 16, 32]);
        assert_eq!(counts(&ratios, "3"), [1, 2, 4], "rounded up, without repeats");
    }

    #[test]
    fn levels_parse_as_counts_and_ratios() {
        assert_eq!("1.5x".parse(), Ok(Level::Ratio(1.5)));
        assert_eq!("4".parse(), Ok(Level::Count(VcpuCount::try_from(4).unwrap())));
        for text in ["1.5x", "2x", "128"] {
            assert_eq!(text.parse::<Level>().unwrap().to_string(), text);
        }
        for bad in ["0", "129", "x", "-1x", "0x", "infx", "four", ""] {
            assert!(bad.parse::<Level>().is_err(), "{bad}");
        }
        let error = resolve_levels(&[Level::Ratio(100.0)], &cpus("0-1")).unwrap_err();
        assert_eq!(error.to_string(), "100x of 2 CPUs is 200 vCPUs: a machine has 1 to 128");
        assert!(resolve_levels(&[Level::Ratio(1e300)], &cpus("0-1")).is_err());
    }

    #[test]
    fn seconds_parse() {
        assert_eq!("0.25".parse(), Ok(Seconds(Duration::from_millis(250))));
        for bad in ["0", "1e-9", "-1", "nan", "inf", "3601", "", "1s"] {
            assert!(bad.parse::<Seconds>().is_err(), "{bad}");
        }
    }

    #[test]
    fn cpus_must_be_allowed() {
        let allowed = cpus("0-3");
        assert_eq!(choose_cpus(None, allowed.clone()), Ok(cpus("0-3")));
        assert_eq!(choose_cpus(Some(cpus("1,3")), allowed.clone()), Ok(cpus("1,3")));
        assert_eq!(
            choose_cpus(Some(cpus("2-5")), allowed).unwrap_err().to_string(),
            "host CPU 4 is not available: this process may use 0-3"
        );
        assert!(resolve_cpus(None).is_ok());
    }

    #[test]
    fn rounds_alternate_and_the_seed_says_who_begins() {
        let [off, vmm] = &pair()[..] else { panic!("a pair") };
        let plan = |seed| Plan {
            levels: vec![VcpuCount::ONE],
            cpus: cpus("0"),
            runs: 2,
            warm_up: Duration::ZERO,
            duration: Duration::from_secs(1),
            contenders: pair(),
            vms: 1,
            slots: 1,
            slice: Nanos(1),
            recording: None,
            record: false,
            trace: false,
            seed,
            faults: None,
        };
        assert_eq!([plan(0).order(0, 0), plan(0).order(0, 1)], [[off, vmm], [vmm, off]]);
        assert_eq!([plan(1).order(0, 0), plan(1).order(0, 1)], [[vmm, off], [off, vmm]]);
        assert_eq!(plan(0).total_runs(), 4);
    }
}
