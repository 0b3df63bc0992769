//! The report in three lines.

use super::{DoctorReport, GuestHost};
use base::plural::count;
use kvm::KvmKind;

/// Describes the host, where guests run and why, and the next step.
pub fn brief(report: &DoctorReport) -> String {
    let next = next(report);
    format!("host:   {}\nguests: {}\nnext:   {next}\n", host(report), guests(&report.guests))
}

fn host(report: &DoctorReport) -> String {
    let (kvm, cpu, system) = (&report.facts.kvm, &report.facts.cpu, &report.facts.system);
    let kvm = match kvm.detected {
        KvmKind::Hardware => "KVM",
        KvmKind::Software => "KVM in software",
        KvmKind::Absent => "no KVM",
        KvmKind::Denied => "KVM without permission to open it",
    };
    let or_unknown = |fact: &Option<String>| fact.clone().unwrap_or_else(|| "unknown".to_owned());
    let quota = report.facts.cpu_quota.map(|quota| format!(" with a quota of {quota:.2}"));
    let cpus = format!("{}{}", count(cpu.allowed.len(), "CPU"), quota.unwrap_or_default());
    let is_vm = cpu.hypervisor.is_some() || system.hypervisor_type.is_some();
    let itself = if is_vm { "; a VM itself" } else { "" };
    format!(
        "{}, {cpus}, Linux {}, {kvm}{itself}",
        or_unknown(&cpu.model),
        or_unknown(&system.kernel)
    )
}

/// Describes where guests run. The reason is the first guest's, whose requirements are the highest.
fn guests(guests: &[GuestHost]) -> String {
    let Some(first) = guests.first() else { return "none".to_owned() };
    let name = |guest: &GuestHost| match guest.guest {
        "linux" => "Linux",
        _ => "ring-3 payload",
    };
    let place = |guest: &GuestHost| match guest.host {
        "direct" => "on this host",
        _ => "in the emulated host (QEMU)",
    };
    let others: Vec<&GuestHost> = guests.iter().filter(|guest| guest.host != first.host).collect();
    let same_host = guests.iter().filter(|guest| guest.host == first.host).map(name);
    let same_host = same_host.collect::<Vec<_>>().join(" and ");
    let others: String =
        others.iter().map(|guest| format!("{} {}; ", name(guest), place(guest))).collect();
    format!("{others}{same_host} {}: {}", place(first), first.why)
}

/// Returns the first step, and where to see the others.
fn next(report: &DoctorReport) -> String {
    let first = report.next.first().map_or("nothing is missing", String::as_str);
    let first = first.split(": run `make run`").next().unwrap_or(first);
    match report.next.len() {
        0 | 1 => format!("{first} (all facts: pvticket doctor)"),
        more => format!("{first} ({} more: pvticket doctor)", more - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::advice::{next_steps, tests::facts};

    fn report(kind: KvmKind, flags: &[&'static str], missing: &[&str]) -> DoctorReport {
        let missing: Vec<String> = missing.iter().map(|part| (*part).to_owned()).collect();
        let guest =
            |guest, host, reason| GuestHost { guest, host, why: reason, missing: missing.clone() };
        let guests = vec![
            guest("linux", "emulated", "software KVM cannot run guest kernels"),
            guest("payload", "direct", "ring-3 guests run on any KVM"),
        ];
        let facts = facts(kind, flags);
        let next = next_steps(&facts, &guests);
        DoctorReport { facts, guests, next }
    }

    #[test]
    fn brief_report_has_three_lines() {
        let text = brief(&report(KvmKind::Software, &["hypervisor"], &[]));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert_eq!(lines[0], "host:   unknown, 4 CPUs, Linux unknown, KVM in software");
        let guests = "guests: ring-3 payload on this host; Linux in the emulated host (QEMU): software \
                      KVM cannot run guest kernels";
        assert_eq!(lines[1], guests);
        assert!(
            lines[2].contains("nested virtualization")
                && lines[2].contains(" more: pvticket doctor)")
        );
    }

    #[test]
    fn guests_of_one_host_share_a_line() {
        let mut report = report(KvmKind::Hardware, &["svm"], &[]);
        for guest in &mut report.guests {
            (guest.host, guest.why) = ("direct", "the CPU has VT-x or AMD-V");
        }
        let text = brief(&report);
        let guests = "\nguests: Linux and ring-3 payload on this host: the CPU has VT-x or AMD-V\n";
        assert!(text.contains(guests), "{text}");
    }

    #[test]
    fn missing_part_is_the_next_step() {
        let text = brief(&report(KvmKind::Hardware, &["svm"], &["no kernel: make kernel"]));
        assert!(text.contains("\nnext:   no kernel: make kernel ("), "{text}");
        let text = brief(&report(KvmKind::Hardware, &["svm"], &[]));
        assert!(text.contains("\nnext:   nothing is missing ("), "{text}");
        assert!(!text.contains("make run"), "it is what shows this");
    }
}
