//! Settings of guests in experiments: systems of the lock library, kernels that implement them,
//! and workloads.

pub mod bench_report;
pub mod kernels;
pub mod program;
pub mod systems;
pub mod workload;
