//! The workloads: a file and a line each.

mod allocate;
mod futex;
mod kernel;
mod messaging;
mod mmap;
mod open_read_close;
pub mod spawn;

use std::io;

use crate::{options::Options, report::Part};

/// One workload.
#[derive(Debug)]
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// Measures it.
    pub run: fn(&Workload, &Options) -> io::Result<Vec<Part>>,
    /// One operation, of those whose workers are processes.
    pub each: Option<fn(&Options) -> io::Result<()>>,
}

/// All of them.
pub const ALL: &[Workload] = &[
    mmap::WORKLOAD,
    open_read_close::WORKLOAD,
    allocate::WORKLOAD,
    messaging::WORKLOAD,
    spawn::WORKLOAD,
    futex::WORKLOAD,
    kernel::WORKLOAD,
];

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// But those that start this program once more, and that of the kernel.
    #[test]
    fn every_workload_of_threads_gets_on() {
        for workload in
            ALL.iter().filter(|its| its.each.is_none() && !matches!(its.name, "lock" | "spawn"))
        {
            let options = Options {
                duration: Duration::from_millis(50),
                workers: Some(2),
                sizes: vec![0, 100],
                ..Options::default()
            };
            let parts = (workload.run)(workload, &options).unwrap();
            assert!(!parts.is_empty());
            for part in parts {
                assert!(part.operations.iter().sum::<u64>() > 0, "{}: {part:?}", workload.name);
            }
        }
    }
}
