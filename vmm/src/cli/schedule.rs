//! The options of a schedule, shared by several subcommands.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Args;
use serde::{Deserialize, Serialize};

use super::{Usage, eprint_line, results::ResultFile};
use base::{
    text,
    units::{CpuList, Nanos, VcpuCount},
};
use experiment::doctor::topology::Topology;
use experiment::{
    cpus,
    host::allowed_cpus,
    inside::EmulatedCommand,
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
    if let Some(shortfall) = recording.shortfall() {
        eprint_line(format_args!("pvticket: {file}: {shortfall}"));
    }
    Ok(())
}

fn parse_slots(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".into()),
        Ok(slots) => Ok(slots),
        Err(_) => Err("must be a number".into()),
    }
}

/// Options of a schedule.
#[derive(Debug, Clone, Args)]
pub(super) struct ScheduleArgs {
    /// Scheduling policy: any of `pvticket compare --help` except host-* [default: host]
    #[arg(long, value_name = "P")]
    policy: Vec<String>,

    /// Number of slots: the first of the vCPUs' CPUs [default: all of them]
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = parse_slots)]
    pub(super) slots: Option<usize>,

    /// Time slice, e.g. 500us or 4ms; at least 50us except in simulations
    #[arg(long, value_name = "T", default_value_t = DEFAULT_SLICE, allow_hyphen_values = true)]
    pub(super) slice: Nanos,

    /// Number of identical VMs under one schedule, 1 to 64
    #[arg(long, value_name = "N", default_value_t = 1, allow_hyphen_values = true,
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(super) vms: u32,

    /// Write the schedule's decisions of the last run to this file, for --policy replay:FILE
    #[arg(long, value_name = "F")]
    pub(super) record: Option<PathBuf>,
}

impl ScheduleArgs {
    /// The policies as written, separately; by default `default`.
    pub(super) fn policies(&self, default: &str) -> Vec<String> {
        let lists = self.policy.iter();
        let policies: Vec<String> = lists.flat_map(|list| PolicySpec::split_list(list)).collect();
        if policies.is_empty() { vec![default.to_owned()] } else { policies }
    }

    /// The only policy. Fails for several, and for a host model.
    fn policy(&self) -> Result<PolicySpec, Usage> {
        let mut policies = self.policies("host");
        policies.dedup();
        let [policy] = policies.as_slice() else {
            return Err(Usage("--policy: must be a single policy".into()));
        };
        let policy: PolicySpec =
            policy.parse().map_err(|error| Usage(format!("--policy: {error}")))?;
        if policy.is_host_model() {
            return Err(Usage(format!("--policy {policy}: requires compare --guest sim")));
        }
        Ok(policy)
    }

    /// The number of slots on these CPUs.
    pub(super) fn slots(&self, cpus: &CpuList) -> Result<usize, Usage> {
        slots(self.slots, cpus)
    }

    /// Checks the options for contradictions.
    pub(super) fn check(&self) -> Result<(), Usage> {
        if self.record.is_some() && self.policies("host").iter().all(|policy| policy == "host") {
            let reason = "--record: requires --policy; the host's scheduler records nothing";
            return Err(Usage(reason.into()));
        }
        Ok(())
    }

    /// The schedule that the options describe, with this seed. Fails if they describe several, or an
    /// impossible schedule.
    pub(super) fn plan(&self, seed: u64) -> Result<SchedulePlan, Usage> {
        self.check()?;
        let policy = self.policy()?;
        if !policy.is_host() && self.slice < SHORTEST_SLICE {
            return Err(Usage(format!(
                "--slice {}: must be at least {SHORTEST_SLICE}, or vCPUs make no progress",
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

/// One schedule of identical VMs, for any host.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SchedulePlan {
    #[serde(with = "text")]
    pub(super) policy: PolicySpec,
    /// Number of slots; `None` for the default.
    pub(super) slots: Option<usize>,
    slice: Nanos,
    /// Seed of the schedule and of the faults.
    pub(super) seed: u64,
    pub(super) vms: u32,
    /// The file for the schedule's decisions.
    pub(super) record: Option<PathBuf>,
}

impl SchedulePlan {
    /// The file for the schedule's decisions, checked.
    pub(super) fn record_file(&self) -> anyhow::Result<Option<ResultFile>> {
        ResultFile::check("--record", self.record.as_deref())
    }

    /// The reason why the kernel's watchdog would end this schedule, if so and if the number of slots is known.
    pub(super) fn obstacle(&self, vcpus: VcpuCount) -> Option<String> {
        self.policy.watchdog_conflict(self.slice, vcpus.get() * self.vms, self.slots? as u32)
    }

    /// Whether its decisions are recorded.
    pub(super) fn records(&self) -> bool {
        self.record.is_some()
    }

    /// Checks the schedule for VMs of `vcpus` each, on a host with `cpus` CPUs, by default `default` of them slots.
    pub(super) fn check(&self, vcpus: VcpuCount, cpus: usize, default: usize) -> Result<(), Usage> {
        let cpus: Vec<usize> = (0..cpus).collect();
        let slots = slots(self.slots.or(Some(default)), &CpuList::new(&cpus)?)?;
        let Some(file) = self.policy.replay_file().map(Path::new) else { return Ok(()) };
        recording::read_matching(file, [self.size(slots, vcpus)]).map(drop)
    }

    /// The number of slots and of all vCPUs, as in a recording.
    fn size(&self, slots: usize, vcpus: VcpuCount) -> (u32, u32) {
        (slots as u32, vcpus.get() * self.vms)
    }

    /// The schedule on this host's CPUs for VMs of `vcpus` each. Calls `topology` only to choose slots.
    pub(super) fn spec(
        &self,
        vcpus: VcpuCount,
        topology: impl FnOnce() -> Topology,
    ) -> Result<ScheduleSpec, Usage> {
        let cpus = if self.policy.is_host() {
            allowed_cpus()?
        } else {
            cpus::choose_default(&topology(), self.slots)?
        };
        let slots = slots(self.slots, &cpus)?;
        let size = self.size(slots, vcpus);
        let recording =
            self.policy.replay_file().map(|file| recording::read_for(Path::new(file), [size]));
        Ok(ScheduleSpec {
            policy: self.policy.clone(),
            cpus: cpus.cpus()[..slots].to_vec(),
            slice: self.slice,
            seed: self.seed,
            recording: recording.transpose()?.map(Arc::new),
            record: self.record.is_some(),
        })
    }

    /// The schedule with paths in the emulated host, into which its files are copied.
    pub(super) fn for_emulated(&self, inside: &mut EmulatedCommand) -> Result<Self, Usage> {
        let mut plan_inside = self.clone();
        if let Some(file) = self.policy.replay_file() {
            let place = inside.take(Path::new(file), RECORDING_INSIDE);
            let policy = format!("replay:{}", place.display());
            plan_inside.policy = policy.parse().map_err(Usage)?;
        }
        plan_inside.record = self.record.as_deref().map(|file| inside.bring_back(file, "record"));
        Ok(plan_inside)
    }
}

/// The number of slots on these CPUs.
fn slots(requested: Option<usize>, cpus: &CpuList) -> Result<usize, Usage> {
    let available = cpus.cpus().len();
    match requested {
        None => Ok(available),
        Some(slots) if (1..=available).contains(&slots) => Ok(slots),
        Some(slots) => Err(Usage(format!(
            "--slots {slots}: must be 1 to {available}, because each slot requires a CPU ({cpus})"
        ))),
    }
}
