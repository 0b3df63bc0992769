//! Drivers, which carry out a schedule.

use base::names;

use super::{PolicySpec, policy::InKernel};

/// Kind of driver.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DriverKind {
    /// This program, in user space. Supports all policies, recordings and replays.
    #[default]
    User,
    /// A BPF scheduler in the host's kernel (`sched_ext`, Linux 7.x).
    Bpf,
}

names!(
    DriverKind, "unknown driver '{}' (expected: user or bpf)":
    User "user", Bpf "bpf"
);

impl DriverKind {
    /// Whether this is the default driver. Stores omit it. Points with the policy `host` have it although it
    /// does not schedule them.
    pub fn is_user(&self) -> bool {
        *self == Self::User
    }

    /// Returns why the driver does not support this policy, or None if it does. `host`, which needs no
    /// driver, is accepted for [`Self::User`] only.
    pub fn obstacle(self, policy: &PolicySpec) -> Option<String> {
        let has = self == Self::User || policy.turn_rule().is_some();
        (!has).then(|| format!("it has the policies {}, not {policy}", InKernel::usages()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_says_which_policies_it_has() {
        let obstacle = |driver: DriverKind, policy: &str| driver.obstacle(&policy.parse().unwrap());
        for policy in ["rr", "gang", "replay:f", "deferred:look"] {
            assert_eq!(obstacle(DriverKind::User, policy), None, "{policy}");
        }
        assert_eq!(obstacle(DriverKind::Bpf, "rr"), None);
        assert_eq!(obstacle(DriverKind::Bpf, "deferred:ask,3ms"), None);
        for policy in ["host", "gang", "replay:f", "deferred:look", "point:critical", "host-cfs"] {
            let reason = obstacle(DriverKind::Bpf, policy).unwrap();
            assert!(
                reason.starts_with("it has the policies rr") && reason.ends_with(policy),
                "{reason}"
            );
        }
    }
}
