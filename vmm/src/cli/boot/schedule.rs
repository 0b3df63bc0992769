//! What schedules the vCPUs of a boot: the host, the driver of ours, or a scheduler in the host's kernel.

use std::sync::Arc;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::plan::Plan;
use crate::{
    cli::{Usage, results::ResultFile, schedule::write_record},
    driver::{Driver, ScheduleSpec},
    tables::schedule::in_a_line,
    vm::{Console, MachineSpec, Running, Vm},
};
#[cfg(feature = "bpf")]
use crate::{
    doctor::{files::Files, sched_ext::SchedExtFacts},
    driver::BpfDriver,
    tables::schedule::in_kernel,
};
use study::point::HostKernel;

/// What carries out a schedule.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum DriverKind {
    /// This program: all policies, records and replays
    #[default]
    User,
    /// A BPF scheduler in the host's kernel (sched_ext, Linux 7.x): the policies rr and deferred
    #[cfg(feature = "bpf")]
    Bpf,
}

/// A schedule at work.
pub(super) enum Schedule {
    Host,
    User(Arc<Driver>),
    #[cfg(feature = "bpf")]
    Bpf(BpfDriver),
}

/// What a schedule did.
pub(super) struct Account {
    /// In words.
    pub(super) line: String,
    /// For `--stats`.
    pub(super) json: Value,
    /// Why it ended before the machines, if it did.
    pub(super) failure: Option<String>,
}

impl Schedule {
    /// Starts the schedule for machines of these sizes.
    pub(super) fn start(plan: &Plan, spec: &ScheduleSpec, vcpus: &[u32]) -> anyhow::Result<Self> {
        match plan.driver {
            DriverKind::User => Ok(Driver::new(spec, vcpus).map_or(Self::Host, Self::User)),
            #[cfg(feature = "bpf")]
            DriverKind::Bpf => {
                if let Some(obstacle) = SchedExtFacts::read(&Files::host()).obstacles().first() {
                    return Err(Usage(format!("--driver bpf: {obstacle}")).into());
                }
                Ok(Self::Bpf(BpfDriver::start(spec)?))
            }
        }
    }

    /// Builds machine number `vm`.
    pub(super) fn build<'a>(&self, spec: &'a MachineSpec, vm: usize) -> anyhow::Result<Vm<'a>> {
        match self {
            Self::Host | Self::User(_) => {
                let _ = vm;
                Ok(Vm::build(spec)?)
            }
            #[cfg(feature = "bpf")]
            Self::Bpf(driver) => Ok(Vm::build_over(spec, driver.lines(vm)?)?),
        }
    }

    /// Starts machine number `vm`, of so many vCPUs.
    pub(super) fn run(
        &self,
        machine: Vm<'_>,
        console: Console,
        (vm, vcpus): (usize, u32),
    ) -> anyhow::Result<Running> {
        let _ = vcpus;
        Ok(match self {
            Self::Host => machine.start(console)?,
            Self::User(driver) => machine.start_in(console, driver, vm)?,
            #[cfg(feature = "bpf")]
            Self::Bpf(driver) => {
                machine.start_behind(console, Some(driver.vm_scheduler(vm, vcpus)), vm)?
            }
        })
    }

    /// Ends the schedule, and writes its recording. None: it was the host's.
    pub(super) fn end(self, record: Option<ResultFile>) -> anyhow::Result<Option<Account>> {
        match self {
            Self::Host => Ok(None),
            Self::User(driver) => {
                let report = driver.report();
                if let Some(file) = record {
                    write_record(&file, &report.recording)?;
                }
                let (line, json) = (in_a_line(&report), json!(report));
                Ok(Some(Account { line, json, failure: None }))
            }
            #[cfg(feature = "bpf")]
            Self::Bpf(driver) => {
                let report = driver.report()?;
                let (line, json) = (in_kernel(&report), json!(report));
                Ok(Some(Account { line, json, failure: report.ended }))
            }
        }
    }
}

impl DriverKind {
    /// Checks that the emulated host's kernel has what the driver needs.
    pub(super) fn check_emulated(self, kernel: HostKernel) -> Result<(), Usage> {
        #[cfg(feature = "bpf")]
        if self == Self::Bpf && kernel == HostKernel::Linux6_1 {
            let why = "kernel 6.1 of the emulated host has no sched_ext; add --host-kernel 7";
            return Err(Usage(format!("--driver bpf: {why}")));
        }
        let _ = kernel;
        Ok(())
    }
}

/// Checks a driver against the other options.
pub(super) fn check(plan: &Plan) -> Result<(), Usage> {
    #[cfg(feature = "bpf")]
    if plan.driver == DriverKind::Bpf {
        let policy = &plan.schedule.policy;
        if policy.turn_rule().is_none() {
            return Err(Usage(format!(
                "--driver bpf: it has the policies rr and deferred[:ask[,GRACE]], not {policy}"
            )));
        }
        if plan.schedule.records() {
            return Err(Usage("--record: --driver bpf records nothing".into()));
        }
    }
    let _ = plan;
    Ok(())
}
