//! Prepares a host for the points of an experiment, and refuses needs that the host does not meet, before a
//! store exists: drivers of a schedule, and control groups.

pub mod driver;
mod pause_loop;
pub mod steal_time;

use crate::{
    Usage,
    doctor::{files::HostFiles, virtualization::KvmFacts},
    host::cgroups::{CgroupTree, VmGroups},
};
use base::chain::chain;
use kvm::KvmKind;
use study::point::{GuestKind, HostKernel, HostKind, Point};

/// Prepares this host for its points, and refuses needs that a host does not meet. A worker prepares the
/// emulated host with its `kernel`. Returns this host's control groups, removed on drop.
pub(crate) fn begin(
    points: &[Point],
    kernel: HostKernel,
    jobs: u32,
) -> Result<Option<CgroupTree>, Usage> {
    let on = |host| points.iter().filter(move |point| point.host == host);
    on(HostKind::Emulated).try_for_each(|point| {
        let kernel = point.host_kernel.unwrap_or(kernel);
        driver::check_emulated(point.driver, kernel)?;
        pause_loop::check_emulated(point.ple, kernel)
    })?;
    // A simulated host has any window.
    let measured = on(HostKind::Direct).filter(|point| point.guest != GuestKind::Sim);
    let named = measured.filter_map(|point| point.ple);
    pause_loop::check_here(named, || KvmFacts::read(&HostFiles::host(), KvmKind::detect()))?;
    if let Some(point) = on(HostKind::Direct).find(|point| !point.driver.is_user()) {
        let need = format!("driver {}", point.driver);
        check_jobs(jobs, &need, "a host has one BPF scheduler at a time")?;
        driver::check_here(point.driver)?;
    }
    let mut grouped = on(HostKind::Direct).filter_map(|point| point.cgroups.as_ref());
    let Some(need) = grouped.next().map(|cgroups| format!("cgroups {cgroups}")) else {
        return Ok(None);
    };
    check_jobs(jobs, &need, "jobs would share the groups")?;
    let tree = CgroupTree::create(&control_groups(points, HostKind::Direct)).map_err(|error| {
        let how = "it requires a delegated cgroup v2 with the cpu controller, or --host emulated";
        Usage(format!("{need}: {}; {how}", chain(&error)))
    })?;
    Ok(Some(tree))
}

/// Refuses several jobs for a need that permits only one job.
fn check_jobs(jobs: u32, need: &str, obstacle: &str) -> Result<(), Usage> {
    if jobs > 1 {
        return Err(Usage(format!("{need} with --jobs {jobs}: {obstacle}; use --jobs 1")));
    }
    Ok(())
}

/// Returns the control groups of the points on a host, each once.
pub(crate) fn control_groups(points: &[Point], host: HostKind) -> Vec<VmGroups> {
    let mut unique: Vec<VmGroups> = Vec::new();
    for groups in points.iter().filter(|point| point.host == host).filter_map(VmGroups::for_point) {
        if !unique.contains(&groups) {
            unique.push(groups);
        }
    }
    unique
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
