//! `sched-features`: features of the host's scheduler, and whether they can be switched.

use crate::Usage;
use base::sched_features::{FILE, OF_LINUX_6_1, OF_LINUX_7, SchedFeatures};
use lab::host::features::FeatureSwitch;
use study::point::{HostKernel, HostKind, Point};

/// Switches features of this host back when a run ends, also if a worker was killed and could not.
#[derive(Debug)]
pub struct Restorer {
    switch: FeatureSwitch,
    asked: Vec<SchedFeatures>,
}

impl Drop for Restorer {
    fn drop(&mut self) {
        self.asked.iter().for_each(|asked| self.switch.restore(asked));
    }
}

/// What the points on a host switch.
fn asked(points: &[Point], host: HostKind) -> Vec<SchedFeatures> {
    let host_points = points.iter().filter(|point| point.host == host);
    let mut all: Vec<SchedFeatures> =
        host_points.filter_map(|point| point.sched_features.clone()).collect();
    all.sort_by_key(ToString::to_string);
    all.dedup();
    all
}

/// Refuses features that a host does not have or does not let be switched; `kernel` is that of the
/// emulated host.
pub fn check(points: &[Point], kernel: HostKernel, jobs: u32) -> Result<Option<Restorer>, Usage> {
    let available = match kernel {
        HostKernel::Linux6_1 => OF_LINUX_6_1,
        HostKernel::Linux7 => OF_LINUX_7,
    };
    for features in asked(points, HostKind::Emulated) {
        check_kernel(&features, available, &format!("kernel {kernel} of the emulated host"))?;
    }
    let asked = asked(points, HostKind::Direct);
    let Some(first) = asked.first() else { return Ok(None) };
    if jobs > 1 {
        let reason = "a host has one scheduler for all jobs; use --jobs 1";
        return Err(Usage(format!("sched-features {first} with --jobs {jobs}: {reason}")));
    }
    let switch = FeatureSwitch::open().map_err(|error| {
        Usage(format!(
            "sched-features {first}: cannot open {FILE}: {error}; it takes root and debugfs, or \
             --host emulated"
        ))
    })?;
    for features in &asked {
        check_kernel(features, switch.before(), "this host's kernel")?;
    }
    Ok(Some(Restorer { switch, asked }))
}

fn check_kernel(features: &SchedFeatures, available: &str, whose: &str) -> Result<(), Usage> {
    match features.missing(available) {
        Some(name) => Err(Usage(format!(
            "sched-features {features}: {whose} has no feature {name}; it has {}",
            available.trim_end()
        ))),
        None => Ok(()),
    }
}

/// Refuses them in a sweep, whose tasks may share a node and its scheduler.
pub fn check_sweep(points: &[Point]) -> Result<(), Usage> {
    match points.iter().find_map(|point| point.sched_features.as_ref()) {
        Some(features) => Err(Usage(format!(
            "sched-features {features} with --on: tasks may share a node, which has one scheduler; run \
             without --on"
        ))),
        None => Ok(()),
    }
}
