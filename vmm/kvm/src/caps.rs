//! Capabilities of the host's KVM.

use std::collections::BTreeMap;

use kvm_bindings::KVM_CAP_BINARY_STATS_FD;
use kvm_ioctls::{Cap, Kvm};
use serde::Serialize;

use super::{KvmError, vm};

/// The relevant results of `KVM_CHECK_EXTENSION` (kvm/api.rst, 4.4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// `KVM_GET_API_VERSION`.
    pub api_version: i32,
    /// Maximum number of vCPUs per VM.
    pub max_vcpus: usize,
    /// Whether each capability is supported, keyed by name.
    pub features: BTreeMap<&'static str, bool>,
}

impl Capabilities {
    /// Queries the host's KVM.
    pub fn query() -> Result<Self, KvmError> {
        let kvm = vm::open()?;
        let features = [
            ("irqchip", Cap::Irqchip),
            ("irqfd", Cap::Irqfd),
            ("ioeventfd", Cap::Ioeventfd),
            ("signal_msi", Cap::SignalMsi),
            ("tsc_deadline_timer", Cap::TscDeadlineTimer),
            ("immediate_exit", Cap::ImmediateExit),
        ];
        let mut features: BTreeMap<_, _> =
            features.map(|(name, cap)| (name, kvm.check_extension(cap))).into();
        let statistics = kvm.check_extension_raw(KVM_CAP_BINARY_STATS_FD.into()) > 0;
        features.insert("binary_stats_fd", statistics);
        features.insert("msr_filter", has_msr_filter(&kvm));
        Ok(Self { api_version: kvm.get_api_version(), max_vcpus: kvm.get_max_vcpus(), features })
    }
}

/// Whether this host's KVM can pass a guest's accesses to an MSR to user space (Linux 5.10). False if it cannot be opened.
pub fn can_intercept_msrs() -> bool {
    vm::open().is_ok_and(|kvm| has_msr_filter(&kvm))
}

fn has_msr_filter(kvm: &Kvm) -> bool {
    [Cap::X86UserSpaceMsr, Cap::X86MsrFilter].into_iter().all(|cap| kvm.check_extension(cap))
}
