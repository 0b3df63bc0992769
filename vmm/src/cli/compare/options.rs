//! From the options of a comparison to a spec.

use locks::System;

use super::{CompareArgs, ComparedGuest, ComparisonArgs, HostExtras, workload::WorkloadName};
use crate::cli::Usage;
use base::{
    backend::PvBackend,
    chain::chain,
    plural::one_to,
    units::{CpuList, VcpuCount},
};
use doctor::topology::Topology;
use experiments::{
    cpus,
    host::{self, GuestClass, Place},
    plan::{Plan, Request},
    prepare::driver::check_record,
};
use kvm::{KvmKind, host::is_emulated};
use lab::cell::simulated::machine;
use sched::PolicySpec;
use study::{
    guest::{kernels, systems::Systems, workload::GuestWorkload},
    plan::{Level, resolve_levels, resolve_simulated},
    spec::{Only, SpecError, SpecFault, SpecText, defaults},
};

/// The comparison that the options describe on this host, to run from its beginning.
pub(in crate::cli) fn plan(args: &CompareArgs, topology: &Topology) -> anyhow::Result<Plan> {
    let what = &args.what;
    what.check()?;
    let cpus = match what.guest {
        ComparedGuest::Sim => what.simulated_cpus()?,
        ComparedGuest::Payload | ComparedGuest::Linux => {
            cpus::choose(topology, what.cpus.as_ref(), what.schedule.slots)?
        }
    };
    let spec = what.spec(&cpus)?;
    let name = "compare".to_owned();
    let (jobs, host, host_kernel) = (1, what.host, what.host_kernel.choice());
    let (only, part) = (Only::default(), None);
    let guest_kernel = args.kernels.files().usual_kernel();
    let request = Request { name, spec, cpus, jobs, host, host_kernel, guest_kernel, only, part };
    Plan::new(request, in_options)
}

impl ComparisonArgs {
    /// Checks what a spec cannot tell.
    fn check(&self) -> Result<(), Usage> {
        self.schedule.check()?;
        check_record(&self.driver, self.schedule.record.is_some())?;
        if self.sum_every.is_some() && self.guest != ComparedGuest::Payload {
            return Err(Usage("--sum-every is only for --guest payload".into()));
        }
        if self.latency && self.guest == ComparedGuest::Linux {
            return Err(Usage("--latency is only for --guest payload and sim".into()));
        }
        if self.guest != ComparedGuest::Sim && self.machine.is_some() {
            return Err(Usage("--machine is only for --guest sim".into()));
        }
        if self.guest != ComparedGuest::Linux && self.guest_kernel.is_some() {
            return Err(Usage("--guest-kernel is only for --guest linux".into()));
        }
        if self.backends().contains(&PvBackend::Off) {
            Err(Usage("--pv-backends: off is native, which always runs".into()))
        } else {
            Ok(())
        }
    }

    /// The machine's CPUs, or the first N of them: `--cpus N`, or a list.
    fn simulated_cpus(&self) -> Result<CpuList, Usage> {
        let Some(name) = &self.machine else {
            return Err(Usage("--guest sim: name a --machine".into()));
        };
        let machine = machine(name).map_err(|error| Usage(chain(&error)))?;
        let available = machine.cpus();
        let cpus = match self.cpus.as_ref().map(CpuList::cpus) {
            None => available,
            Some([count]) => *count,
            Some(list) => list.len(),
        };
        if !(1..=available).contains(&cpus) {
            return Err(Usage(format!("--cpus {cpus}: {name} has {}", one_to(available, "CPU"))));
        }
        CpuList::new(&Vec::from_iter(0..cpus)).map_err(|error| Usage(error.to_string()))
    }

    /// The policies; a simulation has `rr` if none is named.
    fn policies(&self) -> Vec<PolicySpec> {
        match (self.guest, self.schedule.has_policy()) {
            (ComparedGuest::Sim, false) => vec![PolicySpec::round_robin()],
            _ => self.schedule.policies(),
        }
    }

    fn backends(&self) -> &[PvBackend] {
        self.pv_backends.as_deref().unwrap_or(&[PvBackend::Vmm])
    }

    /// The systems of `--locks`; `all` are those that the guest has.
    fn locks(&self) -> Vec<System> {
        let systems_of = |systems: &Systems| match (systems, self.guest) {
            (Systems::One(system), _) => vec![*system],
            (Systems::All, ComparedGuest::Payload | ComparedGuest::Sim) => System::ALL.to_vec(),
            (Systems::All, ComparedGuest::Linux) => kernels::systems(),
        };
        match self.locks.as_slice() {
            [] => vec![System::NativeTicket, System::PvTicket],
            locks => locks.iter().flat_map(systems_of).collect(),
        }
    }

