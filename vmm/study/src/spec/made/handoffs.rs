//! Measures the gain from each option for cheaper handoffs: with the payload under blind preemption,
//! and at 1x, where the option must cost nothing.

use std::time::Duration;

use crate::spec::SpecText;

/// The overcommit ratios.
const RATIOS: [usize; 2] = [1, 2];

/// Length of one window.
const WINDOW: Duration = Duration::from_millis(300);

/// The spec: native and PV ticketlocks under `rr`, with each of the handoff options.
pub fn spec(slots: usize, rounds: u32, seed: u64) -> String {
    let queue = format!("queue:{slots}");
    let mut spec = SpecText::default();
    spec.text("policies", ["rr"])
        .one("slots", slots)
        .list("vcpus", RATIOS.map(|ratio| ratio * slots))
        .text("handoffs", ["none", "far:2", "adapt", "claim", "fuse", "claim+fuse", &queue])
        .one("repetitions", rounds)
        .one("seconds", WINDOW.as_secs_f64())
        .one("seeds", seed);
    spec.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        point::HostKind,
        spec::{Experiment, Setting},
    };
    use base::backend::PvBackend;

    #[test]
    fn every_option_is_compared_once_and_so_is_the_native_lock() {
        let cpus = "0-1".parse().unwrap();
        let place = |_: &str, _, _| Ok(HostKind::Direct);
        let setting = Setting::new(&cpus, &place);
        let points = Experiment::parse(&spec(2, 3, 1), "handoffs", &setting).unwrap().points;
        assert_eq!(points.len(), 2 * 8);
        assert_eq!(points[0].backend, PvBackend::Off);
        assert!(points.iter().all(|point| point.policy.name() == "rr"));
    }
}
