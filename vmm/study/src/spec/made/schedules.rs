//! `bench sched`: how much throughput each policy keeps, what an injected preemption costs, and how
//! precise the schedule itself is.

use std::time::Duration;

use super::rounds::Rounds;
use crate::{point::GuestKind, spec::SpecText};
use base::units::Nanos;

/// What to measure, and how.
#[derive(Debug)]
pub struct SchedPlan {
    /// Guest of the machines.
    pub guest: GuestKind,
    /// Number of slots.
    pub slots: u32,
    /// The time slice.
    pub slice: Nanos,
    /// How often and how long every point is measured.
    pub rounds: Rounds,
    /// Overcommit ratios.
    pub overcommit: Vec<u32>,
}

/// Contention before each window.
pub const WARM_UP: Duration = Duration::from_millis(100);

/// The policy that the others are compared with, and the one of the measurements at 1x.
pub const BASELINE: &str = "rr";

/// Policies under overcommit.
const POLICIES: [&str; 4] = [BASELINE, "deferred", "kick-boost", "directed-yield"];

/// Injecting policies: preemptions per second, and how long the vCPU is kept off its CPU.
const INJECTED: [&str; 2] = ["lhp:10,20ms", "lwp:10,20ms"];

impl SchedPlan {
    /// The specs, each with native and PV ticketlocks: the baseline and the injected preemptions at 1x,
    /// the policies under overcommit, and gangs of machines that are as wide as the slots.
    pub fn specs(&self) -> Vec<String> {
        let slots = self.slots;
        let crowded = self.overcommit.iter().map(|times| times * slots);
        let at_1x = [&[BASELINE][..], &INJECTED].concat();
        let mut specs = vec![self.spec(1, [slots], &at_1x), self.spec(1, crowded, &POLICIES)];
        specs.extend(self.overcommit.iter().map(|times| self.spec(*times, [slots], &["gang"])));
        specs
    }

    fn spec(&self, vms: u32, vcpus: impl IntoIterator<Item = u32>, policies: &[&str]) -> String {
        let mut spec = SpecText::default();
        spec.text("guests", [self.guest.name()])
            .one("slots", self.slots)
            .one("vms", vms)
            .list("vcpus", vcpus)
            .text("policies", policies)
            .text("slice", [self.slice]);
        self.rounds.put(&mut spec);
        spec.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        point::{HostKind, Point},
        spec::{Experiment, Setting},
    };

    #[test]
    fn every_policy_meets_both_locks_at_every_ratio() {
        let plan = SchedPlan {
            guest: GuestKind::Payload,
            slots: 2,
            slice: Nanos::millis(4),
            rounds: Rounds {
                count: 3,
                warm_up: WARM_UP,
                duration: Duration::from_millis(400),
                seed: 1,
            },
            overcommit: vec![2, 4],
        };
        let cpus = "0-1".parse().unwrap();
        let place = |_: &str, _, _| Ok(HostKind::Direct);
        let setting = Setting::new(&cpus, &place);
        let points: Vec<Point> = plan
            .specs()
            .iter()
            .flat_map(|spec| Experiment::parse(spec, "sched", &setting).unwrap().points)
            .collect();
        let at_1x = points.iter().filter(|point| point.overcommit() == 1.0).count();
        assert_eq!(at_1x, 2 * (1 + INJECTED.len()));
        assert_eq!(points.len(), at_1x + 2 * (POLICIES.len() + 1) * 2);
        let gang = points.iter().find(|point| point.policy.name() == "gang").unwrap();
        assert_eq!((gang.vms, gang.vcpus.get()), (2, 2), "gangs as wide as the slots");
    }
}
