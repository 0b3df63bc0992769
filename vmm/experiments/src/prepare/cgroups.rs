//! `cgroups`: control groups of a run, and whether this host allows them.

use std::path::Path;

use super::{Guard, Preparation};
use crate::Usage;
use base::chain::chain;
use lab::host::cgroups::{CgroupTree, VmGroups};
use study::point::{HostKernel, HostKind, Point};

/// What the points on a host need, each once.
pub(crate) fn needed(points: &[Point], host: HostKind) -> Vec<VmGroups> {
    each_once(points.iter().filter(|point| point.host == host))
}

fn each_once<'a>(points: impl IntoIterator<Item = &'a Point>) -> Vec<VmGroups> {
    let mut all: Vec<VmGroups> = Vec::new();
    for groups in points.into_iter().filter_map(VmGroups::of) {
        if !all.contains(&groups) {
            all.push(groups);
        }
    }
    all
}

/// The groups of the points, which are removed when the run ends.
pub(super) struct Groups;

impl Preparation for Groups {
    fn need(&self, point: &Point) -> Option<String> {
        point.cgroups.as_ref().map(|cgroups| format!("cgroups {cgroups}"))
    }

    fn jobs_obstacle(&self) -> &'static str {
        "jobs would share the groups"
    }

    fn check_emulated(&self, _: &[&Point], _: HostKernel) -> Result<(), Usage> {
        Ok(())
    }

    fn prepare_here(&self, points: &[&Point]) -> Result<Option<Box<dyn Guard>>, Usage> {
        let refused = |error| {
            let need = points.first().and_then(|point| self.need(point)).unwrap_or_default();
            let how = "it takes a delegated cgroup v2 with the controller cpu, or --host emulated";
            Usage(format!("{need}: {}; {how}", chain(&error)))
        };
        let tree = CgroupTree::make(&each_once(points.iter().copied())).map_err(refused)?;
        Ok(Some(Box::new(tree)))
    }
}

impl Guard for CgroupTree {
    fn cgroup_root(&self) -> Option<&Path> {
        Some(self.root())
    }
}
