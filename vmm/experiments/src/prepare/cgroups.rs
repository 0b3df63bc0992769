//! `cgroups`: control groups of a run, and whether this host allows them.

use crate::Usage;
use base::chain::chain;
use lab::host::cgroups::{CgroupTree, VmGroups};
use study::point::{HostKind, Point};

/// What the points on a host need, each once.
pub fn needed(points: &[Point], host: HostKind) -> Vec<VmGroups> {
    let host_points = points.iter().filter(|point| point.host == host);
    let mut all: Vec<VmGroups> = Vec::new();
    for groups in host_points.filter_map(VmGroups::of) {
        if !all.contains(&groups) {
            all.push(groups);
        }
    }
    all
}

/// Makes the groups of the points on this host, which are removed when the run ends, or refuses what
/// it does not allow. Those of the emulated host are made there: either of its kernels has them.
pub fn make(points: &[Point], jobs: u32) -> Result<Option<CgroupTree>, Usage> {
    let all = needed(points, HostKind::Direct);
    let text = first(points.iter().filter(|point| point.host == HostKind::Direct));
    let Some(text) = text else { return Ok(None) };
    if jobs > 1 {
        let reason = "jobs would share the groups; use --jobs 1";
        return Err(Usage(format!("cgroups {text} with --jobs {jobs}: {reason}")));
    }
    let refused = |error| {
        let how = "it takes a delegated cgroup v2 with the controller cpu, or --host emulated";
        Usage(format!("cgroups {text}: {}; {how}", chain(&error)))
    };
    CgroupTree::make(&all).map(Some).map_err(refused)
}

/// Refuses them in a sweep: the engine manages the groups of its tasks.
pub fn check_sweep(points: &[Point]) -> Result<(), Usage> {
    match first(points.iter()) {
        Some(text) => Err(Usage(format!(
            "cgroups {text} with --on: the groups of a task are its engine's; run without --on"
        ))),
        None => Ok(()),
    }
}

fn first<'a>(points: impl Iterator<Item = &'a Point>) -> Option<String> {
    points.filter_map(|point| point.cgroups.as_ref()).map(ToString::to_string).next()
}
