//! Marks on simulated results: the machine file used, and the extent of its validation.

use crate::lists::unique;
use study::{
    findings::Study,
    point::Point,
    store::record::{MachineFile, MachineOrigin},
};

/// The mark of every figure and table: `simulated NAME`, with the machines of all simulated points; `None` if all
/// points were measured.
pub fn simulated(study: &Study) -> Option<String> {
    let machines = study.points.iter().map(|study| study.point.machine.as_str());
    let machines = unique(machines.filter(|machine| !machine.is_empty()));
    (!machines.is_empty()).then(|| format!("simulated {}", machines.join(", ")))
}

/// The machine files of a study without duplicates.
pub(super) fn machine_files(study: &Study) -> Vec<&MachineFile> {
    unique(study.runs.iter().flat_map(|run| &run.run.machines))
}

/// The validation that a machine file has passed.
pub const fn validation(file: &MachineFile) -> &'static str {
    match file.origin {
        MachineOrigin::Shipped => {
            "the simulator's tests pass with it; they do not show that its costs are right"
        }
        MachineOrigin::Calibrated => {
            "measured by `pvticket sim calibrate`; not validated beyond `pvticket sim calibrate --validate` \
             on that host"
        }
        MachineOrigin::File => "not a built-in machine, not validated",
    }
}

/// The doubts found when a machine file was measured: one sentence each, without a full stop.
pub fn doubts(file: &MachineFile) -> impl Iterator<Item = String> {
    let MachineFile { name, doubts, .. } = file;
    doubts.iter().map(move |doubt| format!("machine file {name} is DOUBTED: {doubt}"))
}

/// A warning that rates depend on the start order of the vCPUs, with the affected locks and machines; `None`
/// if no point is affected. Without a full stop.
///
/// If all waiters of a first in, first out lock return to it, they keep their order forever, and so does an
/// undisturbed run queue of the host. The number of rotations of the run queue per round of the lock is then
/// constant throughout a simulation: 100 to 500 acquisitions per second were simulated where a real host,
/// which constantly reorders its queues, has 142.
pub fn frozen(study: &Study) -> Option<String> {
    let files = machine_files(study);
    let file_of = |point: &Point| files.iter().find(|file| file.name == point.machine);
    let is_it = |point: &&Point| file_of(point).is_some_and(|file| is_frozen(point, file));
    let points = || study.points.iter().map(|study| &study.point).filter(is_it);
    let locks = unique(points().map(|point| point.lock.name()));
    let machines = unique(points().map(|point| point.machine.as_str()));
    (!locks.is_empty()).then(|| {
        format!(
            "rates of {} under the host's scheduler, with more vCPUs than CPUs, depend on the vCPUs' start order: machine \
             {} has no noise, so waiters and run queue keep their order; set noise=20us+980us",
            locks.join(", "),
            machines.join(", ")
        )
    })
}

fn is_frozen(point: &Point, file: &MachineFile) -> bool {
    let is_still = !file.has_noise && point.noise.is_none();
    let waits_in_order = point.lock.is_fifo() && !point.lock.halts();
    is_still && waits_in_order && point.policy.is_host_model() && point.all_vcpus() > point.slots
}

/// A title with the mark of simulated results.
pub fn marked(study: &Study, title: &str) -> String {
    match simulated(study) {
        Some(mark) => format!("{title} ({mark})"),
        None => title.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use study::testing::{Fixture, record};

    fn file(origin: MachineOrigin, has_noise: bool) -> MachineFile {
        let (text, doubts) = (String::new(), Vec::new());
        MachineFile { name: "m".into(), origin, assumed: 3, costs: 17, text, doubts, has_noise }
    }

    /// The warning about simulations of four vCPUs on two CPUs, with `change` applied to each point.
    fn warning(file: MachineFile, change: impl Fn(&mut Point)) -> Option<String> {
        let fixture =
            Fixture { rounds: 1, policies: vec!["host"], vcpus: vec![4], ..Fixture::default() };
        let mut record = record(&fixture);
        record.contents.run.machines = vec![file];
        for cell in &mut record.contents.cells {
            cell.point.machine = "m".into();
            cell.point.policy = "host-eevdf".parse().unwrap();
            change(&mut cell.point);
        }
        frozen(&Study::new(&[record]))
    }

    /// Regression: built-in machines have no noise, and its effect was not reported.
    #[test]
    fn start_dependent_rates_are_reported() {
        let shipped = || file(MachineOrigin::Shipped, false);
        let text = warning(shipped(), |_| ()).expect("it is told");
        assert!(text.starts_with("rates of ticket under the host's scheduler, "), "{text}");
        assert!(text.contains(": machine m has no noise, ") && !text.contains('\n'), "{text}");
        let cfs = |point: &mut Point| point.policy = "host-cfs".parse().unwrap();
        assert!(warning(shipped(), cfs).is_some());
        let queued = |point: &mut Point| {
            if point.lock.name() == "pv-ticket" {
                point.lock = "queued".parse().unwrap();
            }
        };
        let text = warning(shipped(), queued).expect("it is told");
        assert!(text.starts_with("rates of ticket, queued under "), "{text}");
        assert!(warning(file(MachineOrigin::File, false), |_| ()).is_some());
    }

    #[test]
    fn other_rates_are_not_reported() {
        let shipped = || file(MachineOrigin::Shipped, false);
        let noise = |point: &mut Point| point.noise = Some("20us+980us".parse().unwrap());
        assert_eq!(warning(shipped(), noise), None);
        assert_eq!(warning(file(MachineOrigin::Calibrated, true), |_| ()), None);
        let round_robin = |point: &mut Point| point.policy = "rr".parse().unwrap();
        assert_eq!(warning(shipped(), round_robin), None, "slices are of one length");
        let alone = |point: &mut Point| point.slots = 4;
        assert_eq!(warning(shipped(), alone), None, "there is no queue");
        for lock in ["pv-ticket", "test-and-set"] {
            let with_lock = |point: &mut Point| point.lock = lock.parse().unwrap();
            assert_eq!(warning(shipped(), with_lock), None, "{lock}");
        }
        let measured = |point: &mut Point| point.machine.clear();
        assert_eq!(warning(shipped(), measured), None);
    }
}
