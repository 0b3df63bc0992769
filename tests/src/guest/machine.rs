//! The VM as the guest sees it: CPUs, memory, and the backend of its locks.

use crate::{facts, prelude::*};

tests![
    one_cpu_and_backend_vmm: guest_reports(1, "vmm", "PV ticketlocks on, backend vmm"),
    two_cpus_and_backend_vmm: guest_reports(2, "vmm", "PV ticketlocks on, backend vmm") => Long("3 s; with one and four CPUs in make test"),
    four_cpus_and_backend_vmm: guest_reports(4, "vmm", "PV ticketlocks on, backend vmm"),
    eight_cpus_and_backend_vmm: guest_reports(8, "vmm", "PV ticketlocks on, backend vmm") => Long("4 s; with one and four CPUs in make test"),
    four_cpus_and_backend_doorbell: guest_reports(4, "doorbell", "PV ticketlocks on, backend doorbell"),
    four_cpus_and_backend_kvm: guest_reports(4, "kvm", "PV ticketlocks on, backend kvm"),
    four_cpus_and_native_locks: guest_reports(4, "off", "native ticketlocks (PV off"),
    memory_of_128_mib: memory_is("128M", 128),
    memory_up_to_the_hole: memory_is("3G", 3 << 10) => Long("3 s; across the hole in make test"),
    memory_just_over_the_hole: memory_is("3200M", 3200) => Long("3 s; across the hole in make test"),
    memory_across_the_hole: memory_is("5G", 5 << 10),
    // Serial ports have no interrupts without an I/O APIC, and the first interrupt once killed the VM.
    without_an_io_apic: Boot::direct().with("--cpus 2 --append noapic").command(["cat"])
        .input(Input::Bytes(b"through\n".into())).run()?.exits(0)?.stdout_is("through\n").map(drop),
    one_cpu_by_nosmp: one_cpu_by("nosmp") => Long("2 s; without an I/O APIC in make test"),
    one_cpu_by_maxcpus_0: one_cpu_by("maxcpus=0") => Long("2 s; without an I/O APIC in make test"),
    without_kvms_clock: boots_with("no-kvmclock"),
    without_any_paravirtual_clock: boots_with("nopv") => Long("3 s; without KVM's clock in make test"),
    without_acpi,
    the_maximum_number_of_cpus => Quiet("13 to 70 s alone, beyond its limit beside others: 32 CPUs on two"),
];

/// Checks the guest kernel's report on its locks, and its count of CPUs.
fn guest_reports(cpus: u32, pv: &str, locks: &str) -> anyhow::Result<()> {
    let script = "nproc; grep -c ^processor /proc/cpuinfo; dmesg | grep 'pvticket:'";
    let ran =
        Boot::direct().with(format!("--cpus {cpus} --pv {pv}")).script(script).run()?.exits(0)?;
    let mut lines = ran.text()?.lines();
    for what in ["nproc", "/proc/cpuinfo"] {
        let count = lines.next().and_then(|line| line.parse().ok());
        ensure!(count == Some(cpus), "{what} is not {cpus}\n{}", ran.show());
    }
    ensure!(lines.any(|line| line.contains(locks)), "no {locks:?}\n{}", ran.show());
    Ok(())
}

/// Checks that the guest sees nearly all of the requested memory. The kernel takes a fixed part,
/// 1/64 for its page descriptors, and 64 MiB for bounce buffers if there is memory above 4 GiB.
fn memory_is(option: &str, mib: u64) -> anyhow::Result<()> {
    let kernel_mib = if mib > 3 << 10 { 24 + 64 } else { 24 };
    let boot =
        Boot::direct().with("--cpus 1").option("--mem", option).command(["cat", "/proc/meminfo"]);
    let ran = boot.run()?.exits(0)?;
    let total = ran
        .text()?
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok())
        .with_context(|| ran.show())?;
    let total = total >> 10;
    let least = mib - kernel_mib - mib / 50;
    ensure!((least..=mib).contains(&total), "MemTotal is {total} MiB of {mib} MiB");
    Ok(())
}

/// These parameters disable the I/O APIC, too.
fn one_cpu_by(parameter: &str) -> anyhow::Result<()> {
    let ran =
        Boot::direct().with("--cpus 2").option("--append", parameter).command(["nproc"]).run()?;
    ran.exits(0)?.stdout_is("1\n").map(drop)
}

/// A kernel with this parameter hung silently: no clock was left for TSC calibration.
fn boots_with(parameter: &str) -> anyhow::Result<()> {
    let script = "grep -o tsc_early_khz= /proc/cmdline";
    let ran = Boot::direct()
        .with("--cpus 1")
        .option("--append", parameter)
        .script(script)
        .run()?
        .exits(0)?;
    ran.stdout_is("tsc_early_khz=\n").map(drop)
}

/// Without ACPI our kernel finds one CPU; a line reports that.
fn without_acpi() -> anyhow::Result<()> {
    let ran =
        Boot::direct().with("--cpus 2 --append acpi=off").command(["nproc"]).run()?.exits(0)?;
    ran.stdout_is("1\n")?.one_line(&["the guest started only 1 of 2 vCPUs"]).map(drop)
}

/// The maximum number of CPUs. In an emulated host the last of them would take many minutes.
fn the_maximum_number_of_cpus() -> anyhow::Result<()> {
    // The emulated CPU kills most VMs with 64 CPUs while these start (10 of 11, "triple fault" of an AP; 0 of
    // 4 with 32).
    let cpus = if facts::is_emulated() { 32 } else { 128 };
    let ran = Boot::direct().with(format!("--cpus {cpus} --mem 1G")).command(["nproc"]).run()?;
    ran.exits(0)?.stdout_is(&format!("{cpus}\n")).map(drop)
}
