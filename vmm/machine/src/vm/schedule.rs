//! The scheduler of a machine's vCPUs: the host's, this program's, or a BPF scheduler in the host's kernel.

use std::sync::Arc;

use kvm::stats::Blocking;
use sched::driver::DriverKind;
use thiserror::Error;

use super::{Console, MachineSpec, Running, Vm, VmError};
#[cfg(feature = "bpf")]
pub use crate::driver::Observer;
use crate::driver::{Account, Driver, Meter, SchedReport, ScheduleSpec};
#[cfg(feature = "bpf")]
use crate::driver::{BpfDriver, BpfDriverError, BpfReport};

/// A schedule cannot be started, or its results cannot be read.
#[derive(Debug, Error)]
pub enum ScheduleError {
    /// This program was built without the driver.
    #[cfg(not(feature = "bpf"))]
    #[error("this pvticket was built without driver bpf")]
    NotBuilt,
    /// The scheduler in the host's kernel failed.
    #[cfg(feature = "bpf")]
    #[error(transparent)]
    Bpf(#[from] BpfDriverError),
}

/// An observer, which no build without the driver has.
#[cfg(not(feature = "bpf"))]
#[derive(Debug, Clone)]
pub enum Observer {}

#[cfg(not(feature = "bpf"))]
impl Observer {
    /// Fails.
    pub fn load(_: &[usize]) -> Result<Self, ScheduleError> {
        Err(ScheduleError::NotBuilt)
    }

    /// Unreachable.
    pub const fn no_yields(&self) -> Option<&str> {
        match *self {}
    }
}

/// A running schedule.
#[derive(Debug, Clone)]
pub enum Schedule {
    /// The host's scheduler decides.
    Host,
    /// The host's scheduler decides, and is observed.
    #[cfg(feature = "bpf")]
    Observed(Arc<BpfDriver>),
    /// This program's scheduler.
    User(Arc<Driver>),
    /// A scheduler in the host's kernel.
    #[cfg(feature = "bpf")]
    Bpf(Arc<BpfDriver>),
}

/// The results of a schedule.
#[derive(Debug)]
pub struct ScheduleResult {
    /// Results available from both drivers.
    pub report: SchedReport,
    /// Results available only from a scheduler in the host's kernel.
    #[cfg(feature = "bpf")]
    pub in_kernel: Option<BpfReport>,
}

impl Schedule {
    /// Starts the schedule for machines with these numbers of vCPUs. If `traced`, records data for a trace.
    /// `observer` observes the host's scheduler, if that decides.
    pub fn start(
        driver: DriverKind,
        spec: &ScheduleSpec,
        vcpus: &[u32],
        traced: bool,
        observer: Option<&Observer>,
    ) -> Result<Self, ScheduleError> {
        match driver {
            DriverKind::User => {
                let make = if traced { Driver::traced } else { Driver::new };
                match (make(spec, vcpus), observer) {
                    (Some(driver), _) => Ok(Self::User(driver)),
                    #[cfg(feature = "bpf")]
                    (None, Some(observer)) => {
                        Ok(Self::Observed(BpfDriver::observe(observer, spec, vcpus, traced)?))
                    }
                    (None, _) => Ok(Self::Host),
                }
            }
            #[cfg(feature = "bpf")]
            DriverKind::Bpf => Ok(Self::Bpf(BpfDriver::start(spec, vcpus, traced)?)),
            #[cfg(not(feature = "bpf"))]
            DriverKind::Bpf => Err(ScheduleError::NotBuilt),
        }
    }

    /// Builds machine number `vm`.
    pub fn build<'a>(&self, spec: &'a MachineSpec, vm: usize) -> Result<Vm<'a>, VmError> {
        match self {
            #[cfg(feature = "bpf")]
            Self::Bpf(driver) | Self::Observed(driver) => {
                let lines = driver.lines(vm).map_err(ScheduleError::Bpf)?;
                let machine = Vm::build_sharing(spec, lines)?;
                let (ranges, counters) = (machine.lock_ranges(), machine.clocks()?);
                driver.describe(vm, ranges, &counters).map_err(ScheduleError::Bpf)?;
                Ok(machine)
            }
            _ => {
                let _ = vm;
                Vm::build(spec)
            }
        }
    }

    /// Starts machine number `vm`.
    pub fn run(&self, machine: Vm<'_>, console: Console, vm: usize) -> Result<Running, VmError> {
        let scheduler = match self {
            Self::Host => None,
            Self::User(driver) => {
                let list = machine.blocking()?;
                let blocking = list.map(|list| list.into_iter().map(Blocking::into_fn).collect());
                driver.write_steal_time(vm, machine.steal_memory());
                Some(driver.vm_scheduler(vm, machine.telemetry()?, blocking))
            }
            #[cfg(feature = "bpf")]
            Self::Bpf(driver) | Self::Observed(driver) => {
                let scheduler = driver.vm_scheduler(vm, machine.telemetry()?);
                Some(scheduler.map_err(ScheduleError::Bpf)?)
            }
        };
        machine.start_scheduled(console, scheduler, vm)
    }

    /// Returns the number of locks acquired by the vCPUs of machine number `vm`, if its guest counts
    /// them and the schedule is not the host's or is observed.
    pub fn acquisitions(&self, vm: usize) -> Option<u64> {
        match self {
            Self::Host => None,
            Self::User(driver) => driver.acquisitions(vm),
            #[cfg(feature = "bpf")]
            Self::Bpf(driver) | Self::Observed(driver) => driver.acquisitions(vm),
        }
    }

    /// Returns the current account, or None under the host's schedule unless it is observed.
    pub fn account(&self) -> Option<Account> {
        match self {
            Self::Host => None,
            Self::User(driver) => Some(driver.account()),
            #[cfg(feature = "bpf")]
            Self::Bpf(driver) | Self::Observed(driver) => Some(driver.account()),
        }
    }

    /// Registers these progress meters, if the schedule is traced, and not the host's or observed.
    pub fn set_meters(&self, meters: Vec<Meter>) {
        match self {
            Self::Host => {}
            Self::User(driver) => driver.set_meters(meters),
            #[cfg(feature = "bpf")]
            Self::Bpf(driver) | Self::Observed(driver) => driver.set_meters(meters),
        }
    }

    /// Returns the reason if the host's kernel has ended the schedule; vCPUs then run under the host's scheduler.
    pub fn end_reason(&self) -> Option<&str> {
        match self {
            Self::Host | Self::User(_) => None,
            #[cfg(feature = "bpf")]
            Self::Bpf(driver) | Self::Observed(driver) => driver.end_reason(),
        }
    }

    /// Returns the results so far, or None under the host's schedule unless it is observed.
    pub fn report(&self) -> Result<Option<ScheduleResult>, ScheduleError> {
        Ok(match self {
            Self::Host => None,
            Self::User(driver) => Some(ScheduleResult {
                report: driver.report(),
                #[cfg(feature = "bpf")]
                in_kernel: None,
            }),
            #[cfg(feature = "bpf")]
            Self::Bpf(driver) | Self::Observed(driver) => {
                let (in_kernel, report) = driver.report()?;
                Some(ScheduleResult { report, in_kernel: Some(in_kernel) })
            }
        })
    }
}
