//! Layouts of control groups (cgroup v2) for vCPU threads, in the syntax of options and specs.

use std::{fmt, str::FromStr};

use thiserror::Error;

use crate::units::{Nanos, UnitError, VcpuCount, VcpuId};

/// Minimum quota and period (`min_cfs_quota_period` in kernel/sched/core.c).
const MIN_TIME: Nanos = Nanos::millis(1);

/// Maximum period (`max_cfs_quota_period`).
const MAX_PERIOD: Nanos = Nanos::millis(1000);

/// Maximum number of CPUs that a quota may allow.
const MAX_CPUS: u64 = 1024;

const MAX_WEIGHTS: usize = 64;

/// Groups of vCPU threads and their limits: `flat`, `per-vm:weights=100/300`,
/// `nested:max=20ms/100ms,burst=5ms`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cgroups {
    layout: Grouping,
    /// `cpu.weight` of the VMs' groups, repeated if there are more VMs; empty: the kernel's default.
    weights: Vec<u32>,
    /// `cpu.max` of each of these groups.
    max: Option<Quota>,
    /// `cpu.max.burst` of each of these groups.
    burst: Option<Nanos>,
}

/// Division of the threads into groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Grouping {
    /// One group for all threads.
    Flat,
    /// One group per VM.
    PerVm,
    /// One group per VM, with a child group per vCPU.
    Nested,
}

/// CPU time per period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Quota {
    time: Nanos,
    period: Nanos,
}

/// Error parsing a layout.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum CgroupsError {
    /// An unknown layout.
    #[error("unknown layout '{0}' of cgroups (expected: flat, per-vm or nested)")]
    Layout(String),
    /// An unknown, malformed or repeated option.
    #[error("'{0}': options of cgroups are weights=W/W, max=TIME/PERIOD and burst=TIME, once each")]
    Option(String),
    /// Invalid weight.
    #[error("'{0}' is not a weight from 1 to 10000")]
    Weight(String),
    /// Too many weights.
    #[error("at most {MAX_WEIGHTS} weights")]
    Weights,
    /// Weights for a single group.
    #[error("weights require several groups: flat has one")]
    OneGroup,
    /// Invalid quota.
    #[error(
        "'{0}' is not a quota: write TIME/PERIOD, for example 20ms/100ms, in whole microseconds, \
         with a time of 1 ms or more and a period of 1 ms to 1 s"
    )]
    Quota(String),
    /// Invalid burst.
    #[error("burst {0} requires max with a time at least as long, and whole microseconds")]
    Burst(Nanos),
    /// Invalid time.
    #[error(transparent)]
    Span(#[from] UnitError),
}

/// A group to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Path below the layout's own group.
    pub path: String,
    /// Controller files to write, with their values.
    pub values: Vec<(&'static str, String)>,
    /// Whether it has child groups.
    pub is_parent: bool,
}

impl Cgroups {
    /// Returns the groups for VMs of these sizes, parents first.
    pub fn groups(&self, sizes: &[VcpuCount]) -> Vec<Group> {
        let vm_groups = |(vm, vcpus): (usize, &VcpuCount)| {
            let path = format!("vm{vm}");
            let is_nested = self.layout == Grouping::Nested;
            let vcpu_group = |id: VcpuId| Group {
                path: format!("{path}/vcpu{}", id.0),
                values: Vec::new(),
                is_parent: false,
            };
            let children: Vec<Group> = vcpus.ids().filter(|_| is_nested).map(vcpu_group).collect();
            [vec![Group { path, values: self.values(vm), is_parent: is_nested }], children].concat()
        };
        match self.layout {
            Grouping::Flat => {
                vec![Group { path: "all".into(), values: self.values(0), is_parent: false }]
            }
            Grouping::PerVm | Grouping::Nested => {
                sizes.iter().enumerate().flat_map(vm_groups).collect()
            }
        }
    }

    /// Returns the path of a vCPU's group.
    pub fn path(&self, vm: usize, vcpu: VcpuId) -> String {
        match self.layout {
            Grouping::Flat => "all".into(),
            Grouping::PerVm => format!("vm{vm}"),
            Grouping::Nested => format!("vm{vm}/vcpu{}", vcpu.0),
        }
    }

    /// Returns the files to write for a VM's group, with their values.
    fn values(&self, vm: usize) -> Vec<(&'static str, String)> {
        let micros = |time: Nanos| (time.0 / 1000).to_string();
        let weight = self.weights.get(vm % self.weights.len().max(1));
        let weight = weight.map(|weight| ("cpu.weight", weight.to_string()));
        let max = self.max.map(|quota| format!("{} {}", micros(quota.time), micros(quota.period)));
        let max = max.map(|text| ("cpu.max", text));
        let burst = self.burst.map(|burst| ("cpu.max.burst", micros(burst)));
        [weight, max, burst].into_iter().flatten().collect()
    }

    fn set_option(&mut self, option: &str) -> Result<(), CgroupsError> {
        let invalid = || CgroupsError::Option(option.into());
        match option.split_once('=').ok_or_else(invalid)? {
            ("weights", text) if self.weights.is_empty() => {
                self.weights = text.split('/').map(weight).collect::<Result<_, _>>()?;
            }
            ("max", text) if self.max.is_none() => self.max = Some(text.parse()?),
            ("burst", text) if self.burst.is_none() => self.burst = Some(text.parse()?),
            _ => return Err(invalid()),
        }
        Ok(())
    }

