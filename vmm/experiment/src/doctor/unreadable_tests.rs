//! Containers lack files of `/proc` and `/sys`, or have others in their places: such facts are unknown, never 0, "no" or
//! a flag that the CPU is "without" (G05 of tests/HISTORY.md).

use std::{fs, os::unix::fs::symlink};

use crate::doctor::{
    cpu::CpuFacts,
    files::{HostFiles, made_up},
    sched_ext::SchedExtFacts,
    system::SystemFacts,
    text::{NamedValue, cpu_rows, kvm_rows, sched_ext_rows, system_rows},
    virtualization::KvmFacts,
};
use kvm::KvmKind;

/// An Intel host with SMT, in a VM of Xen. Every file that the facts are read from.
const INTEL: [(&str, &str); 38] = [
    (
        "proc/cpuinfo",
        "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: A CPU\nmicrocode\t: 0x1\n\
         flags\t\t: fpu vmx x2apic hypervisor\n\nprocessor\t: 1\n",
    ),
    ("proc/stat", "cpu  100 0 100 700 0 0 0 100 7 0\n"),
    ("proc/meminfo", "MemTotal:       1024 kB\n"),
    ("proc/sys/kernel/osrelease", "6.12.0\n"),
    ("proc/sys/kernel/version", "#1 SMP PREEMPT_DYNAMIC Debian\n"),
    ("proc/self/status", "CapEff:\t000001ffffffffff\n"),
    ("proc/self/uid_map", "         0          0 4294967295\n"),
    ("sys/hypervisor/type", "xen\n"),
    ("sys/devices/system/cpu/online", "0-1\n"),
    ("sys/devices/system/cpu/smt/active", "1\n"),
    ("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0-1\n"),
    ("sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "0-1\n"),
    ("sys/devices/system/cpu/cpu0/topology/physical_package_id", "0\n"),
    ("sys/devices/system/cpu/cpu1/topology/physical_package_id", "0\n"),
    ("sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_list", "0-1\n"),
    ("sys/devices/system/cpu/cpu1/cache/index3/shared_cpu_list", "0-1\n"),
    ("sys/devices/system/node/node0/cpulist", "0-1\n"),
    ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n"),
    ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance\n"),
    ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
    ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
    ("sys/kernel/sched_ext/state", "disabled\n"),
    ("sys/kernel/sched_ext/root/ops", "none\n"),
    ("sys/kernel/btf/vmlinux", "BTF"),
    ("sys/module/kvm/parameters/halt_poll_ns", "200000\n"),
    ("sys/module/kvm_intel/parameters/ple_gap", "128\n"),
    ("sys/module/kvm_intel/parameters/ple_window", "4096\n"),
    ("sys/module/kvm_intel/parameters/ple_window_grow", "2\n"),
    ("sys/module/kvm_intel/parameters/ple_window_shrink", "1\n"),
    ("sys/module/kvm_intel/parameters/ple_window_max", "4294967295\n"),
    ("sys/module/kvm_intel/parameters/enable_apicv", "Y\n"),
    ("sys/module/kvm_intel/parameters/enable_ipiv", "Y\n"),
    ("sys/module/kvm_intel/parameters/enable_device_posted_irqs", "Y\n"),
    ("sys/module/kvm_intel/parameters/ept", "Y\n"),
    ("sys/module/kvm_intel/parameters/vpid", "Y\n"),
    ("sys/module/kvm_intel/parameters/preemption_timer", "Y\n"),
    ("sys/module/kvm_intel/parameters/nested", "Y\n"),
    ("etc/group", "root:x:0:\n"),
];

/// Ways in which a file is of no use.
const FAULTS: [&str; 4] = ["missing", "empty", "unreadable", "garbage"];

fn rows(files: &HostFiles) -> Vec<NamedValue> {
    let cpu = CpuFacts::read(files, &[0, 1]);
    let mut rows = kvm_rows(&KvmFacts::read(files, KvmKind::Denied));
    rows.extend(cpu_rows(&cpu));
    rows.extend(system_rows(&SystemFacts::read(files), &cpu));
    rows.extend(sched_ext_rows(&SchedExtFacts::read(files)));
    rows
}

fn spoil(files: &HostFiles, path: &str, fault: &str) {
    let file = files.path(path);
    fs::remove_file(&file).unwrap();
    match fault {
        "empty" => fs::write(file, "").unwrap(),
        // Reading a loop fails for root, too.
        "unreadable" => symlink(&file, &file).unwrap(),
        "garbage" => fs::write(file, "\u{1b}[31m 99999999999999999999 \0 [no] : -\n").unwrap(),
        _ => {}
    }
}

/// The rows of the whole host are known: the table below tests something.
#[test]
fn an_intel_host_is_known() {
    let rows = rows(&made_up::host("whole", &INTEL));
    let row = |name: &str| {
        let found = rows.iter().find(|(row, _)| row == name);
        found.unwrap_or_else(|| panic!("no {name}: {rows:#?}")).1.as_str()
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
fn what_a_container_lacks_is_unknown() {
    // The kernel has no BTF then, and any bytes may be BTF.
    let is_a_fact = |path: &str, fault: &str| {
        path.ends_with("btf/vmlinux") && ["missing", "garbage"].contains(&fault)
    };
    let whole = rows(&made_up::host("whole-too", &INTEL));
    for fault in FAULTS {
        for (path, _) in INTEL {
            let files = made_up::host("spoilt", &INTEL);
            spoil(&files, path, fault);
            for (name, value) in rows(&files) {
                let before = whole.iter().find(|(row, _)| *row == name);
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

/// All of them at once, as in a container without `/proc` and `/sys`.
#[test]
fn a_host_without_files_is_unknown() {
    for (name, value) in rows(&made_up::host("none-at-all", &[])) {
        let is_told = ["kind", "CPUs", "CPUs by default"].contains(&name.as_str());
        assert!(is_told || value.contains("unknown"), "{name} {value}");
    }
}
