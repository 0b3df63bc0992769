//! What an experiment may ask of a guest: the systems of the lock library, the kernels that have
//! them, the workloads.

pub mod bench_report;
pub mod kernels;
pub mod systems;
pub mod workload;