    fn validate(self) -> Result<Self, CgroupsError> {
        if self.layout == Grouping::Flat && !self.weights.is_empty() {
            return Err(CgroupsError::OneGroup);
        }
        if self.weights.len() > MAX_WEIGHTS {
            return Err(CgroupsError::Weights);
        }
        let fits =
            |burst: &Nanos| is_whole(*burst) && self.max.is_some_and(|max| *burst <= max.time);
        match self.burst.filter(|burst| !fits(burst)) {
            Some(burst) => Err(CgroupsError::Burst(burst)),
            None => Ok(self),
        }
    }
}

fn weight(text: &str) -> Result<u32, CgroupsError> {
    let weight = text.parse().ok().filter(|weight| (1..=10_000).contains(weight));
    weight.ok_or_else(|| CgroupsError::Weight(text.into()))
}

/// Whether `time` is a whole number of microseconds, the unit of the kernel's files.
const fn is_whole(time: Nanos) -> bool {
    time.0.is_multiple_of(1000)
}

impl FromStr for Quota {
    type Err = CgroupsError;

    fn from_str(text: &str) -> Result<Self, CgroupsError> {
        let invalid = || CgroupsError::Quota(text.into());
        let (time, period) = text.split_once('/').ok_or_else(invalid)?;
        let (time, period): (Nanos, Nanos) = (time.parse()?, period.parse()?);
        let is_possible = (MIN_TIME..=MAX_PERIOD).contains(&period)
            && (MIN_TIME..=Nanos(period.0 * MAX_CPUS)).contains(&time);
        if is_possible && is_whole(time) && is_whole(period) {
            Ok(Self { time, period })
        } else {
            Err(invalid())
        }
    }
}

impl FromStr for Cgroups {
    type Err = CgroupsError;

    fn from_str(text: &str) -> Result<Self, CgroupsError> {
        let (layout, options) = text.split_once(':').map_or((text, None), |(a, b)| (a, Some(b)));
        let layout = match layout {
            "flat" => Grouping::Flat,
            "per-vm" => Grouping::PerVm,
            "nested" => Grouping::Nested,
            _ => return Err(CgroupsError::Layout(layout.into())),
        };
        let mut cgroups = Self { layout, weights: Vec::new(), max: None, burst: None };
        options
            .iter()
            .flat_map(|list| list.split(','))
            .try_for_each(|option| cgroups.set_option(option))?;
        cgroups.validate()
    }
}

impl fmt::Display for Cgroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.layout {
            Grouping::Flat => "flat",
            Grouping::PerVm => "per-vm",
            Grouping::Nested => "nested",
        })?;
        let weights: Vec<String> = self.weights.iter().map(ToString::to_string).collect();
        let weights = (!weights.is_empty()).then(|| format!("weights={}", weights.join("/")));
        let max = self.max.map(|Quota { time, period }| format!("max={time}/{period}"));
        let burst = self.burst.map(|burst| format!("burst={burst}"));
        for (ix, option) in [weights, max, burst].into_iter().flatten().enumerate() {
            write!(f, "{}{option}", if ix == 0 { ':' } else { ',' })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Cgroups {
        text.parse().unwrap()
    }

    #[test]
    fn layouts_round_trip() {
        for text in [
            "flat",
            "per-vm",
            "nested",
            "per-vm:weights=100/300",
            "flat:max=20ms/100ms",
            "nested:weights=1/10000,max=150ms/100ms,burst=1.5ms",
        ] {
            assert_eq!(parse(text).to_string(), text);
        }
    }

    #[test]
    fn groups_follow_vms_and_vcpus() {
        let sizes = [1, 2, 1].map(|count| VcpuCount::try_from(count).unwrap());
        let nested = parse("nested:weights=100/300,max=20ms/100ms,burst=5ms");
        let groups = nested.groups(&sizes);
        let paths: Vec<&str> = groups.iter().map(|group| group.path.as_str()).collect();
        let expected = ["vm0", "vm0/vcpu0", "vm1", "vm1/vcpu0", "vm1/vcpu1", "vm2", "vm2/vcpu0"];
        assert_eq!(paths, expected);
        let values = |weight: &str| {
            let max = ("cpu.max", "20000 100000".to_owned());
            vec![("cpu.weight", weight.to_owned()), max, ("cpu.max.burst", "5000".to_owned())]
        };
        assert_eq!((&groups[2].values, groups[2].is_parent), (&values("300"), true));
        assert_eq!(groups[5].values, values("100"), "the third VM has the first weight again");
        assert!(groups[3].values.is_empty() && !groups[3].is_parent);
        assert_eq!(nested.path(1, VcpuId(1)), "vm1/vcpu1");
        let flat = parse("flat");
        assert_eq!(flat.groups(&sizes).len(), 1);
        assert_eq!(
            (flat.path(2, VcpuId(0)), parse("per-vm").path(2, VcpuId(0))),
            ("all".into(), "vm2".into())
        );
    }

    #[test]
    fn rejects_layouts_that_the_kernel_rejects() {
        for (text, expected) in [
            ("", "unknown layout ''"),
            ("deep", "flat, per-vm or nested"),
            ("flat:", "options of cgroups"),
            ("per-vm:max=2ms/4ms,max=2ms/4ms", "once each"),
            ("per-vm:weights=0", "'0' is not a weight"),
            ("per-vm:weights=1//2", "'' is not a weight"),
            ("flat:weights=1", "flat has one"),
            ("flat:max=20ms", "not a quota"),
            ("flat:max=0.5ms/1ms", "not a quota"),
            ("flat:max=1ms/2s", "not a quota"),
            ("flat:max=1.0001ms/2ms", "whole microseconds"),
            ("flat:max=1ms/soon", "not a duration"),
            ("flat:burst=1ms", "burst 1ms requires max"),
            ("flat:max=2ms/4ms,burst=3ms", "at least as long"),
        ] {
            let error = text.parse::<Cgroups>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }
}
