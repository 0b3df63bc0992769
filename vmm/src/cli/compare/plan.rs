//! From arguments to a comparison with nothing left open.

use std::{fmt, time::Duration};

use locks::System;
use serde::Serialize;

use super::{CompareArgs, Guest, kernels};
use crate::{
    cli::{
        Usage,
        host::{self, GuestClass, Place},
    },
    guest::{kernels::Kernels, payload::PayloadSpec, systems},
    kvm::{KvmKind, host::is_emulated},
    lab::{
        Cell, Contender, GuestWorkload, LinuxCell, PayloadCell, Plan,
        plan::{self, PlanError},
    },
    units::VcpuCount,
    vm::PvBackend,
};

/// Contention before the measurement of the payload. A run begins with a fast
/// spell, until the first holder is preempted: some scheduler slices.
const WARM_UP: Duration = Duration::from_millis(100);

/// Runs of a comparison that may be repeated in the emulated host, whose CPUs
/// now and then kill a guest by a triple fault: 1 of 200 boots (measured).
const EMULATED_REPEATS: u32 = 3;

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

/// What the guest does.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "guest", rename_all = "snake_case")]
pub(in crate::cli) enum Workload {
    /// The ring-3 payload.
    Payload { critical: u32, think: u32, spin_threshold: u32 },
    /// The benchmark in the guest kernel.
    Linux {
        workload: GuestWorkload,
        critical: u32,
        think: u32,
        spin_threshold: u32,
        #[serde(flatten)]
        kernels: Kernels,
    },
}

impl Workload {
    /// What runs it.
    pub(in crate::cli) fn cell(&self) -> Box<dyn Cell> {
        match *self {
            Workload::Payload { critical, think, spin_threshold } => {
                Box::new(PayloadCell { spin_threshold, critical, think })
            }
            Workload::Linux { workload, critical, think, spin_threshold, ref kernels } => {
                let kernels = kernels.clone();
                Box::new(LinuxCell { kernels, workload, spin_threshold, critical, think })
            }
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Workload::Payload { critical, think, spin_threshold } => write!(
                f,
                "ring-3 payload: {critical} increments under one lock, {think} beside it; PV halts \
                 after {spin_threshold} looks"
            ),
            Workload::Linux { workload, critical, think, spin_threshold, kernels } => {
                match workload {
                    GuestWorkload::Lock => write!(
                        f,
                        "Linux, one thread a vCPU: {critical} increments under one spin_lock, \
                         {think} beside it"
                    ),
                    other => write!(f, "Linux: bench {}", other.name()),
                }?;
                // Nothing changes a stock kernel's.
                let stock = LinuxCell::SPIN_THRESHOLD;
                match (&kernels.ticket, &kernels.stock) {
                    (None, _) => write!(f, "; PV halts after {stock} looks"),
                    (_, None) => write!(f, "; PV halts after {spin_threshold} looks"),
                    _ => write!(f, "; PV halts after {spin_threshold} looks, stock {stock}"),
                }
            }
        }
    }
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
            Guest::Linux => (6, 1.0),
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
        levels.iter().try_for_each(|vcpus| self.check_counts(*vcpus))?;
        let all = levels.iter().map(|vcpus| vcpus.get() * schedule.vms);
        let recording = schedule.recording(slots, all)?;
        Ok(Plan {
            slots,
            levels,
            cpus,
            runs: self.runs,
            warm_up: match self.workload {
                Workload::Payload { .. } => WARM_UP,
                Workload::Linux { .. } => Duration::ZERO,
            },
            duration: self.duration,
            contenders: self.contenders(),
            vms: schedule.vms,
            slice: schedule.slice,
            recording,
            record: schedule.record.is_some(),
            seed: schedule.seed,
            repeats: if is_emulated() { EMULATED_REPEATS } else { 0 },
            faults: self.args.faults.spec()?,
        })
    }

    /// Can the locks count so many CPUs?
    fn check_counts(&self, vcpus: VcpuCount) -> Result<(), Usage> {
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

    fn contenders(&self) -> Vec<Contender> {
        let policies = self.args.schedule.policies();
        let (backends, handoffs) = (&self.backends, &self.args.handoff);
        match (self.systems.as_slice(), self.args.guest) {
            ([], _) => Contender::all(&policies, backends, handoffs),
            (systems, Guest::Linux) => kernels::contenders(&policies, systems, backends, handoffs),
            (systems, Guest::Payload) => {
                Contender::of_systems(&policies, systems, backends, handoffs)
            }
        }
    }
}

fn workload(args: &CompareArgs, systems: &[System], emulated: bool) -> anyhow::Result<Workload> {
    let &CompareArgs { critical, think, workload, .. } = args;
    let only_for = |guest, option| Usage(format!("{option} is only for --guest {guest}"));
    match args.guest {
        Guest::Payload if workload != GuestWorkload::Lock => {
            Err(only_for("linux", "--workload").into())
        }
        Guest::Payload if args.kernel.is_some() => Err(only_for("linux", "--kernel").into()),
        Guest::Payload if args.stock_kernel.is_some() => {
            Err(only_for("linux", "--stock-kernel").into())
        }
        Guest::Payload => {
            let spin_threshold = args.spin_threshold.unwrap_or(PayloadSpec::SPIN_THRESHOLD);
            Ok(Workload::Payload { critical, think, spin_threshold })
        }
        Guest::Linux => {
            let kernels = kernels::find(args, systems)?;
            let spin_threshold =
                args.spin_threshold.unwrap_or_else(|| LinuxCell::default_looks(emulated));
            if spin_threshold == 0 {
                return Err(
                    Usage("--spin-threshold: a Linux guest looks at least once".into()).into()
                );
            }
            Ok(Workload::Linux { workload, critical, think, spin_threshold, kernels })
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
