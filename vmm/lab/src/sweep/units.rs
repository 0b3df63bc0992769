//! How the cells of a sweep are divided into units.

use std::time::Duration;

use crate::run::estimate_cell;
use study::{
    point::GuestKind,
    spec::{Experiment, PlannedCell},
    store::sweep::record::Unit,
};

/// Simulated cells are divided so that a unit takes about this long at most: a Slurm task costs about
/// a second besides.
const SIMULATED: Duration = Duration::from_secs(60);

/// Most units of a simulated round: a Slurm array has 1001 elements unless its administrator says
/// otherwise (MaxArraySize).
const MOST: u32 = 1000;

/// Are all cells simulated? Then it does not matter where they run, or beside what.
pub fn is_simulated(experiment: &Experiment) -> bool {
    experiment.points.iter().all(|point| point.guest == GuestKind::Sim)
}

/// The units of an experiment. Measured cells that are compared with each other run on one node: a
/// unit is a whole round on one kind of host. Rounds of simulated cells are divided further, into
/// units of `most` cells, or as their estimated time asks for.
pub fn units(experiment: &Experiment, most: Option<u32>) -> Vec<Unit> {
    let cells = experiment.cells();
    let limit = match (is_simulated(experiment), most) {
        (false, _) => SizeLimit { least: u32::MAX, most: u32::MAX, time: Duration::MAX },
        (true, Some(most)) => SizeLimit { least: most, most, time: Duration::MAX },
        (true, None) => {
            let least = (cells.len() as u32).div_ceil(MOST);
            SizeLimit { least, most: u32::MAX, time: SIMULATED }
        }
    };
    let key = |cell: &PlannedCell| (cell.round, experiment.points[cell.point].host);
    let mut units: Vec<Unit> = Vec::new();
    let (mut last, mut took) = (None, Duration::ZERO);
    for cell in &cells {
        let time = estimate_cell(experiment, &experiment.points[cell.point]);
        let longer = took.saturating_add(time);
        match units.last_mut() {
            Some(unit)
                if last == Some(key(cell))
                    && unit.cells < limit.most
                    && (longer <= limit.time || unit.cells < limit.least) =>
            {
                unit.cells += 1;
                took = longer;
            }
            _ => {
                units.push(Unit { first: cell.cell, cells: 1 });
                took = time;
            }
        }
        last = Some(key(cell));
    }
    units
}

/// How large a unit may become.
struct SizeLimit {
    /// Cells that it may have however long they take.
    least: u32,
    most: u32,
    time: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;
    use study::{point::HostKind, spec::Setting};

    fn divided(spec: &str, most: Option<u32>) -> Vec<(u32, u32)> {
        let cpus = "0-1".parse().unwrap();
        let place = |_: &str, _, _| Ok(HostKind::Direct);
        let setting = Setting::new(&cpus, &place);
        let experiment = Experiment::parse(spec, "test", &setting).unwrap();
        let units = units(&experiment, most);
        let cells: u32 = units.iter().map(|unit| unit.cells).sum();
        assert_eq!(cells as usize, experiment.cells().len());
        units.iter().map(|unit| (unit.first, unit.cells)).collect()
    }

    #[test]
    fn measured_rounds_stay_whole() {
        let spec = "vcpus = [2, 3, 4]\nseconds = 100\nrepetitions = 3";
        assert_eq!(divided(spec, Some(1)), [(0, 6), (6, 6), (12, 6)]);
    }

    #[test]
    fn simulated_rounds_are_divided() {
        let sim = "guests = \"sim\"\nmachines = \"westmere-80\"\nlocks = \"ticket\"\nvcpus = [2, 3, 4]\nrepetitions = 2\n";
        assert_eq!(divided(&format!("{sim}seconds = 0.01"), None), [(0, 3), (3, 3)]);
        assert_eq!(divided(&format!("{sim}seconds = 10"), None).len(), 6, "100 s each");
        assert_eq!(divided(sim, Some(2)), [(0, 2), (2, 1), (3, 2), (5, 1)]);
    }

    #[test]
    fn an_array_has_no_more_units_than_slurm_takes() {
        let sim = "guests = \"sim\"\nmachines = \"westmere-80\"\nlocks = \"ticket\"\nvcpus = 2\nseconds = 10\nseeds = [";
        let seeds: Vec<String> = (0..2500).map(|seed| seed.to_string()).collect();
        let units = divided(&format!("{sim}{}]\nrepetitions = 1", seeds.join(",")), None);
        assert_eq!(units.len(), 834);
    }
}