    /// Looks at the lock before a PV waiter halts.
    fn looks(&self) -> u32 {
        let otherwise = || match self.guest {
            ComparedGuest::Payload | ComparedGuest::Sim => defaults::PAYLOAD_LOOKS,
            ComparedGuest::Linux => {
                let place = host::choose(self.host, GuestClass::Ring0, KvmKind::detect()).place;
                defaults::linux_looks(place == Place::Emulated || is_emulated())
            }
        };
        self.spin_threshold.unwrap_or_else(otherwise)
    }

    /// The spec. Every value is written, so that the store says what was run; of a guest kernel that nobody asked for, its
    /// first line does.
    fn spec(&self, cpus: &CpuList) -> Result<String, Usage> {
        let slots = self.schedule.slots(cpus)?;
        // A simulated machine may have more vCPUs than can be written as a number.
        let slot_cpus = cpus.first(slots);
        let levels: Vec<String> = match self.guest {
            ComparedGuest::Sim => {
                resolve_simulated(&self.vcpus, &slot_cpus)?;
                self.vcpus.iter().map(Level::to_string).collect()
            }
            ComparedGuest::Payload | ComparedGuest::Linux => {
                resolve_levels(&self.vcpus, &slot_cpus)?.iter().map(VcpuCount::to_string).collect()
            }
        };
        let (guest, runs, seconds, warm_up) = match self.guest {
            ComparedGuest::Payload => ("payload", 10, 0.5, defaults::PAYLOAD_WARM_UP),
            ComparedGuest::Linux => ("linux", 6, 0.8, defaults::LINUX_WARM_UP),
            ComparedGuest::Sim => ("sim", 6, defaults::SIM_SECONDS, defaults::SIM_WARM_UP),
        };
        let locks = self.locks();
        let workload = match self.workload {
            WorkloadName::LOCK => GuestWorkload::Lock.name(),
            other => other.name(),
        };
        let seconds = self.seconds.map_or(seconds, |seconds| seconds.0.as_secs_f64());
        let faults = self.faults.spec()?;
        let faults = faults.map_or_else(|| "none".to_owned(), |faults| faults.to_string());
        let mut spec = SpecText::default();
        spec.one("repetitions", self.runs.unwrap_or(runs));
        spec.one("warm-up", warm_up.as_secs_f64());
        spec.one("latency", self.latency);
        spec.one("sum-every", self.sum_every.unwrap_or(defaults::SUM_EVERY));
        spec.text("guests", [guest]);
        if let Some(kernels) = &self.guest_kernel {
            spec.text("guest-kernels", kernels);
        }
        if let Some(machine) = &self.machine {
            spec.text("machines", [machine]);
        }
        spec.text("workloads", [workload]);
        spec.text("policies", self.policies());
        spec.text("drivers", &self.driver);
        spec.one("slots", slots);
        spec.one("vms", self.schedule.vms);
        spec.text("slice", [self.schedule.slice]);
        spec.one("seeds", self.schedule.seed);
        spec.text("faults", [faults]);
        self.extras.write(&mut spec);
        spec.one("lock-count", self.lock_count);
        spec.one("critical", self.critical);
        spec.one("think", self.think);
        spec.one("spin-threshold", self.looks());
        spec.one("seconds", seconds);
        spec.text("vcpus", levels);
        spec.text("locks", locks);
        spec.text("backends", self.backends().iter().copied().map(PvBackend::name));
        spec.text("handoffs", &self.handoff);
        Ok(spec.into())
    }
}

impl HostExtras {
    /// The keys of what was asked for.
    fn write(&self, spec: &mut SpecText) {
        let Self { ple, halt_poll, noise } = *self;
        let values = [
            ("ple", ple.map(|value| value.to_string())),
            ("halt-poll", halt_poll.map(|value| value.to_string())),
            ("noise", noise.map(|value| value.to_string())),
        ];
        for (key, value) in values {
            value.into_iter().for_each(|value| _ = spec.text(key, [value]));
        }
    }
}

/// The option for a key of a spec.
fn option(key: &str) -> &str {
    match key {
        "guests" => "guest",
        "guest-kernels" => "guest-kernel",
        "workloads" => "workload",
        "policies" => "policy",
        "drivers" => "driver",
        "machines" => "machine",
        "faults" => "fault",
        "backends" => "pv-backends",
        "handoffs" => "handoff",
        "seeds" => "seed",
        "repetitions" => "runs",
        other => other,
    }
}

/// An error of the spec, said of the options.
fn in_options(error: &SpecError) -> Usage {
    Usage(match &error.fault {
        SpecFault::Value { key, why } => format!("--{}: {why}", option(key)),
        SpecFault::Impossible { cell, why } => {
            let named = |part: &str| {
                let (key, value) = part.split_once(' ').unwrap_or((part, ""));
                format!("--{} {value}", option(key))
            };
            let cell: Vec<String> = cell.split(" with ").map(named).collect();
            format!("{}: {why}", cell.join(" with "))
        }
        fault => fault.to_string(),
    })
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
