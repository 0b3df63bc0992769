//! Repetitions in the machine's place: where the CPUs were when they were calibrated. If the hypervisor of this
//! host moves its CPUs, a line takes several times as long between them for a while.

use std::ops::ControlFlow::{self, Break, Continue};

use sim::Machine;
use study::{
    findings::{PointStudy, Study, repetition::Repetition},
    stats,
};

use super::{Cells, study_of};
use base::units::CpuList;

/// Minimum number of repetitions of each cell in the machine's place.
const MIN_REPETITIONS: usize = 3;

/// Maximum number of times that all cells are measured for [`MIN_REPETITIONS`].
const MAX_ATTEMPTS: u32 = 4;

/// Measures the cells until each has enough repetitions in the machine's place, at most [`MAX_ATTEMPTS`] times.
pub(super) fn measured(
    cells: &Cells,
    machine: &Machine,
    cpus: &CpuList,
) -> anyhow::Result<ControlFlow<u8, Study>> {
    let spec = [cells.measured()];
    let minimum = MIN_REPETITIONS.min(cells.extent.rounds as usize);
    let mut records = Vec::new();
    loop {
        match study_of("measured", &spec, cpus)? {
            Continue((_, record)) => records.push(record),
            Break(status) => return Ok(Break(status)),
        }
        let study = Study::new(&records);
        let has_enough = |point: &PointStudy| rates(point, machine).len() >= minimum;
        if records.len() >= MAX_ATTEMPTS as usize || study.points.iter().all(has_enough) {
            return Ok(Continue(study));
        }
    }
}

/// Returns the rates of the repetitions in the machine's place.
pub(super) fn rates(point: &PointStudy, machine: &Machine) -> Vec<f64> {
    let repetitions = point.repetitions.iter().filter(|repetition| in_place(repetition, machine));
    repetitions.map(|repetition| repetition.rate).collect()
}

/// Whether `repetition` is in the machine's place; true if the place of either is not known.
fn in_place(repetition: &Repetition, machine: &Machine) -> bool {
    let Some(usual) = machine.hop().map(|hop| hop.0 as f64 / 1e3) else { return true };
    repetition.is_near(usual)
}

/// Describes in a line how many repetitions were in the machine's place, and where the others were.
pub(super) fn describe_places(study: &Study, machine: &Machine) -> String {
    let repetitions = || study.points.iter().flat_map(|point| &point.repetitions);
    let elsewhere: Vec<f64> = repetitions()
        .filter(|repetition| !in_place(repetition, machine))
        .flat_map(Repetition::hops)
        .collect();
    let Some((place_hop, elsewhere_hop)) = machine.hop().zip(stats::median(&elsewhere)) else {
        return String::new();
    };
    let count = repetitions().filter(|repetition| in_place(repetition, machine)).count();
    format!(
        "\n{count} of {} repetitions were measured where the machine file was: a line took {place_hop} from CPU to CPU, \
         {elsewhere_hop:.0} ns (median) for the others, which are left out\n",
        repetitions().count()
    )
}
