//! Estimates the time that cells take.

use std::time::Duration;

use study::{
    guest::workload::GuestWorkload,
    point::{GuestKind, HostKind, Point},
    spec::Method,
};

/// Boot time of an emulated host (measured: 5 to 10 s).
pub const EMULATED_HOST: Duration = Duration::from_secs(8);

/// Estimates a cell's time, including its machine's start and end (measured on two CPUs).
pub fn of_cell(point: &Point, method: &Method) -> Duration {
    let overhead = match (point.guest, point.host) {
        // A simulated second has about a million acquisitions, which take about 10 us each to simulate.
        (GuestKind::Sim, _) => (point.duration + method.warm_up) * 10,
        (GuestKind::Payload, HostKind::Direct) => method.warm_up + Duration::from_millis(80),
        (GuestKind::Payload, HostKind::Emulated) => method.warm_up + Duration::from_millis(400),
        (GuestKind::Linux, HostKind::Direct) => method.warm_up + Duration::from_millis(800),
        (GuestKind::Linux, HostKind::Emulated) => method.warm_up + Duration::from_secs(5),
    };
    // PostgreSQL's start, and its database.
    let database = match (point.guest_workload(), point.host) {
        (Some(GuestWorkload::Pgbench { scale, .. }), HostKind::Direct) => {
            Duration::from_secs(1) * (1 + scale)
        }
        (Some(GuestWorkload::Pgbench { scale, .. }), HostKind::Emulated) => {
            Duration::from_secs(10) * (1 + scale)
        }
        _ => Duration::ZERO,
    };
    point.duration + overhead + database
}
