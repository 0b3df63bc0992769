//! The next steps for a host. Pure: maps facts to sentences.

use super::{Facts, GuestHost, tools::Tool};
use base::units::CpuList;
use emulated::QEMU;
use kvm::KvmKind;

/// Returns the next steps, most useful first; never empty.
pub fn next_steps(facts: &Facts, guests: &[GuestHost]) -> Vec<String> {
    let mut steps = Vec::new();
    steps.extend(missing(facts, guests));
    steps.extend(kvm(facts));
    if steps.is_empty() {
        steps.push("nothing is missing: run `make run`, or `pvticket boot` for a shell".into());
    }
    let others = facts.artifacts.iter().filter(|artifact| !artifact.needed);
    steps.extend(
        others.filter_map(|artifact| Some(format!("optional: {}", artifact.problem.as_ref()?))),
    );
    let obstacles = facts.sched_ext.obstacles();
    steps.extend(obstacles.iter().map(|what| format!("for schedulers in BPF (sched_ext): {what}")));
    steps.extend(measuring(facts));
    steps
}

/// Steps for missing parts of guests and builds.
fn missing(facts: &Facts, guests: &[GuestHost]) -> Vec<String> {
    let mut steps: Vec<String> =
        facts.cache.stranger.iter().map(|reason| shared_cache(reason)).collect();
    steps.extend(guests.iter().flat_map(|guest| guest.missing.clone()));
    let needed = facts.artifacts.iter().filter(|artifact| artifact.needed);
    steps.extend(needed.filter_map(|artifact| artifact.problem.clone()));
    // QEMU is not looked up in a cache that others can change.
    let is_refused = |tool: &Tool| tool.name == QEMU && facts.cache.stranger.is_some();
    let absent = facts.tools.iter().filter(|tool| tool.path.is_none() && tool.needed);
    let absent = absent.filter(|tool| !is_refused(tool));
    let tools: Vec<&str> = absent.map(|tool| tool.name).collect();
    if !tools.is_empty() {
        let (tools, setup) = (tools.join(", "), "sh guest-kernel-config/setup.sh");
        steps.push(format!("not found: {tools}. `{setup}` installs the required programs"));
    }
    steps.extend(old_qemu(facts));
    let mut steps_so_far = Vec::new();
    steps.retain(|step| {
        let new = !steps_so_far.contains(step);
        steps_so_far.push(step.clone());
        new
    });
    steps
}

/// Another user who can change the cache chooses which programs run as this user.
fn shared_cache(reason: &str) -> String {
    format!("other users can change the cache: {reason}; chown or chmod it, or set PVTICKET_CACHE")
}

/// QEMU before 8.1 may mistranslate code that another CPU is changing, so that guests, and the
/// emulated host itself, occasionally die (figures in guest-kernel-config/host/qemu.sh).
fn old_qemu(facts: &Facts) -> Option<String> {
    let version = facts.tools.iter().find(|tool| tool.name == QEMU)?.version.as_deref()?;
    let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
    let [major, minor] = [numbers.next()?, numbers.next()?];
    (facts.kvm.detected != KvmKind::Hardware && (major, minor) < (8, 1)).then(|| {
        format!(
            "for a steadier emulated host: QEMU 8.1 or newer instead of {version}; \
             on Debian 12 `pvticket setup host` fetches one"
        )
    })
}

fn kvm(facts: &Facts) -> Option<String> {
    let flag = |name: &str| facts.cpu.flags.get(name).copied().unwrap_or(false);
    let in_vm = "this host is a VM: enable nested virtualization for it on its host";
    match facts.kvm.detected {
        KvmKind::Hardware => None,
        KvmKind::Denied => Some(match &facts.kvm.group {
            Some(group) => {
                format!("for KVM without root: sudo usermod -aG {group} $USER, then log in again")
            }
            None => "for KVM without root: give /dev/kvm to a group \
                (sudo chgrp kvm /dev/kvm && sudo chmod 660 /dev/kvm) and join it"
                .into(),
        }),
        KvmKind::Absent if flag("vmx") => Some("for KVM: sudo modprobe kvm_intel".into()),
        KvmKind::Absent if flag("svm") => Some("for KVM: sudo modprobe kvm_amd".into()),
        KvmKind::Absent if facts.cpu.flags.is_empty() => {
            Some("for KVM: sudo modprobe kvm_intel or kvm_amd".into())
        }
        KvmKind::Absent if flag("hypervisor") => Some(format!("for KVM: {in_vm}")),
        KvmKind::Absent => {
            Some("for KVM: enable VT-x or AMD-V (SVM) in the firmware's settings".into())
        }
        KvmKind::Software if flag("hypervisor") => {
            Some(format!("for Linux guests at full speed: {in_vm}"))
        }
        KvmKind::Software => {
            Some("for Linux guests at full speed: use a host with VT-x or AMD-V".into())
        }
    }
}

