//! QEMU's bug that corrupts the first CPU of the emulated host, made deterministic: guests boot on the other
//! CPUs while every CPU keeps restoring FPU state (`guest-kernel-config/host/QEMU-HFLAGS2.md`).

use super::emulated::shell;
use crate::prelude::*;

tests![
    // Before the workaround none of 65 boots succeeded on a calm machine, so one boot shows the bug.
    a_guest_boots_while_every_cpu_restores_fpu_state: boot_while_every_cpu_restores_fpu_state(1),
    a_guest_exits_while_every_cpu_restores_fpu_state => Long("20 s: 10^5 exits"),
    guests_boot_while_every_cpu_restores_fpu_state: boot_while_every_cpu_restores_fpu_state(10) => Long("a minute: ten boots"),
    a_host_without_a_spare_cpu_is_reported,
];

/// Seconds per boot on a busy machine. A boot takes 13 alone, and took more than 60 in parallel with guest
/// tests and another emulated host.
const TIMEOUT: u64 = 180;

/// Number of the guest's exits. The guest does nothing else, for about 3 s on a calm machine. Before the
/// workaround the guest or the emulated host died within the first second.
const EXITS: u32 = 100_000;

pub const BUSYBOX: &str = "/in/cache/busybox/busybox";

/// Makes every CPU restore FPU state. If the emulated host dies of this, it is not restarted.
fn with_restores(program: Program) -> Program {
    program.env("PVTICKET_EMULATED_INJECT", "fxrstor").env("PVTICKET_EMULATED_RESTARTS", "0")
}

/// On the first CPU that guests may use.
fn a_guest_exits_while_every_cpu_restores_fpu_state() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let code = [code::exits(EXITS), code::hello("done\n")].concat();
    let boot =
        Boot::on("emulated").with("--cpus 1 --policy rr --slots 1").kernel_code(&folder, &code)?;
    with_restores(boot.program()).limit(600).run()?.exits(0)?.stdout_is("done\n").map(drop)
}

/// Boots guests with 4 vCPUs, one after the other in one emulated host, which is not restarted.
fn boot_while_every_cpu_restores_fpu_state(boots: u32) -> anyhow::Result<()> {
    let script = format!(
        "i=0; while [ $i -lt {boots} ]; do i=$((i+1)); \
         /init boot --cpus 4 -- nproc || echo boot $i failed: $?; done"
    );
    let ran =
        with_restores(shell(&[], &script)).limit(u64::from(boots) * TIMEOUT).run()?.exits(0)?;
    let good = ran.text()?.lines().filter(|line| *line == "4").count();
    ensure!(good == boots as usize, "{good} of {boots} guests booted\n{}", ran.show());
    ran.stdout_is(&"4\n".repeat(boots as usize)).map(drop)
}

fn a_host_without_a_spare_cpu_is_reported() -> anyhow::Result<()> {
    let cpus =
        "/init doctor --json | BUSYBOX grep spared; BUSYBOX grep -c ^processor /proc/cpuinfo";
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let spared = shell(&[], cpus).run()?.exits(0)?;
    ensure!(spared.errors().is_empty(), "{}", spared.show());
    let none = shell(&[], cpus)
        .env("PVTICKET_EMULATED_SPARE", "0")
        .run()?
        .exits(0)?
        .one_line(&["none to keep free of guests"])?;
    let [reserved, unreserved] = [words(spared.text()?), words(none.text()?)];
    let count = |words: &[String]| words.last().and_then(|word| word.parse::<u32>().ok());
    ensure!(reserved[1] == "1," && unreserved[1] == "0,", "{reserved:?} {unreserved:?}");
    ensure!(
        count(&reserved) == count(&unreserved).map(|count| count + 1),
        "{reserved:?} {unreserved:?}"
    );
    Ok(())
}
