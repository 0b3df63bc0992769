//! mmap and munmap: each changes the kernel's per-CPU counter of committed memory by more than its
//! batch.

use super::Workload;
use crate::{crew, mapping::Mapping};

/// Number of processes, as in the patch of 2011 that made the counter scale.
const PROCESSES: usize = 16;

pub const WORKLOAD: Workload = Workload {
    name: "mmap",
    about: "16 processes map 128 MiB each and unmap them without touching them",
    run: |workload, options| {
        let count = options.workers.unwrap_or(PROCESSES);
        crew::processes(workload, count, options).map(|part| vec![part])
    },
    each: Some(|options| Mapping::new(options.mib << 20).map(drop)),
};
