//! QEMU's fault that corrupts the first CPU of the emulated host, made certain: while every CPU
//! restores FPU state all the time, guests boot on the others (`guest-kernel-config/host/QEMU-HFLAGS2.md`).

use std::env;

use anyhow::{Context, ensure};

use crate::{process::Program, product::pvticket, tests};

tests![guests_boot_while_every_cpu_restores_fpu_state, a_host_without_a_cpu_to_spare_says_so];

/// How many guests boot, if not [`BOOTS`]: as it was, not one in 65 did.
const FEW: u32 = 10;
/// The variable that asks for more of them.
const BOOTS: &str = "PVTICKET_TEST_BOOTS";
/// Seconds for one of them on a busy machine.
const PATIENCE: u64 = 60;

/// `sh -c SCRIPT` in an emulated host.
fn emulate(script: &str) -> Program {
    const BUSYBOX: &str = "/in/cache/busybox/busybox";
    pvticket(["emulate", "--", BUSYBOX, "sh", "-c", script])
}

/// With 4 vCPUs each, one after the other in one emulated host, which is not replaced.
fn guests_boot_while_every_cpu_restores_fpu_state() -> anyhow::Result<()> {
    let boots = match env::var(BOOTS) {
        Ok(count) => count.parse().with_context(|| format!("{BOOTS}={count}"))?,
        Err(_) => FEW,
    };
    let script = format!(
        "i=0; while [ $i -lt {boots} ]; do i=$((i+1)); \
         /init boot --cpus 4 -- nproc || echo boot $i failed: $?; done"
    );
    let ran = emulate(&script)
        .env("PVTICKET_EMULATED_INJECT", "fxrstor")
        .env("PVTICKET_EMULATED_RESTARTS", "0")
        .limit(u64::from(boots) * PATIENCE)
        .run()?
        .exits(0)?;
    let good = ran.text()?.lines().filter(|line| *line == "4").count();
    ensure!(good == boots as usize, "{good} of {boots} guests booted\n{}", ran.show());
    ran.says(&"4\n".repeat(boots as usize)).map(drop)
}

fn a_host_without_a_cpu_to_spare_says_so() -> anyhow::Result<()> {
    let cpus = "/init doctor --json | grep spared; grep -c ^processor /proc/cpuinfo";
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let spared =
        emulate(&cpus.replace("grep", "/in/cache/busybox/busybox grep")).run()?.exits(0)?;
    ensure!(spared.errors().is_empty(), "{}", spared.show());
    let none = emulate(&cpus.replace("grep", "/in/cache/busybox/busybox grep"))
        .env("PVTICKET_EMULATED_SPARE", "0")
        .run()?
        .exits(0)?
        .one_line(&["none to keep free of guests"])?;
    let [with, without] = [words(spared.text()?), words(none.text()?)];
    let count = |words: &[String]| words.last().and_then(|word| word.parse::<u32>().ok());
    ensure!(with[1] == "1," && without[1] == "0,", "{with:?} {without:?}");
    ensure!(count(&with) == count(&without).map(|count| count + 1), "{with:?} {without:?}");
    Ok(())
}
