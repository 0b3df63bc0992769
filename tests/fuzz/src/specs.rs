//! Specs of experiments, and machine files.

use base::units::CpuList;
use sim::Machine;
use study::{
    point::HostKind,
    spec::{self, Experiment, Setting, test_mistakes::MISTAKES},
};

use crate::input::is_one_line;

/// A spec yields an experiment with all its cells, or is rejected in one line.
pub fn spec(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let cpus = CpuList::new(&[0, 1]).unwrap();
    let place = |_: &str, _, needs_ring_0| {
        Ok(if needs_ring_0 { HostKind::Emulated } else { HostKind::Direct })
    };
    let setting = Setting::new(&cpus, &place);
    spec::is_simulated(&text);
    spec::charts(&text);
    match Experiment::parse(&text, "fuzz", &setting) {
        Ok(experiment) => {
            let cells = experiment.cells();
            assert_eq!(cells.len(), experiment.points.len() * experiment.repetitions as usize);
            assert!(cells.len() as u64 <= spec::MAX_CELLS);
            for point in experiment.points.iter().take(100) {
                assert!(!point.to_string().is_empty());
            }
        }
        Err(error) => is_one_line(&error.to_string()),
    }
}

pub fn spec_seeds() -> Vec<Vec<u8>> {
    let built_in = ["collapse", "preemption", "seeds"].map(|name| {
        let path = format!("{}/../../vmm/specs/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        std::fs::read(path).unwrap()
    });
    let every_key: String =
        study::axis::KEYS.iter().map(|key| format!("{key} = [1, \"2x\"]\n")).collect();
    let exclude = "locks = [\"ticket\", \"queued\"]\nvcpus = [2, \"2x\"]\nrepetitions = 2\n\
                   faults = \"kick-delay:50us\"\n[[exclude]]\nlocks = \"queued\"\nvcpus = 2\n";
    let guests = [
        "guests = \"linux\"\nvcpus = 2\nlocks = \"all\"",
        "guests = \"sim\"\nmachines = \"m\"\nvcpus = [2, \"8x\"]\npolicies = [\"host\", \"rr\"]",
    ];
    let guests = guests.into_iter().map(Vec::from);
    let mistakes = MISTAKES.iter().map(|(text, ..)| (*text).into());
    let extra = [every_key.into_bytes(), exclude.into()];
    built_in.into_iter().chain(extra).chain(guests).chain(mistakes).collect()
}

/// A machine file.
pub fn machine(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match Machine::parse(&text) {
        Ok(machine) => assert!(machine.cpus() > 0),
        Err(error) => is_one_line(&error.to_string()),
    }
}

pub fn machine_seeds() -> Vec<Vec<u8>> {
    let path = format!("{}/../../vmm/sim/machines", env!("CARGO_MANIFEST_DIR"));
    let files = std::fs::read_dir(path).unwrap();
    files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect()
}
