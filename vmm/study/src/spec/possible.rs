//! Checks whether combinations of a matrix can be run.

use hypercalls::payload;
use locks::System;

use super::{
    error::{SpecError, SpecFault},
    form::{Axis, Form, UNWRITTEN, Value},
    matrix::{Combination, MAX_VMS},
};
use crate::{
    guest::{kernels, program::Program, workload::GuestWorkload},
    point::{GuestKind, Point},
};
use base::{backend::PvBackend, plural::count, steal_source::StealSource, units::VcpuCount};
use sched::{driver::DriverKind, policy::SHORTEST_SLICE};

/// The reason against the lock `kernel` in other guests than Linux.
const NO_KERNEL: &str = "only a Linux guest has a kernel";

/// Returns the error for conflicting values. It has the line of the first value that is in the spec.
pub(super) fn impossible(values: &[&Value], reason: impl Into<String>) -> SpecError {
    let lines = values.iter().map(|value| value.line);
    let line = lines.into_iter().find(|line| *line != UNWRITTEN).unwrap_or(1);
    let words: Vec<String> = values.iter().map(|value| value.written()).collect();
    let cell = words.join(" with ");
    SpecFault::Impossible { cell, why: reason.into() }.at(line)
}

/// Rejects a value that no combination of the matrix uses.
pub(super) fn check_matrix(form: &Form, axes: &[Axis]) -> Result<(), SpecError> {
    let values =
        |key| axes.iter().filter(move |axis| axis.key == key).flat_map(|axis| &axis.values);
    let has = |guest: GuestKind| values("guests").any(|value| value.text == guest.name());
    let is_scheduled = values("policies").any(|policy| policy.text != "host");
    let driver = values("drivers").find(|driver| driver.text != DriverKind::User.name());
    let kernel = values("guest-kernels").find(|kernel| kernel.line != UNWRITTEN);
    let source = values("told").find(|source| source.line != UNWRITTEN);
    let has_program = values("workloads").any(|value| Program::parse(&value.text).is_some());
    let latency = form.setting("latency").filter(|latency| latency.text == "true");
    let is_timed = has(GuestKind::Payload) || has(GuestKind::Sim);
    let uses = [
        (
            driver,
            ("policies", is_scheduled),
            "the host's own scheduling has no driver; name another policy",
        ),
        (
            values("told").find(|source| source.text == StealSource::Schedule.name()),
            ("policies", is_scheduled),
            "the host's own scheduling leaves steal time to KVM; name another policy",
        ),
        (source, ("guests", has(GuestKind::Linux)), "only a Linux guest reads its steal time"),
        (kernel, ("guests", has(GuestKind::Linux)), "only a Linux guest boots a kernel"),
        (
            values("rate").find(|rate| rate.line != UNWRITTEN).or(form.setting("root")),
            ("workloads", has_program),
            "it is for a program; name one (--program DIR/COMMAND)",
        ),
        (latency, ("guests", is_timed), "only payload and sim time their operations"),
        (
            form.setting("sum-every"),
            ("guests", has(GuestKind::Payload)),
            "only the payload sums its counters",
        ),
    ];
    for (value, (key, is_used), reason) in uses {
        let Some(value) = value.filter(|_| !is_used) else { continue };
        let pair: Vec<&Value> = [value].into_iter().chain(values(key).next()).collect();
        return Err(impossible(&pair, reason));
    }
    Ok(())
}

