//! The workloads: each is one file and one line in the list.

mod allocate;
mod eventfd;
mod futex;
mod kernel;
mod messaging;
mod mmap;
mod open_read_close;
mod pgbench;
mod program;
mod shootdown;
pub mod spawn;

use std::io;

use crate::{options::WorkloadOptions, report::WorkloadPart};

#[derive(Debug)]
pub struct Workload {
    pub name: &'static str,
    pub about: &'static str,
    /// Runs and measures the workload.
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
    shootdown::WORKLOAD,
    kernel::WORKLOAD,
    pgbench::WORKLOAD,
    program::WORKLOAD,
];

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Whether each part of the workload completes an operation in a window of this length.
    fn makes_progress(workload: &Workload, duration: Duration) -> bool {
        let (workers, sizes) = (Some(2), vec![0, 100]);
        let options = WorkloadOptions { duration, workers, sizes, ..WorkloadOptions::default() };
        let parts = (workload.run)(workload, &options).unwrap();
        assert!(!parts.is_empty());
        parts.iter().all(|part| part.operations.iter().any(|count| *count > 0))
    }

    /// Excludes the workloads that start this program again or others, the kernel's own, and PostgreSQL's. On a busy
    /// host a short window may pass without a worker running: the last is 200 s long.
    #[test]
    fn every_thread_workload_makes_progress() {
        for workload in ALL.iter().filter(|workload| {
            workload.each.is_none()
                && !matches!(workload.name, "lock" | "pgbench" | "program" | "spawn")
        }) {
            let mut windows =
                [20, 200, 2_000, 20_000, 200_000].map(Duration::from_millis).into_iter();
            assert!(windows.any(|window| makes_progress(workload, window)), "{}", workload.name);
        }
    }
}
