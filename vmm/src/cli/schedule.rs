//! The options that say who schedules the vCPUs: the same for every subcommand that has any.

use std::{
    ffi::OsString,
    io::BufReader,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use clap::Args;

use super::{Usage, results::ResultFile, say};
use crate::{
    cli::inside::Inside,
    files,
    sched::{PolicySpec, policy::DEFAULT_SLICE, recording::Recording},
    units::{CpuList, Nanos},
};

/// Where a recording to replay lies in the emulated host.
const RECORDING_INSIDE: &str = "/in/recording";

/// Writes what a schedule decided to the file of --record, and says what is missing of it.
pub(super) fn write_record(file: &ResultFile, recording: &Recording) -> anyhow::Result<()> {
    file.write(|mut out| recording.write(&mut out))?;
    if let Some(what) = recording.shortfall() {
        say(format_args!("pvticket: {file}: {what}"));
    }
    Ok(())
}

/// Who schedules, how, and where.
// The brackets of its help are no links.
#[allow(rustdoc::broken_intra_doc_links)]
#[derive(Debug, Clone, Args)]
pub(super) struct ScheduleArgs {
    /// Who decides when vCPUs run: host, rr, fair[:WEIGHT,...], gang, kick-boost[:later], directed-yield[:LOOKS],
    /// deferred[:ask|look[,GRACE]], lhp[:RATE,HOLD], lwp[:RATE,HOLD], point:NAME[,RATE,HOLD],
    /// random or replay:FILE [default: host]
    #[arg(long, value_name = "P")]
    policy: Vec<PolicyList>,

    /// Slots of the schedule: the first CPUs of those that carry vCPUs [default: all]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    slots: Option<usize>,

    /// How long a turn on a slot lasts, for example 500us or 4ms
    #[arg(long, value_name = "T", default_value_t = DEFAULT_SLICE, allow_hyphen_values = true)]
    pub(super) slice: Nanos,

    /// Seed of whatever is random: schedules, and in a comparison who begins and the resampling
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,

    /// Machines, all alike, side by side under one schedule
    #[arg(long, value_name = "N", default_value_t = 1, allow_hyphen_values = true,
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(super) vms: u32,

    /// Write the schedule's decisions, of the last run, to this file, for --policy replay:FILE
    #[arg(long, value_name = "F")]
    pub(super) record: Option<PathBuf>,
}

/// One `--policy`, which may name several.
#[derive(Debug, Clone)]
pub(super) struct PolicyList(Vec<PolicySpec>);

impl PolicyList {
    /// What all of them name, each once.
    pub(super) fn named(lists: &[Self]) -> Vec<PolicySpec> {
        let mut policies: Vec<PolicySpec> = Vec::new();
        for policy in lists.iter().flat_map(|list| &list.0) {
            if !policies.contains(policy) {
                policies.push(policy.clone());
            }
        }
        policies
    }
}

impl FromStr for PolicyList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        PolicySpec::parse_list(text).map(Self)
    }
}

impl ScheduleArgs {
    /// The policies, without repeats; the host's own if none was named.
    pub(super) fn policies(&self) -> Vec<PolicySpec> {
        let policies = PolicyList::named(&self.policy);
        if policies.is_empty() { vec![PolicySpec::host()] } else { policies }
    }

    /// The one policy, where there can be but one.
    pub(super) fn policy(&self) -> Result<PolicySpec, Usage> {
        match self.policies().as_slice() {
            [policy] => Ok(policy.clone()),
            _ => Err(Usage("--policy: name one".into())),
        }
    }

    /// How many of these CPUs are slots.
    pub(super) fn slots(&self, cpus: &CpuList) -> Result<usize, Usage> {
        let there = cpus.cpus().len();
        match self.slots {
            None => Ok(there),
            Some(slots) if (1..=there).contains(&slots) => Ok(slots),
            Some(slots) => Err(Usage(format!(
                "--slots {slots}: 1 to {there}, because each slot is a CPU of its own here ({cpus})"
            ))),
        }
    }

    /// What is wrong with the options together.
    pub(super) fn check(&self) -> Result<(), Usage> {
        let policies = self.policies();
        let ours = policies.iter().filter(|policy| !policy.is_host()).count();
        match (&self.record, ours) {
            (Some(_), 0) => Err(Usage(
                "--record: the host's schedule leaves no decisions; name a --policy".into(),
            )),
            _ if policies.iter().filter_map(PolicySpec::replays).count() > 1 => {
                Err(Usage("--policy: one replay at a time".into()))
            }
            _ => Ok(()),
        }
    }

    /// The recording that a policy replays, if one does. It must be of as many slots, and of as
    /// many vCPUs as every one of `vcpus`, those of all machines.
    pub(super) fn recording(
        &self,
        slots: usize,
        vcpus: impl IntoIterator<Item = u32>,
    ) -> anyhow::Result<Option<Arc<Recording>>> {
        let policies = self.policies();
        let Some(file) = policies.iter().find_map(PolicySpec::replays) else { return Ok(None) };
        let usage =
            |error: &dyn std::fmt::Display| Usage(format!("--policy replay:{file}: {error}"));
        let open = files::regular(Path::new(file)).map_err(|error| usage(&error))?;
        let recording =
            Recording::read(&mut BufReader::new(open)).map_err(|error| usage(&error))?;
        if let Some(here) = vcpus
            .into_iter()
            .find(|here| *here != recording.vcpus || slots != recording.slots as usize)
        {
            let of = format!("{} vCPUs on {} slots", recording.vcpus, recording.slots);
            return Err(usage(&format!("it is of {of}, and this is {here} on {slots}")).into());
        }
        if let Some(what) = recording.shortfall() {
            say(format_args!("pvticket: --policy replay:{file}: {what}"));
        }
        Ok(Some(Arc::new(recording)))
    }

    /// Passes the options on into the emulated host.
    pub(super) fn pass_on(&self, mut inside: Inside) -> Inside {
        for policy in self.policies() {
            match policy.replays() {
                Some(file) => {
                    inside = inside
                        .with_file(Path::new(file), RECORDING_INSIDE.into())
                        .with_args(["--policy", &format!("replay:{RECORDING_INSIDE}")]);
                }
                None => inside = inside.with_args(["--policy", &policy.to_string()]),
            }
        }
        let mut options: Vec<OsString> = Vec::new();
        for (option, value) in [
            ("--slice", self.slice.to_string()),
            ("--seed", self.seed.to_string()),
            ("--vms", self.vms.to_string()),
        ] {
            options.extend([option.into(), value.into()]);
        }
        if let Some(slots) = self.slots {
            options.extend(["--slots".into(), slots.to_string().into()]);
        }
        inside = inside.with_args(options);
        match &self.record {
            Some(file) => inside.with_result("--record", file),
            None => inside,
        }
    }
}
