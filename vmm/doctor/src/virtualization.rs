//! The host's KVM, and its settings that influence measurements.

use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt};

use serde::Serialize;

use super::files::HostFiles;
use kvm::{KvmKind, caps::Capabilities, host::DEV_KVM};

/// Parameters that define a spinning guest: VMX's, then SVM's.
const PAUSE_LOOP: [&str; 4] =
    ["ple_gap", "ple_window", "pause_filter_count", "pause_filter_thresh"];

/// Facts about KVM.
#[derive(Debug, Clone, Serialize)]
pub struct KvmFacts {
    /// `hardware`, `software`, `absent` or `denied`.
    pub kind: &'static str,
    #[serde(skip)]
    pub(super) known: KvmKind,
    /// The vendor module: `kvm_intel`, `kvm_amd` or another.
    pub module: Option<String>,
    /// The group that may open `/dev/kvm`, if its mode allows one.
    pub group: Option<String>,
    /// Capabilities, if `/dev/kvm` can be opened.
    pub capabilities: Option<Capabilities>,
    /// How long KVM polls for a wake-up before a halted vCPU sleeps, in nanoseconds.
    pub halt_poll_ns: Option<u64>,
    /// Does the CPU exit from a guest that spins in a PAUSE loop, so that KVM can run another vCPU?
    pub pause_loop_exiting: Option<bool>,
    /// The thresholds of such a loop, by the module's parameter names, in cycles or PAUSEs.
    pub pause_loop: BTreeMap<String, u64>,
    /// Do interrupts reach guests without an exit (APICv, AVIC)?
    pub interrupt_virtualization: Option<bool>,
    /// May guests use VT-x or AMD-V themselves?
    pub nested: Option<bool>,
}

impl KvmFacts {
    /// Reads this host's settings, and queries its KVM if that can be opened.
    pub fn read(files: &HostFiles, known: KvmKind) -> Self {
        let module = vendor_module(files);
        let usable = known.runs_payload();
        let parameter = |name: &str| {
            let module = module.as_deref()?;
            Some(format!("/sys/module/{module}/parameters/{name}"))
        };
        let amd = module.as_deref() == Some("kvm_amd");
        Self {
            kind: known.name(),
            known,
            group: group(files),
            capabilities: usable.then(Capabilities::query).and_then(Result::ok),
            halt_poll_ns: files.number("/sys/module/kvm/parameters/halt_poll_ns"),
            pause_loop_exiting: parameter(if amd { "pause_filter_count" } else { "ple_gap" })
                .and_then(|path| files.flag(&path)),
            pause_loop: PAUSE_LOOP
                .into_iter()
                .filter_map(|name| Some((name.to_owned(), files.number(&parameter(name)?)?)))
                .collect(),
            interrupt_virtualization: parameter(if amd { "avic" } else { "enable_apicv" })
                .and_then(|path| files.flag(&path)),
            nested: parameter("nested").and_then(|path| files.flag(&path)),
            module,
        }
    }
}

/// `/sys/module/kvm_*`; built-in modules show there, too, if they have parameters.
fn vendor_module(files: &HostFiles) -> Option<String> {
    files.names("/sys/module").into_iter().find(|name| name.starts_with("kvm_"))
}

/// The name of the group of `/dev/kvm`, if its mode lets the group read and write.
fn group(files: &HostFiles) -> Option<String> {
    const GROUP_READ_WRITE: u32 = 0o060;
    let metadata = fs::metadata(DEV_KVM).ok()?;
    let allowed = metadata.mode() & GROUP_READ_WRITE == GROUP_READ_WRITE;
    allowed.then(|| name_of_group(&files.text("/etc/group")?, metadata.gid())).flatten()
}

fn name_of_group(groups: &str, gid: u32) -> Option<String> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(gid)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::made_up;

    #[test]
    fn settings_of_amd_and_intel_are_found() {
        let amd = made_up::host(
            "amd",
            &[
                ("sys/module/kvm/parameters/halt_poll_ns", "200000"),
                ("sys/module/kvm_amd/parameters/pause_filter_count", "3000"),
                ("sys/module/kvm_amd/parameters/avic", "N"),
                ("sys/module/kvm_amd/parameters/nested", "1"),
            ],
        );
        let facts = KvmFacts::read(&amd, KvmKind::Denied);
        assert_eq!(facts.kind, "denied");
        assert_eq!(facts.halt_poll_ns, Some(200_000));
        assert_eq!(facts.pause_loop_exiting, Some(true));
        assert_eq!(facts.pause_loop, [("pause_filter_count".to_owned(), 3000)].into());
        assert_eq!(facts.interrupt_virtualization, Some(false));
        assert_eq!(facts.nested, Some(true));
        let intel = made_up::host(
            "intel",
            &[
                ("sys/module/kvm_intel/parameters/ple_gap", "0"),
                ("sys/module/kvm_intel/parameters/enable_apicv", "Y"),
            ],
        );
        let facts = KvmFacts::read(&intel, KvmKind::Absent);
        assert_eq!(facts.pause_loop_exiting, Some(false));
        assert_eq!(facts.interrupt_virtualization, Some(true));
        assert_eq!((facts.nested, facts.halt_poll_ns), (None, None));
    }

    #[test]
    fn groups_have_names() {
        let groups = "root:x:0:\nkvm:x:104:me\n";
        assert_eq!(name_of_group(groups, 104).as_deref(), Some("kvm"));
        assert_eq!(name_of_group(groups, 5), None);
    }
}
