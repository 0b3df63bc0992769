//! Converts the options of a comparison to a spec.

use super::{CompareArgs, ComparisonArgs};
use crate::cli::Usage;
use base::{chain::chain, plural::one_to, units::CpuList};
use experiment::doctor::topology::Topology;
use experiment::{
    cell::simulated::machine,
    cpus,
    host_choice::{HostKernelChoice, HostMode},
    plan::{Plan, Request},
    prepare::driver::check_record,
    programs,
};
use study::{
    guest::systems::Systems,
    point::GuestKind,
    spec::{Form, defaults},
};

/// The plan of a new comparison with these options on this host.
pub(in crate::cli) fn plan(args: &CompareArgs, topology: &Topology) -> anyhow::Result<Plan> {
    let options = &args.comparison;
    options.schedule.check()?;
    let cpus = match options.guest {
        GuestKind::Sim => options.simulated_cpus()?,
        GuestKind::Payload | GuestKind::Linux => {
            cpus::choose(topology, options.cpus.as_ref(), options.schedule.slots)?
        }
    };
    // Several kernels are an axis of the spec.
    let (host, host_kernel) = match (options.host_kernel.several(), options.host) {
        ([], host) => (host, options.host_kernel.choice()?),
        (_, HostMode::Auto) => (HostMode::Emulated, HostKernelChoice::default()),
        (_, host) => (host, HostKernelChoice::default()),
    };
    let request =
        Request { host, host_kernel, ..Request::new("compare", options.spec(&cpus)?, cpus) };
    let plan = Plan::new(request, |error| Usage(error.fault.to_string()))?;
    let drivers = plan.experiment.points.iter().map(|point| point.driver);
    check_record(drivers, options.schedule.record.is_some())?;
    Ok(plan)
}

impl ComparisonArgs {
    /// The simulated machine's CPUs, or the first N: `--cpus N`, or a list of N.
    fn simulated_cpus(&self) -> Result<CpuList, Usage> {
        let Some(name) = &self.machine else {
            return Err(Usage("--guest sim: requires --machine".into()));
        };
        let machine = machine(name).map_err(|error| Usage(chain(&error)))?;
        let available = machine.cpus();
        let cpus = match self.cpus.as_ref().map(CpuList::cpus) {
            None => available,
            Some([count]) => *count,
            Some(list) => list.len(),
        };
        if !(1..=available).contains(&cpus) {
            return Err(Usage(format!("--cpus {cpus}: must be {}", one_to(available, "CPU"))));
        }
        CpuList::new(&Vec::from_iter(0..cpus)).map_err(|error| Usage(error.to_string()))
    }

    /// The spec for these options, with the defaults of a comparison.
    fn spec(&self, cpus: &CpuList) -> Result<Form, Usage> {
        let (policy, runs, seconds, warm_up) = match self.guest {
            GuestKind::Payload => ("host", 10, 0.5, defaults::PAYLOAD_WARM_UP),
            GuestKind::Linux => ("host", 6, 0.8, defaults::LINUX_WARM_UP),
            GuestKind::Sim => ("rr", 6, defaults::SIM_SECONDS, defaults::SIM_WARM_UP),
        };
        let seconds = self.seconds.map_or(seconds, |seconds| seconds.0.as_secs_f64());
        let (workload, workloads) = match self.program.as_slice() {
            [] => ("--workload", Vec::from_iter(self.workload.clone())),
            programs => {
                ("--program", programs.iter().map(|text| programs::absolute(text)).collect())
            }
        };
        let seconds_of = self.seconds_of.iter().filter(|regex| !regex.is_empty());
        let seconds_of = seconds_of.map(|regex| format!("1/{regex}"));
        let schedule = &self.schedule;
        let mut spec = Form::default();
        spec.set("repetitions", "--runs", [self.runs.unwrap_or(runs)])
            .set("latency", "--latency", self.latency.then_some(true))
            .set("guests", "--guest", [self.guest.name()])
            .set("guest-kernels", "--guest-kernel", &self.guest_kernel)
            .set("host-kernels", "--host-kernel", self.host_kernel.several())
            .set("machines", "--machine", &self.machine)
            .set("workloads", workload, workloads)
            .set("rate", "--seconds-of", seconds_of)
            .set("policies", "--policy", schedule.policies(policy))
            .set("slots", "--slots", [schedule.slots(cpus)?])
            .set("vms", "--vms", [schedule.vms])
            .set("slice", "--slice", [schedule.slice])
            .set("seconds", "--seconds", [seconds])
            .set("vcpus", "--vcpus", &self.vcpus)
            .set("locks", "--locks", self.locks.iter().copied().map(Systems::name))
            .set("backends", "--pv-backends", &self.pv_backends);
        spec.assign(&[self.set.as_slice(), &self.keys.0].concat())
            .map_err(|error| Usage(error.fault.to_string()))?;
        if !spec.has("warm-up") {
            spec.set("warm-up", "warm-up", [warm_up.as_secs_f64()]);
        }
        Ok(spec)
    }
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
