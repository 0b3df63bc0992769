//! The options of a schedule, shared by all subcommands that have one.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Args;
use serde::{Deserialize, Serialize};

use super::{Usage, results::ResultFile, say};
use base::{
    text,
    units::{CpuList, Nanos, VcpuCount},
};
use experiment::doctor::topology::Topology;
use experiment::{
    cpus,
    host::allowed_cpus,
    inside::Inside,
    recording::{self, RECORDING_INSIDE},
};
use machine::driver::ScheduleSpec;
use sched::{
    PolicySpec,
    policy::{DEFAULT_SLICE, SHORTEST_SLICE},
    recording::Recording,
};

/// Writes the schedule's decisions to the file of `--record` and prints a note if it is incomplete.
pub(super) fn write_record(file: &ResultFile, recording: &Recording) -> anyhow::Result<()> {
    file.write(|mut out| recording.write(&mut out))?;
    if let Some(what) = recording.shortfall() {
        say(format_args!("pvticket: {file}: {what}"));
    }
    Ok(())
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("a schedule has one slot at least".into()),
        Ok(slots) => Ok(slots),
        Err(_) => Err("it is no number of slots".into()),
    }
}

/// Options of a schedule.
#[derive(Debug, Clone, Args)]
pub(super) struct ScheduleArgs {
    /// Policy that schedules the vCPUs, as `pvticket compare --help` lists them, but host-* [default: host]
    #[arg(long, value_name = "P")]
    policy: Vec<String>,

    /// Slots of the schedule: the first CPUs of those that carry vCPUs [default: all of them]
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = at_least_one)]
    pub(super) slots: Option<usize>,

    /// How long a turn on a slot lasts, for example 500us or 4ms; 50us or more, but in simulations
    #[arg(long, value_name = "T", default_value_t = DEFAULT_SLICE, allow_hyphen_values = true)]
    pub(super) slice: Nanos,

    /// Machines, all alike, side by side under one schedule
    #[arg(long, value_name = "N", default_value_t = 1, allow_hyphen_values = true,
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(super) vms: u32,

    /// Write the schedule's decisions in the last run to this file, for --policy replay:FILE
    #[arg(long, value_name = "F")]
    pub(super) record: Option<PathBuf>,
}

impl ScheduleArgs {
    /// The policies as they are written, one by one; `usual` if none is named.
    pub(super) fn policies(&self, usual: &str) -> Vec<String> {
        let lists = self.policy.iter();
        let named: Vec<String> = lists.flat_map(|list| PolicySpec::split_list(list)).collect();
        if named.is_empty() { vec![usual.to_owned()] } else { named }
    }

    /// The only policy; a usage error if there are several.
    fn policy(&self) -> Result<PolicySpec, Usage> {
        let mut policies = self.policies("host");
        policies.dedup();
        let [policy] = policies.as_slice() else {
            return Err(Usage("--policy: name one".into()));
        };
        let policy: PolicySpec =
            policy.parse().map_err(|error| Usage(format!("--policy: {error}")))?;
        if policy.is_host_model() {
            return Err(Usage(format!("--policy {policy}: only for compare --guest sim")));
        }
        Ok(policy)
    }

    /// How many of these CPUs are slots.
    pub(super) fn slots(&self, cpus: &CpuList) -> Result<usize, Usage> {
        slots(self.slots, cpus)
    }

    /// Checks the options against each other.
    pub(super) fn check(&self) -> Result<(), Usage> {
        if self.record.is_some() && self.policies("host").iter().all(|policy| policy == "host") {
            let reason = "--record: the host's scheduler records nothing; name a --policy";
            return Err(Usage(reason.into()));
        }
        Ok(())
    }

    /// The one schedule that the options describe, with this seed; a usage error if they describe several, or none
    /// that is possible.
    pub(super) fn plan(&self, seed: u64) -> Result<SchedulePlan, Usage> {
        self.check()?;
        let policy = self.policy()?;
        if !policy.is_host() && self.slice < SHORTEST_SLICE {
            return Err(Usage(format!(
                "--slice {}: {SHORTEST_SLICE} or more: a vCPU would not get anywhere",
                self.slice
            )));
        }
        Ok(SchedulePlan {
            policy,
            slots: self.slots,
            slice: self.slice,
            seed,
            vms: self.vms,
            record: self.record.clone(),
        })
    }
}

