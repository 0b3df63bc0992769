//! Ends of a VM other than the exit of its command.

use crate::{files::STOCK_KERNEL, prelude::*};

tests![
    power_off: Boot::direct().command(["poweroff", "-f"]).run()?.exits(0).map(drop),
    reset_instead_of_an_exit_status: resets(Boot::direct()),
    panic_without_init,
    panic_of_a_stock_kernel,
    panic_before_there_is_a_console,
    // The kernel loads an empty interrupt table, and faults.
    resets_by_a_triple_fault: resets(Boot::direct().with("--append reboot=t")),
    // By the BIOS, by EFI, by the PCI reset register, by ACPI.
    resets_by_every_other_method: ["reboot=b", "reboot=e", "reboot=p", "reboot=a"].into_iter().try_for_each(|method| resets(Boot::direct().option("--append", method))) => Long("12 s: four boots; by a triple fault in make test"),
    // A halt accesses no device.
    halt_of_all_cpus: Boot::direct().with("--cpus 2").command(["halt", "-f"]).run()?.exits(0).map(drop),
    a_timeout_ends_it => Long("25 s; without a Linux guest in make test"),
    reboot_with_a_deaf_waiter_of_vmm: reboot_with_a_deaf_waiter("vmm"),
    reboot_with_a_deaf_waiter_of_doorbell: reboot_with_a_deaf_waiter("doorbell") => Long("5 s; with another backend in make test"),
    reboot_with_a_deaf_waiter_of_kvm: reboot_with_a_deaf_waiter("kvm") => Long("5 s; with another backend in make test"),
    signals_end_it,
    closed_output_ends_it,
];

/// The kernel finds no init in the user's RAM disk, and panics.
fn panic_without_init() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let initrd = files::put(&folder, "initrd", &files::cpio(&[]))?;
    let boot = Boot::direct()
        .option("--initrd", initrd)
        .with("--append rdinit=/no/such")
        .command(["true"]);
    boot.run()?
        .exits(1)?
        .stderr_has(&["pvticket: the guest's kernel panicked: No working init found"])
        .map(drop)
}

fn panic_of_a_stock_kernel() -> anyhow::Result<()> {
    let boot = Boot::direct()
        .option("--kernel", files::cached(STOCK_KERNEL)?)
        .with("--mem 1G")
        .script("echo c > /proc/sysrq-trigger; sleep 600");
    let reason = "pvticket: the guest's kernel panicked: sysrq triggered crash";
    boot.run()?.exits(1)?.stderr_has(&[reason]).map(drop)
}

/// The kernel runs out of memory and panics before it registers its console driver. It has not yet read
/// `panic=`, so it does not reset.
fn panic_before_there_is_a_console() -> anyhow::Result<()> {
    let mut running = Boot::direct().with("--append mem=6M").command(["true"]).start()?;
    running.wait_for_stderr("Kernel panic")?;
    running.signal(Signal::TERM)?;
    running.wait()?.exits(143).map(drop)
}

fn resets(boot: Boot) -> anyhow::Result<()> {
    let ran = boot.command(["reboot", "-f"]).run()?.exits(1)?;
    ran.stderr_has(&["pvticket: the guest reset", "exit status"]).map(drop)
}

fn a_timeout_ends_it() -> anyhow::Result<()> {
    let boot = Boot::direct().with("--cpus 1 --timeout 20").script("echo up; sleep 600");
    let ran = boot.run()?.exits(124)?.stdout_is("up\n")?;
    ran.one_line(&["after 20 s (--timeout): vCPU 0 "]).map(drop)
}

/// One CPU holds a lock; another, halted with interrupts off, waits for it. Only an NMI reaches that CPU, and
/// the kernel stops all CPUs before rebooting. The time limit allows for a slow emulated host; without the NMI
/// the VM never ends.
fn reboot_with_a_deaf_waiter(backend: &str) -> anyhow::Result<()> {
    let script = "echo 1 > /sys/kernel/debug/pvticket/deaf_waiter && reboot -f; echo no reboot";
    let boot = Boot::direct().with("--cpus 4").option("--pv", backend).script(script);
    boot.run()?.exits(1)?.stderr_has(&["pvticket: the guest reset"]).map(drop)
}

fn signals_end_it() -> anyhow::Result<()> {
    for (signal, status) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let boot =
            Boot::direct().with("--cpus 2").script("echo up; sleep 600").input(Input::Silence);
        let mut running = boot.start()?;
        running.wait_for_stdout("up\n")?;
        running.signal(signal)?;
        let ran = running.wait()?.exits(status)?;
        ensure!(ran.stderr.is_empty(), "{}", ran.show());
    }
    Ok(())
}

/// Like `pvticket boot -- yes | head`.
fn closed_output_ends_it() -> anyhow::Result<()> {
    let (read, write) = rustix::pipe::pipe()?;
    drop(read);
    Boot::direct().command(["yes"]).program().output(write).run()?.exits(141).map(drop)
}
