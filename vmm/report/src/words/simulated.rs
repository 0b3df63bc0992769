//! The marks of what was simulated: by which machine file, and how far that file is validated.

use study::{
    findings::Study,
    store::record::{MachineFile, MachineOrigin},
};

/// `simulated NAME`, with the machines of all simulated points; `None` if all were measured. The mark of
/// every figure and table.
pub fn simulated(study: &Study) -> Option<String> {
    let mut machines: Vec<&str> = Vec::new();
    for point in study.points.iter().map(|study| study.point.machine.as_str()) {
        if !point.is_empty() && !machines.contains(&point) {
            machines.push(point);
        }
    }
    (!machines.is_empty()).then(|| format!("simulated {}", machines.join(", ")))
}

/// The machine files of a study, each once.
pub(super) fn machine_files(study: &Study) -> Vec<&MachineFile> {
    let mut files: Vec<&MachineFile> = Vec::new();
    for file in study.runs.iter().flat_map(|run| &run.run.machines) {
        if !files.contains(&file) {
            files.push(file);
        }
    }
    files
}

/// Which validation a machine file has passed.
pub const fn validation(file: &MachineFile) -> &'static str {
    match file.origin {
        MachineOrigin::Shipped => {
            "rungs 1 and 3 of `pvticket sim validate` hold, which do not say that its costs are true"
        }
        MachineOrigin::Calibrated => {
            "measured by `pvticket sim calibrate`; not validated beyond what `pvticket sim validate \
             --rung 2` says on that host"
        }
        MachineOrigin::File => "a file that does not come with pvticket, not validated",
    }
}

/// A title with the mark of what was simulated.
pub fn marked(study: &Study, title: &str) -> String {
    match simulated(study) {
        Some(mark) => format!("{title} ({mark})"),
        None => title.to_owned(),
    }
}
