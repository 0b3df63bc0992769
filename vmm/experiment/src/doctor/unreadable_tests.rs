//! Containers lack files of `/proc` and `/sys`, or have other files in their places. Facts from such files are
//! unknown, never 0, "no" or a flag that the CPU is "without" (G05 of tests/HISTORY.md).

use std::{fs, os::unix::fs::symlink};

use crate::doctor::{
    cpu::CpuFacts,
    files::{HostFiles, mock},
    sched_ext::SchedExtFacts,
    system::SystemFacts,
    text::{NamedValue, cpu_rows, kvm_rows, sched_ext_rows, system_rows},
    virtualization::KvmFacts,
};
use kvm::KvmKind;

/// An Intel host with SMT, in a Xen VM: every file that the facts are read from.
fn intel() -> Vec<(&'static str, &'static str)> {
    let files = include_str!("unreadable_tests.txt").split("== ").skip(1);
    files.map(|file| file.split_once('\n').unwrap()).collect()
}

/// Ways in which a file is unusable.
const FAULTS: [&str; 4] = ["missing", "empty", "unreadable", "garbage"];

fn rows(files: &HostFiles) -> Vec<NamedValue> {
    let cpu = CpuFacts::read(files, &[0, 1]);
    let mut rows = kvm_rows(&KvmFacts::read(files, KvmKind::Denied));
    rows.extend(cpu_rows(&cpu));
    rows.extend(system_rows(&SystemFacts::read(files), &cpu));
    rows.extend(sched_ext_rows(&SchedExtFacts::read(files)));
    rows
}

fn damage(files: &HostFiles, path: &str, fault: &str) {
    let file = files.path(path);
    fs::remove_file(&file).unwrap();
    match fault {
        "empty" => fs::write(file, "").unwrap(),
        // Reading a loop of links fails for root, too.
        "unreadable" => symlink(&file, &file).unwrap(),
        "garbage" => fs::write(file, "\u{1b}[31m 99999999999999999999 \0 [no] : -\n").unwrap(),
        _ => {}
    }
}

/// All rows of the complete host are known, so that the next test is meaningful.
#[test]
fn intel_host_has_no_unknown_facts() {
    let rows = rows(&mock::host("whole", &intel()));
    let row = |name: &str| {
        let entry = rows.iter().find(|(row, _)| row == name);
        entry.unwrap_or_else(|| panic!("no {name}: {rows:#?}")).1.as_str()
    };
    assert!(rows.iter().all(|(_, value)| !value.contains("unknown")), "{rows:#?}");
    assert_eq!(row("module"), "kvm_intel");
    assert!(
        row("pause-loop exiting").starts_with("yes: ple_gap 128 ple_window 4096 "),
        "{rows:#?}"
    );
    let switches = "enable_apicv yes, enable_device_posted_irqs yes, enable_ipiv yes, ept yes, \
                    preemption_timer yes, vpid yes";
    assert_eq!(row("switches"), switches);
    assert_eq!((row("nested guests"), row("usable")), ("yes", "yes"));
    assert_eq!(row("flags"), "hypervisor vmx x2apic");
}

#[test]
fn unreadable_files_make_facts_unknown() {
    // A kernel without the file has no BTF, and any bytes may be BTF.
    let is_a_fact = |path: &str, fault: &str| {
        path.ends_with("btf/vmlinux") && ["missing", "garbage"].contains(&fault)
    };
    let complete = rows(&mock::host("complete", &intel()));
    for fault in FAULTS {
        for (path, _) in intel() {
            let files = mock::host("spoilt", &intel());
            damage(&files, path, fault);
            for (name, value) in rows(&files) {
                let before = complete.iter().find(|(row, _)| *row == name);
                let before: Vec<&str> =
                    before.map_or_else(Vec::new, |(_, value)| value.split([' ', ',']).collect());
                let is_less = value.split([' ', ',']).all(|word| before.contains(&word));
                assert!(
                    is_less || value.contains("unknown") || is_a_fact(path, fault),
                    "{path} {fault}: {name} {value}, not {before:?}"
                );
            }
        }
    }
}

/// All files are missing, as in a container without `/proc` and `/sys`.
#[test]
fn host_without_files_is_unknown() {
    for (name, value) in rows(&mock::host("none-at-all", &[])) {
        let is_passed = ["kind", "CPUs", "CPUs by default"].contains(&name.as_str());
        assert!(is_passed || value.contains("unknown"), "{name} {value}");
    }
}