/// One schedule of machines that are all alike, for whichever host runs it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SchedulePlan {
    #[serde(with = "text")]
    pub(super) policy: PolicySpec,
    /// Slots: the first CPUs there; None: all.
    pub(super) slots: Option<usize>,
    slice: Nanos,
    /// Seed of the schedule and of the faults.
    pub(super) seed: u64,
    /// Number of machines.
    pub(super) vms: u32,
    /// The file for the schedule's decisions.
    pub(super) record: Option<PathBuf>,
}

impl SchedulePlan {
    /// The file for the schedule's decisions, checked.
    pub(super) fn record_file(&self) -> anyhow::Result<Option<ResultFile>> {
        ResultFile::named("--record", self.record.as_deref())
    }

    /// Why the host's kernel would end it on so many slots, if it would and their number is known.
    pub(super) fn overlong(&self, vcpus: VcpuCount) -> Option<String> {
        self.policy.overlong(self.slice, vcpus.get() * self.vms, self.slots? as u32)
    }

    /// Are its decisions to be recorded?
    pub(super) fn records(&self) -> bool {
        self.record.is_some()
    }

    /// Checks it against a host of so many CPUs, of which a command uses `default`, for machines of `vcpus` each.
    pub(super) fn check(&self, vcpus: VcpuCount, cpus: usize, default: usize) -> Result<(), Usage> {
        let cpus: Vec<usize> = (0..cpus).collect();
        let slots = slots(self.slots.or(Some(default)), &CpuList::new(&cpus)?)?;
        let file = self.policy.replays().map(Path::new);
        file.map_or(Ok(()), |file| recording::matching(file, [self.size(slots, vcpus)]).map(drop))
    }

    /// Slots and all vCPUs, as a recording has them.
    fn size(&self, slots: usize, vcpus: VcpuCount) -> (u32, u32) {
        (slots as u32, vcpus.get() * self.vms)
    }

    /// The schedule on this host's CPUs, for machines of `vcpus` each. The topology is read only if slots are chosen.
    pub(super) fn spec(
        &self,
        vcpus: VcpuCount,
        topology: impl FnOnce() -> Topology,
    ) -> Result<ScheduleSpec, Usage> {
        let cpus = if self.policy.is_host() {
            allowed_cpus()?
        } else {
            cpus::choose_without_option(&topology(), self.slots)?
        };
        let slots = slots(self.slots, &cpus)?;
        let size = self.size(slots, vcpus);
        let recording =
            self.policy.replays().map(|file| recording::of_sizes(Path::new(file), [size]));
        Ok(ScheduleSpec {
            policy: self.policy.clone(),
            cpus: cpus.cpus()[..slots].to_vec(),
            slice: self.slice,
            seed: self.seed,
            recording: recording.transpose()?.map(Arc::new),
            record: self.record.is_some(),
        })
    }

    /// The schedule in the emulated host, with its files taken along.
    pub(super) fn there(&self, inside: &mut Inside) -> Result<Self, Usage> {
        let mut plan_inside = self.clone();
        if let Some(file) = self.policy.replays() {
            let place = inside.take(Path::new(file), RECORDING_INSIDE);
            let policy = format!("replay:{}", place.display());
            plan_inside.policy = policy.parse().map_err(Usage)?;
        }
        plan_inside.record = self.record.as_deref().map(|file| inside.bring_back(file, "record"));
        Ok(plan_inside)
    }
}

/// How many of these CPUs are slots.
fn slots(asked: Option<usize>, cpus: &CpuList) -> Result<usize, Usage> {
    let available = cpus.cpus().len();
    match asked {
        None => Ok(available),
        Some(slots) if (1..=available).contains(&slots) => Ok(slots),
        Some(slots) => Err(Usage(format!(
            "--slots {slots}: 1 to {available}, because each slot is a CPU of its own here ({cpus})"
        ))),
    }
}
