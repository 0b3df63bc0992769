//! Time from the end of one vCPU's slice to the entry of the next vCPU on the same CPU.
//!
//! A futex handoff between two threads is only a part of this time: the woken thread also sets the timer of its
//! slice, and enters KVM.

use study::{
    point::HostKind,
    spec::{Experiment, Setting},
};

use super::CalibrateError;
use crate::{
    Interrupt,
    cell::{Cell, CellError, RunSpec, payload::PayloadCell},
    engine::{job::Extras, run_jobs::start_schedule},
};
use base::units::CpuList;
use hypercalls::payload::Workload;

/// Two vCPUs that take no lock and alternate in one slot: a hundred switches in a round.
const SPEC: &str = "vcpus = 2\nslots = 1\nlocks = \"ticket\"\nworkloads = \"switch\"\npolicies = \"rr\"\n\
                    slice = \"1ms\"\nseconds = 0.1\nwarm-up = 0.01\nrepetitions = 1\n";

/// Measures the median switch of each round, in nanoseconds, on the first of `cpus`.
pub(super) fn measure(
    cpus: &CpuList,
    rounds: usize,
    interrupt: &Interrupt,
) -> Result<Vec<f64>, CalibrateError> {
    let cpus = CpuList::single(cpus.cpus()[0]);
    let place = |_: &str, _, _| Ok(HostKind::Direct);
    let setting = Setting::new(&cpus, &place);
    let Experiment { points, method, .. } =
        Experiment::parse(SPEC, "switch", &setting).map_err(CalibrateError::Spec)?;
    (0..rounds).map(|_| round(RunSpec::new(&points[0], &method, &cpus), interrupt)).collect()
}

fn round(run: RunSpec<'_>, interrupt: &Interrupt) -> Result<f64, CalibrateError> {
    let cell = PayloadCell { workload: Workload::Switch };
    let measured = start_schedule(run.point, run.cpus, None, Extras::default(), None)
        .map_err(CellError::from)
        .and_then(|schedule| cell.run(&RunSpec { schedule, ..run }, interrupt));
    let measured = measured.map_err(|error| match error {
        CellError::Interrupted => CalibrateError::Interrupted,
        error => CalibrateError::Switch(error),
    })?;
    let handover =
        measured.figures.schedule.and_then(|schedule| schedule.times.handover.percentiles());
    handover.map(|times| times.p50.0 as f64).ok_or(CalibrateError::NoSwitch)
}
