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
    pub fn refusal(self, policy: &PolicySpec) -> Option<String> {
        let fits = self == Self::User || policy.slice_rule().is_some();
        (!fits).then(|| format!("it supports the policies {}, not {policy}", InKernel::usages()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_reject_unsupported_policies() {
        let reason = |driver: DriverKind, policy: &str| driver.refusal(&policy.parse().unwrap());
        for policy in ["rr", "gang", "replay:f", "deferred:look"] {
            assert_eq!(reason(DriverKind::User, policy), None, "{policy}");
        }
        assert_eq!(reason(DriverKind::Bpf, "rr"), None);
        assert_eq!(reason(DriverKind::Bpf, "deferred:ask,3ms"), None);
        for policy in ["host", "gang", "replay:f", "deferred:look", "point:critical", "host-cfs"] {
            let text = reason(DriverKind::Bpf, policy).unwrap();
            assert!(
                text.starts_with("it supports the policies rr") && text.ends_with(policy),
                "{text}"
            );
        }
    }
}