/// Notes about settings that influence measurements. They are not errors.
fn measuring(facts: &Facts) -> Vec<String> {
    let mut notes = Vec::new();
    let used = facts.cpu.by_default.as_ref().map_or(0, |choice| choice.cpus.cpus().len());
    if facts.cpu.one_per_core.len() < used {
        notes.push(format!(
            "when measuring: hardware threads share cores; use one of each: --cpus {}",
            CpuList::ranges(&facts.cpu.one_per_core)
        ));
    }
    if let Some(online) = facts.cpu.online
        && facts.cpu.allowed.len() < online
    {
        notes.push(format!(
            "when measuring: only CPUs {} of {} may be used (taskset or a container's limit)",
            CpuList::ranges(&facts.cpu.allowed),
            online
        ));
    }
    if let Some(quota) = facts.cpu_quota {
        notes.push(format!(
            "when measuring: a CPU quota of this control group allows {quota:.2} CPUs' time and stops vCPUs in between: run \
             outside of it, or on fewer CPUs"
        ));
    }
    if facts.kvm.detected == KvmKind::Hardware
        && let Some(nanos @ 1..) = facts.kvm.halt_poll_ns
    {
        notes.push(format!(
            "when measuring halts: KVM polls {} us before a vCPU sleeps; without: \
             echo 0 | sudo tee /sys/module/kvm/parameters/halt_poll_ns",
            nanos / 1000
        ));
    }
    if facts.cpu.hypervisor.is_some() || facts.system.hypervisor_type.is_some() {
        notes.push(
            "when measuring: this host is a VM whose vCPUs are preempted at times: \
             trust only alternating runs, with their spread"
                .into(),
        );
    }
    notes
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::doctor::{
        confinement::ConfinementFacts,
        cpu::CpuFacts,
        sched_ext::SchedExtFacts,
        system::SystemFacts,
        tools::{Artifact, CacheFacts},
        virtualization::KvmFacts,
    };

    /// Facts of a host with this KVM and CPU; everything else is unknown.
    pub fn facts(kind: KvmKind, flags: &[&'static str]) -> Facts {
        let none = crate::doctor::files::HostFiles::below(std::path::Path::new("/nonexistent"));
        let mut kvm = KvmFacts::read(&none, KvmKind::Absent);
        kvm.detected = kind;
        kvm.group = Some("kvm".into());
        Facts {
            kvm,
            cpu: CpuFacts {
                flags: flags.iter().map(|flag| (*flag, true)).collect::<BTreeMap<_, _>>(),
                online: Some(4),
                smt: Some(false),
                unknown: Vec::new(),
                ..CpuFacts::read(&none, &[0, 1, 2, 3])
            },
            cpu_quota: None,
            increment: Default::default(),
            system: SystemFacts::read(&none),
            confinement: ConfinementFacts::read(),
            sched_ext: SchedExtFacts::read(&none),
            unobserved: None,
            no_yields: None,
            tools: Vec::new(),
            cache: CacheFacts::default(),
            artifacts: Vec::new(),
        }
    }

    fn first(kind: KvmKind, flags: &[&'static str]) -> String {
        next_steps(&facts(kind, flags), &[]).remove(0)
    }

    #[test]
    fn each_kvm_kind_has_advice() {
        assert!(first(KvmKind::Hardware, &["vmx"]).starts_with("nothing is missing"));
        assert!(first(KvmKind::Denied, &[]).contains("usermod -aG kvm"));
        assert!(first(KvmKind::Absent, &["vmx"]).contains("modprobe kvm_intel"));
        assert!(first(KvmKind::Absent, &["svm"]).contains("modprobe kvm_amd"));
        assert!(first(KvmKind::Absent, &["hypervisor"]).contains("nested"));
        assert!(first(KvmKind::Absent, &["x2apic"]).contains("firmware"));
        assert!(first(KvmKind::Absent, &[]).contains("kvm_intel or kvm_amd"), "unknown");
        assert!(first(KvmKind::Software, &["hypervisor"]).contains("nested"));
        assert!(first(KvmKind::Software, &[]).contains("VT-x or AMD-V"));
    }

    #[test]
    fn sched_ext_obstacles_are_reported() {
        let mut facts = facts(KvmKind::Hardware, &[]);
        let count_steps = |facts: &Facts| {
            let steps = next_steps(facts, &[]);
            steps.iter().filter(|step| step.contains("sched_ext")).count()
        };
        assert_eq!(count_steps(&facts), 1);
        facts.sched_ext = SchedExtFacts {
            supported: Some(true),
            state: Some("disabled".into()),
            scheduler: None,
            btf: Some(true),
            allowed: Some(true),
        };
        assert_eq!(count_steps(&facts), 0);
    }

    /// Regression (G12 of tests/HISTORY.md): only a run reported a quota.
    #[test]
    fn cpu_quota_is_reported_everywhere() {
        let mut facts = facts(KvmKind::Hardware, &[]);
        let texts = |facts: &Facts| {
            let next = next_steps(facts, &[]);
            let report =
                crate::doctor::DoctorReport { facts: facts.clone(), guests: Vec::new(), next };
            [report.to_string(), crate::doctor::brief::brief(&report), report.next.join("\n")]
        };
        assert!(texts(&facts).iter().all(|text| !text.contains("0.10")));
        facts.cpu_quota = Some(0.1);
        for text in texts(&facts) {
            assert!(text.contains("quota") && text.contains("0.10"), "{text}");
        }
    }

    #[test]
    fn old_qemu_is_reported_where_it_is_used() {
        let advice = |kind, version: &str| {
            let mut facts = facts(kind, &[]);
            let version = Some(version.to_owned());
            let (name, purpose, path) = (QEMU, "", Some("/usr/bin/qemu".into()));
            facts.tools = vec![Tool { name, purpose, needed: true, path, version }];
            next_steps(&facts, &[]).iter().any(|step| step.contains("QEMU 8.1 or newer"))
        };
        assert!(advice(KvmKind::Absent, "7.2.22") && advice(KvmKind::Software, "8.0.4"));
        assert!(!advice(KvmKind::Absent, "8.1.0") && !advice(KvmKind::Absent, "10.0.2"));
        assert!(!advice(KvmKind::Hardware, "7.2.22"));
    }

    #[test]
    fn missing_parts_come_first_and_once() {
        let mut facts = facts(KvmKind::Software, &[]);
        let problem = "no kernel: run `pvticket setup kernel`".to_owned();
        let artifact = |name, needed, problem: &str| Artifact {
            name,
            needed,
            path: None,
            problem: Some(problem.to_owned()),
        };
        facts.artifacts =
            vec![artifact("kernel", true, &problem), artifact("disk", false, "no disk: make disk")];
        let guests = [GuestHost {
            guest: "linux",
            host: "emulated",
            why: "",
            missing: vec![problem.clone()],
        }];
        let steps = next_steps(&facts, &guests);
        assert_eq!(steps[0], problem);
        assert_eq!(steps.iter().filter(|step| **step == problem).count(), 1);
        assert!(steps.contains(&"optional: no disk: make disk".to_owned()), "{steps:?}");
    }

    #[test]
    fn shared_cache_comes_first() {
        let mut facts = facts(KvmKind::Hardware, &[]);
        facts.cache.stranger = Some("everybody may write to /tmp/cache".into());
        let first = next_steps(&facts, &[]).remove(0);
        assert!(first.starts_with("other users can change the cache: everybody may"), "{first}");
    }

    #[test]
    fn settings_that_change_figures_are_reported() {
        let mut facts = facts(KvmKind::Hardware, &["svm"]);
        facts.kvm.halt_poll_ns = Some(200_000);
        facts.cpu.smt = Some(true);
        facts.cpu.one_per_core = vec![0, 1];
        facts.cpu.online = Some(8);
        let steps = next_steps(&facts, &[]).join("\n");
        assert!(steps.contains("--cpus 0-1"), "{steps}");
        assert!(steps.contains("0-3 of 8"), "{steps}");
        assert!(steps.contains("polls 200 us"), "{steps}");
    }
}
