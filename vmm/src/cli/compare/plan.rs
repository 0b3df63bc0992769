//! From arguments to a comparison with nothing left open.

use std::time::Duration;

use hypercalls::payload;
use locks::System;

use super::{
    CompareArgs, Guest, kernels,
    workload::{Workload, workload},
};
use crate::{
    cli::{
        Usage,
        host::{self, GuestClass, Place},
    },
    guest::systems,
    kvm::{KvmKind, host::is_emulated},
    lab::{
        Contender, LinuxCell, PayloadCell, Plan,
        plan::{self, PlanError},
    },
    units::VcpuCount,
    vm::PvBackend,
};

/// A comparison to carry out, here or in the emulated host.
#[derive(Debug)]
pub(super) struct Resolved {
    pub(super) args: CompareArgs,
    pub(super) place: Place,
    pub(super) workload: Workload,
    pub(super) runs: u32,
    pub(super) duration: Duration,
    /// Native first.
    pub(super) backends: Vec<PvBackend>,
    /// Those of `--locks`, each once.
    systems: Vec<System>,
}

impl Resolved {
    pub(super) fn new(args: CompareArgs) -> anyhow::Result<Self> {
        args.schedule.check()?;
        let backends = backends(&args)?;
        args.faults.check(&backends[1..], "--pv-backends")?;
        let needs_ring_0 = backends.iter().any(|backend| backend.needs_ring_0());
        let class = match args.guest {
            Guest::Payload if !needs_ring_0 => GuestClass::Payload,
            Guest::Payload | Guest::Linux => GuestClass::Ring0,
        };
        let kind = KvmKind::detect();
        let place = host::choose(args.host, class, kind).place;
        if place == Place::Direct {
            host::check_direct(class, kind)?;
        }
        let systems = match args.guest {
            Guest::Payload => systems::all_of(&args.locks),
            Guest::Linux => kernels::systems(&args)?,
        };
        let workload = workload(&args, &systems, place == Place::Emulated || is_emulated())?;
        let (runs, seconds) = match args.guest {
            Guest::Payload => (10, 0.5),
            Guest::Linux => (6, 0.8),
        };
        Ok(Self {
            place,
            workload,
            runs: args.runs.unwrap_or(runs),
            duration: args.seconds.map_or(Duration::from_secs_f64(seconds), |seconds| seconds.0),
            backends,
            systems,
            args,
        })
    }

    /// The plan on this host's CPUs.
    pub(super) fn plan(&self) -> anyhow::Result<Plan> {
        let usage = |error: PlanError| Usage(error.to_string());
        let cpus = plan::resolve_cpus(self.args.cpus.clone()).map_err(usage)?;
        let schedule = &self.args.schedule;
        let slots = schedule.slots(&cpus)?;
        let levels = plan::resolve_levels(&self.args.vcpus, &cpus).map_err(usage)?;
        levels.iter().try_for_each(|vcpus| self.check_vcpus(*vcpus))?;
        let all = levels.iter().map(|vcpus| vcpus.get() * schedule.vms);
        let recording = schedule.recording(slots, all)?;
        Ok(Plan {
            slots,
            levels,
            cpus,
            runs: self.runs,
            warm_up: match self.workload {
                Workload::Payload(_) => PayloadCell::WARM_UP,
                Workload::Linux { .. } => LinuxCell::WARM_UP,
            },
            duration: self.duration,
            contenders: self.contenders(),
            vms: schedule.vms,
            slice: schedule.slice,
            recording,
            record: schedule.record.is_some(),
            trace: self.args.trace.is_some(),
            seed: schedule.seed,
            faults: self.args.faults.spec()?,
        })
    }

    /// Are they few enough for the locks to count, and enough for the workload?
    fn check_vcpus(&self, vcpus: VcpuCount) -> Result<(), Usage> {
        if self.payload_workload() == Some(payload::Workload::HotLine) && vcpus == VcpuCount::ONE {
            return Err(Usage(
                "--vcpus 1: --workload hot-line takes two vCPUs at least, one of them reads".into(),
            ));
        }
        if self.args.guest == Guest::Linux {
            return kernels::check_counts(&self.systems, vcpus);
        }
        match self.systems.iter().find(|system| vcpus.get() > system.most_cpus()) {
            None => Ok(()),
            Some(system) => Err(Usage(format!(
                "--vcpus {vcpus}: {system} can count {} CPUs; leave it out or use fewer",
                system.most_cpus()
            ))),
        }
    }

    fn payload_workload(&self) -> Option<payload::Workload> {
        match self.workload {
            Workload::Payload(PayloadCell { workload, .. }) => Some(workload),
            Workload::Linux { .. } => None,
        }
    }

    fn contenders(&self) -> Vec<Contender> {
        let policies = self.args.schedule.policies();
        let (backends, handoffs) = (&self.backends, &self.args.handoff);
        match (self.systems.as_slice(), self.args.guest) {
            ([], _) => Contender::all(&policies, backends, handoffs),
            (systems, Guest::Linux) => kernels::contenders(&policies, systems, backends, handoffs),
            (systems, Guest::Payload) => {
                // Among the others by turns are some that halt.
                let all_halt = self.payload_workload() == Some(payload::Workload::Mixed);
                let halts = |system: System| all_halt || system.halts();
                Contender::of_systems(&policies, systems, halts, backends, handoffs)
            }
        }
    }
}

fn backends(args: &CompareArgs) -> Result<Vec<PvBackend>, Usage> {
    let mut backends = vec![PvBackend::Off];
    for backend in args.pv_backends.as_deref().unwrap_or(&[PvBackend::Vmm]) {
        match (args.guest, backend) {
            (_, PvBackend::Off) => {
                return Err(Usage("--pv-backends: off is native, which always runs".into()));
            }
            _ if backends.contains(backend) => {}
            _ => backends.push(*backend),
        }
    }
    Ok(backends)
}
