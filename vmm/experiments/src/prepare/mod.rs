//! What prepares a host for the points of an experiment, and refuses what the host does not have: the drivers of a
//! schedule, control groups. A file each.

pub mod cgroups;
pub mod driver;

use std::{fmt::Debug, path::Path};

use crate::Usage;
use study::point::{HostKernel, HostKind, Point};

/// Something that some points need of their host besides KVM. [`begin`] asks for all of them before a store exists.
trait Preparation {
    /// What a point needs of it, as a message names it: `cgroups flat:2`. None: nothing.
    fn need(&self, point: &Point) -> Option<String>;

    /// Why jobs cannot have it at the same time.
    fn jobs_obstacle(&self) -> &'static str;

    /// Refuses what this kernel of the emulated host lacks of what these points need. There it is prepared by the worker.
    fn check_emulated(&self, points: &[&Point], kernel: HostKernel) -> Result<(), Usage>;

    /// Prepares this host for these points, until what is returned is dropped, or says what it lacks.
    fn prepare_here(&self, points: &[&Point]) -> Result<Option<Box<dyn Guard>>, Usage>;
}

/// A host that was prepared; dropping it gives back what it was before, also if a worker was killed and could not.
trait Guard: Debug {
    /// The group with the control groups, if they were made.
    fn cgroup_root(&self) -> Option<&Path> {
        None
    }
}

/// In the order in which they are prepared.
const ALL: [&dyn Preparation; 2] = [&driver::Drivers, &cgroups::Groups];

/// This host as long as it is prepared for a run.
#[derive(Debug, Default)]
pub struct Prepared(Vec<Box<dyn Guard>>);

impl Prepared {
    /// The group with the control groups of the cells on this host.
    pub(crate) fn cgroup_root(&self) -> Option<&Path> {
        self.0.iter().find_map(|guard| guard.cgroup_root())
    }
}

/// Prepares this host for the points on it, and refuses what a host lacks; `kernel` is that of the emulated host.
pub(crate) fn begin(points: &[Point], kernel: HostKernel, jobs: u32) -> Result<Prepared, Usage> {
    let mut prepared = Prepared::default();
    for preparation in ALL {
        let on = |host| {
            let on_host = points.iter().filter(move |point| point.host == host);
            on_host.filter(|point| preparation.need(point).is_some()).collect::<Vec<_>>()
        };
        let emulated = on(HostKind::Emulated);
        if !emulated.is_empty() {
            preparation.check_emulated(&emulated, kernel)?;
        }
        let direct = on(HostKind::Direct);
        let Some(need) = direct.first().and_then(|point| preparation.need(point)) else { continue };
        if jobs > 1 {
            let obstacle = preparation.jobs_obstacle();
            return Err(Usage(format!("{need} with --jobs {jobs}: {obstacle}; use --jobs 1")));
        }
        prepared.0.extend(preparation.prepare_here(&direct)?);
    }
    Ok(prepared)
}

#[cfg(test)]
mod tests {
    use super::*;
    use study::testing::experiment;

    #[test]
    fn jobs_share_no_control_groups() {
        let plain = Point { host: HostKind::Direct, ..experiment().points[0].clone() };
        let point = Point { cgroups: Some("per-vm".parse().unwrap()), ..plain };
        let Usage(error) = begin(&[point], HostKernel::Linux6_1, 2).unwrap_err();
        assert!(error.contains("cgroups per-vm with --jobs 2: jobs would share"), "{error}");
        assert!(error.ends_with("use --jobs 1"), "{error}");
    }
}
