//! The workloads: one file and one line in the list each.

mod allocate;
mod eventfd;
mod futex;
mod kernel;
mod messaging;
mod mmap;
mod open_read_close;
pub mod spawn;

use std::io;

use crate::{options::WorkloadOptions, report::WorkloadPart};

/// A workload.
#[derive(Debug)]
pub struct Workload {
    pub name: &'static str,
    /// A description in one line.
    pub about: &'static str,
    /// Runs and measures it.
    pub run: fn(&Workload, &WorkloadOptions) -> io::Result<Vec<WorkloadPart>>,
    /// One operation, for workloads whose workers are processes.
    pub each: Option<fn(&WorkloadOptions) -> io::Result<()>>,
}

pub const ALL: &[Workload] = &[
    mmap::WORKLOAD,
    open_read_close::WORKLOAD,
    allocate::WORKLOAD,
    messaging::WORKLOAD,
    spawn::WORKLOAD,
    futex::WORKLOAD,
    eventfd::WORKLOAD,
    kernel::WORKLOAD,
];

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Except those that start this program again, and the kernel's own.
    #[test]
    fn every_workload_of_threads_gets_on() {
        for workload in ALL.iter().filter(|workload| {
            workload.each.is_none() && !matches!(workload.name, "lock" | "spawn")
        }) {
            let options = WorkloadOptions {
                duration: Duration::from_millis(50),
                workers: Some(2),
                sizes: vec![0, 100],
                ..WorkloadOptions::default()
            };
            let parts = (workload.run)(workload, &options).unwrap();
            assert!(!parts.is_empty());
            for part in parts {
                assert!(part.operations.iter().sum::<u64>() > 0, "{}: {part:?}", workload.name);
            }
        }
    }
}
