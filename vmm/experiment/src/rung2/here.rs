//! Repetitions that were measured in the machine's place. Where the machine below this host moves its CPUs, a
//! line takes several times as long between them for a while, and the host is another machine.

use std::ops::ControlFlow::{self, Break, Continue};

use sim::Machine;
use study::{
    findings::{PointStudy, Study, repetition::Repetition},
    stats,
};

use super::{Cells, study_of};
use base::units::CpuList;

/// Minimum number of repetitions of each cell in the machine's place.
const LEAST: usize = 3;

/// Maximum number of times that all cells are measured to get these.
const TRIES: u32 = 4;

/// Measures the cells until each has enough repetitions in the machine's place, at most [`TRIES`] times.
pub(super) fn measured(
    cells: &Cells,
    machine: &Machine,
    cpus: &CpuList,
) -> anyhow::Result<ControlFlow<u8, Study>> {
    let spec = [cells.measured()];
    let least = LEAST.min(cells.extent.rounds as usize);
    let mut records = Vec::new();
    loop {
        match study_of("measured", &spec, cpus)? {
            Continue((_, record)) => records.push(record),
            Break(status) => return Ok(Break(status)),
        }
        let study = Study::new(&records);
        let has_enough = |point: &PointStudy| rates(point, machine).len() >= least;
        if records.len() >= TRIES as usize || study.points.iter().all(has_enough) {
            return Ok(Continue(study));
        }
    }
}

/// Returns the rates of the repetitions in the machine's place.
pub(super) fn rates(point: &PointStudy, machine: &Machine) -> Vec<f64> {
    let repetitions = point.repetitions.iter().filter(|repetition| is_here(repetition, machine));
    repetitions.map(|repetition| repetition.rate).collect()
}

/// Whether it is in the machine's place; true if the place of either is not known.
fn is_here(repetition: &Repetition, machine: &Machine) -> bool {
    let Some(usual) = machine.hop().map(|hop| hop.0 as f64 / 1e3) else { return true };
    repetition.is_beside(usual)
}

/// Describes in a line how many repetitions were in the machine's place, and where the others were.
pub(super) fn places(study: &Study, machine: &Machine) -> String {
    let all = || study.points.iter().flat_map(|point| &point.repetitions);
    let elsewhere: Vec<f64> = all()
        .filter(|repetition| !is_here(repetition, machine))
        .flat_map(Repetition::hops)
        .collect();
    let Some((usual, other)) = machine.hop().zip(stats::median(&elsewhere)) else {
        return String::new();
    };
    let count = all().filter(|repetition| is_here(repetition, machine)).count();
    format!(
        "\n{count} of {} repetitions were measured where the machine file was: a line took {usual} from CPU to CPU, \
         {other:.0} ns (median) beside the others, which are left out\n",
        all().count()
    )
}