impl Combination<'_> {
    /// Rejects a point that no guest can run. The error has the line of a conflicting value.
    pub(super) fn check(&self, point: &Point) -> Result<(), SpecError> {
        match point.guest {
            GuestKind::Payload => self.check_payload(point)?,
            GuestKind::Linux => self.check_linux(point)?,
            GuestKind::Sim => self.check_sim(point)?,
        }
        if point.guest != GuestKind::Sim {
            self.check_measured(point)?;
        }
        self.check_driver(point)?;
        self.check_fault(point)
    }

    /// Rejects settings that the schedule's driver does not support.
    fn check_driver(&self, point: &Point) -> Result<(), SpecError> {
        if point.guest == GuestKind::Sim && !point.driver.is_user() {
            let reason = "a simulation has no kernel that could carry out a schedule";
            return Err(self.impossible(&["drivers", "guests"], reason));
        }
        if point.cgroups.is_some() && !point.driver.is_user() {
            let reason = "the bpf scheduler does not support control groups";
            return Err(self.impossible(&["cgroups", "drivers"], reason));
        }
        if let Some(reason) = point.driver.refusal(&point.policy) {
            return Err(self.impossible(&["drivers", "policies"], reason));
        }
        let overlong = point.policy.watchdog_conflict(point.slice, point.all_vcpus(), point.slots);
        match overlong.filter(|_| !point.driver.is_user()) {
            Some(reason) => Err(self.impossible(&["drivers", "slice"], &reason)),
            None => Ok(()),
        }
    }

    /// Rejects settings that cannot be measured.
    fn check_measured(&self, point: &Point) -> Result<(), SpecError> {
        const SIM_ONLY: &str = "only a simulated host supports it; set the guest to sim";
        let (key, reason) = match () {
            () if point.policy.is_host_model() => {
                ("policies", "it is a model of the host's scheduler; host is the scheduler itself")
            }
            () if !point.machine.is_empty() => ("machines", "only the guest sim is simulated"),
            () if point.ple.is_some() && !point.needs_ring_0() => {
                ("ple", "Intel's CPUs have them in ring 0 only; set the guest to linux")
            }
            () if point.halt_poll.is_some() => ("halt-poll", SIM_ONLY),
            () if point.noise.is_some() => ("noise", SIM_ONLY),
            () if !point.policy.is_host() && point.slice < SHORTEST_SLICE => {
                let reason = format!("{SHORTEST_SLICE} or more: a vCPU would make no progress");
                return Err(self.impossible(&["slice", "guests"], &reason));
            }
            () if point.sizes().count() > MAX_VMS as usize => {
                let reason = format!("a cell has at most {MAX_VMS} VMs");
                return Err(self.impossible(&["other-vms", "vms"], reason));
            }
            () => return Ok(()),
        };
        Err(self.impossible(&[key, "guests"], reason))
    }

    fn check_payload(&self, point: &Point) -> Result<(), SpecError> {
        let workloads = payload::Workload::OF_LOCKS;
        if point.lock == System::Kernel {
            return Err(self.impossible(&["locks", "guests"], NO_KERNEL));
        }
        let Some((workload, ..)) = workloads.iter().find(|(_, name, _)| *name == point.workload)
        else {
            let names: Vec<&str> = workloads.iter().map(|(_, name, _)| *name).collect();
            let reason = format!("the payload has {}", names.join(", "));
            return Err(self.impossible(&["workloads", "guests"], reason));
        };
        if *workload == payload::Workload::HotLine
            && point.sizes().any(|vcpus| vcpus == VcpuCount::ONE)
        {
            let reason = "it requires at least two vCPUs: one of them reads";
            return Err(self.impossible(&["workloads", "vcpus", "other-vms"], reason));
        }
        if *workload == payload::Workload::Switch
            && (point.slots != 1 || point.vcpus == VcpuCount::ONE || point.sizes().count() > 1)
        {
            let reason = "it requires at least two vCPUs of one VM that share one slot";
            return Err(
                self.impossible(&["workloads", "slots", "vcpus", "vms", "other-vms"], reason)
            );
        }
        if point.sizes().any(|vcpus| vcpus.get() > point.lock.max_cpus()) {
            let reason = format!("it supports at most {}", count(point.lock.max_cpus(), "CPU"));
            return Err(self.impossible(&["locks", "vcpus", "other-vms"], reason));
        }
        Ok(())
    }

    fn check_sim(&self, point: &Point) -> Result<(), SpecError> {
        let is_served = matches!(point.backend, PvBackend::Off | PvBackend::Vmm);
        let (keys, reason): (&[_], _) = match () {
            () if point.lock == System::Kernel => (&["locks", "guests"], NO_KERNEL),
            () if point.machine.is_empty() => {
                (&["machines", "guests"], "name a machine to simulate")
            }
            () if point.workload != "lock" => (&["workloads", "guests"], "sim supports only lock"),
            () if !is_served => (&["backends", "guests"], "sim supports only vmm"),
            () if point.other_vms.is_some() => {
                (&["other-vms", "guests"], "all VMs of a simulation have the same size")
            }
            () if point.cgroups.is_some() => {
                (&["cgroups", "guests"], "simulations do not support control groups")
            }
            () => return Ok(()),
        };
        Err(self.impossible(keys, reason))
    }

    fn check_linux(&self, point: &Point) -> Result<(), SpecError> {
        if point.guest_workload().is_none() {
            let names = GuestWorkload::ALL.map(GuestWorkload::name).join(", ");
            let reason =
                format!("a Linux guest has {names} (pgbench:CLIENTS/SCALE), or DIR/COMMAND");
            return Err(self.impossible(&["workloads", "guests"], reason));
        }
        if kernels::flavour(point.lock).is_none() {
            let systems = kernels::systems();
            let systems: Vec<&str> = systems.iter().map(|system| system.name()).collect();
            let reason = format!("no guest kernel implements it; there are {}", systems.join(", "));
            return Err(self.impossible(&["locks", "guests"], reason));
        }
        if point.sizes().any(|vcpus| !kernels::works_with(point.lock, vcpus.get())) {
            let reason = "a guest kernel with one CPU does not use this lock";
            return Err(self.impossible(&["locks", "vcpus", "other-vms"], reason));
        }
        if self.value("spin-threshold").line != UNWRITTEN && point.spin_threshold == 0 {
            return Err(self.impossible(&["spin-threshold", "guests"], "it must be at least 1"));
        }
        Ok(())
    }

    fn check_fault(&self, point: &Point) -> Result<(), SpecError> {
        // Native locks make no hypercalls, but are baselines of PV locks with faults.
        let fault = point.fault.filter(|_| point.backend != PvBackend::Off);
        match fault.and_then(|fault| fault.obstacle(point.backend)) {
            Some(reason) => Err(self.impossible(&["faults", "backends", "locks"], reason)),
            None => Ok(()),
        }
    }
}
