//! The same comparison in the emulated host.

use std::ffi::OsString;

use super::{plan::Resolved, workload::Workload};
use crate::{
    cli::inside::Inside,
    emulated::OutputMode,
    guest::{handoff::HandoffSpec, systems::Systems},
    lab::{LinuxCell, PayloadCell, plan::Level},
    units::ByteSize,
    vm::PvBackend,
};

/// Carries it out there; gives the exit status.
pub(super) fn run(resolved: &Resolved) -> anyhow::Result<u8> {
    let args = &resolved.args;
    let memory = match resolved.workload {
        Workload::Payload(_) => ByteSize(hypercalls::payload::MEMORY),
        Workload::Linux { .. } => LinuxCell::MEMORY,
    };
    let memory = ByteSize(memory.0.saturating_mul(args.schedule.vms.into()));
    let mut inside = Inside::new(arguments(resolved), memory);
    inside = match &resolved.workload {
        Workload::Payload(PayloadCell { sum_every, timed, .. }) => inside
            .with_args(["--guest", "payload", "--sum-every", &sum_every.to_string()])
            .with_args(timed.then_some("--latency")),
        Workload::Linux { kernels, .. } => {
            inside.with_kernels(kernels).with_args(["--guest", "linux"])
        }
    };
    let (Workload::Payload(PayloadCell { spin_threshold, .. })
    | Workload::Linux { spin_threshold, .. }) = &resolved.workload;
    inside = inside.with_args(["--spin-threshold", &spin_threshold.to_string()]);
    inside = args.faults.pass_on(args.schedule.pass_on(inside))?;
    if let Some(json) = &args.json {
        inside = inside.with_result("--json", json);
    }
    if let Some(trace) = &args.trace {
        inside = inside.with_result("--trace", trace);
    }
    // Should the emulated host freeze, the table begins anew, whole: seeing its
    // beginning twice does no harm.
    inside
        .connect(|errand| {
            errand.stdout = OutputMode::Progress;
            errand.stderr = OutputMode::Progress;
        })
        .run()
}

/// What is the same for every guest.
fn arguments(resolved: &Resolved) -> Vec<OsString> {
    let args = &resolved.args;
    let levels: Vec<String> = args.vcpus.iter().map(Level::to_string).collect();
    let backends: Vec<&str> = resolved.backends[1..].iter().copied().map(PvBackend::name).collect();
    let handoffs: Vec<String> = args.handoff.iter().map(HandoffSpec::to_string).collect();
    let mut arguments = vec!["compare".to_owned()];
    for (option, value) in [
        ("--host", "direct".to_owned()),
        ("--vcpus", levels.join(",")),
        ("--pv-backends", backends.join(",")),
        ("--handoff", handoffs.join(",")),
        ("--seconds", resolved.duration.as_secs_f64().to_string()),
        ("--runs", resolved.runs.to_string()),
        ("--critical", args.critical.to_string()),
        ("--think", args.think.to_string()),
        ("--workload", args.workload.name().to_owned()),
    ] {
        arguments.extend([option.to_owned(), value]);
    }
    let locks: Vec<&str> = args.locks.iter().copied().map(Systems::name).collect();
    if !locks.is_empty() {
        arguments.extend(["--locks".to_owned(), locks.join(",")]);
    }
    if let Some(cpus) = &args.cpus {
        arguments.extend(["--cpus".to_owned(), cpus.to_string()]);
    }
    arguments.into_iter().map(OsString::from).collect()
}
