//! How long cells may take.

use std::time::Duration;

use super::super::{
    point::{GuestKind, HostKind, Point},
    spec::Method,
};

/// Until an emulated host is up (measured: 5 to 10 s).
pub const EMULATED_HOST: Duration = Duration::from_secs(8);

/// A guess at a cell's time, its machine's start and end included (measured on two CPUs).
pub fn of_cell(point: &Point, method: &Method) -> Duration {
    let beside = match (point.guest, point.host) {
        (GuestKind::Payload, HostKind::Direct) => method.warm_up + Duration::from_millis(80),
        (GuestKind::Payload, HostKind::Emulated) => method.warm_up + Duration::from_millis(400),
        (GuestKind::Linux, HostKind::Direct) => method.warm_up + Duration::from_millis(800),
        (GuestKind::Linux, HostKind::Emulated) => method.warm_up + Duration::from_secs(5),
    };
    point.duration + beside
}
