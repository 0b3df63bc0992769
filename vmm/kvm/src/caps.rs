//! Capabilities of the host's KVM.

use std::collections::BTreeMap;

use kvm_bindings::KVM_CAP_BINARY_STATS_FD;
use kvm_ioctls::Cap;
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
        Ok(Self { api_version: kvm.get_api_version(), max_vcpus: kvm.get_max_vcpus(), features })
    }
}
