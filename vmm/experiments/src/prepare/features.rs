//! `sched-features`: features of the host's scheduler, and whether they can be switched.

use super::{Guard, Preparation};
use crate::Usage;
use base::sched_features::{FILE, OF_LINUX_6_1, OF_LINUX_7, SchedFeatures};
use lab::host::features::FeatureSwitch;
use study::point::{HostKernel, Point};

/// The features that points switch.
pub(super) struct Features;

/// Switches features of this host back, also if a worker was killed and could not.
#[derive(Debug)]
struct Restorer {
    switch: FeatureSwitch,
    asked: Vec<SchedFeatures>,
}

impl Guard for Restorer {}

impl Drop for Restorer {
    fn drop(&mut self) {
        self.asked.iter().for_each(|asked| self.switch.restore(asked));
    }
}

/// What these points switch, each once.
fn asked(points: &[&Point]) -> Vec<SchedFeatures> {
    let mut all: Vec<_> = points.iter().filter_map(|point| point.sched_features.clone()).collect();
    all.sort_by_key(ToString::to_string);
    all.dedup();
    all
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

impl Preparation for Features {
    fn need(&self, point: &Point) -> Option<String> {
        point.sched_features.as_ref().map(|features| format!("sched-features {features}"))
    }

    fn jobs_obstacle(&self) -> &'static str {
        "a host has one scheduler for all jobs"
    }

    fn check_emulated(&self, points: &[&Point], kernel: HostKernel) -> Result<(), Usage> {
        let available = match kernel {
            HostKernel::Linux6_1 => OF_LINUX_6_1,
            HostKernel::Linux7 => OF_LINUX_7,
        };
        let whose = format!("kernel {kernel} of the emulated host");
        asked(points).iter().try_for_each(|features| check_kernel(features, available, &whose))
    }

    fn prepare_here(&self, points: &[&Point]) -> Result<Option<Box<dyn Guard>>, Usage> {
        let asked = asked(points);
        let Some(first) = asked.first() else { return Ok(None) };
        let switch = FeatureSwitch::open().map_err(|error| {
            Usage(format!(
                "sched-features {first}: cannot open {FILE}: {error}; it takes root and debugfs, or \
                 --host emulated"
            ))
        })?;
        for features in &asked {
            check_kernel(features, switch.before(), "this host's kernel")?;
        }
        Ok(Some(Box::new(Restorer { switch, asked })))
    }
}
