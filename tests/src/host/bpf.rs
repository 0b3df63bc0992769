//! `--driver bpf` end to end, in an emulated host with a 7.x kernel: a Linux guest under a scheduler in the
//! host's kernel.

use std::fs;

use anyhow::{Context, ensure};
use serde_json::Value;

use super::{emulated::need_kernel_7, first_cpu::BUSYBOX};
use crate::{
    files,
    product::{Boot, pvticket},
    tests,
};

tests![
    a_guest_is_scheduled_by_the_hosts_kernel,
    two_machines_have_pages_of_their_own,
    a_killed_loader_leaves_nothing,
    what_the_driver_lacks_is_refused,
];

/// Four vCPUs on one slot, native locks.
fn boot(policy: &str) -> Boot {
    let boot = Boot::on("emulated").host_kernel("7").cpus(4).slots(1).pv("off").policy(policy);
    boot.driver("bpf")
}

/// What the scheduler did, and the guest's operations.
fn measured(boot: Boot) -> anyhow::Result<(Value, u64)> {
    let folder = files::scratch()?;
    let file = folder.path().join("stats");
    let ran = boot.stats(&file).command(["lockbench", "--seconds", "1"]).run()?.exits(0)?;
    let ran = ran.complains(&["schedule in the host's kernel: "])?;
    let bench: Value = serde_json::from_slice(&ran.stdout).with_context(|| ran.show())?;
    ensure!(bench["violations"] == 0, "{bench}");
    let operations = bench["operations"].as_array().into_iter().flatten().filter_map(Value::as_u64);
    let stats: Value = serde_json::from_slice(&fs::read(&file).context("no --stats file")?)?;
    Ok((stats["schedule"].clone(), operations.sum()))
}

fn a_guest_is_scheduled_by_the_hosts_kernel() -> anyhow::Result<()> {
    need_kernel_7()?;
    let (rr, collapsed) = measured(boot("rr"))?;
    let (deferred, kept) = measured(boot("deferred"))?;
    for account in [&rr, &deferred] {
        let sum =
            |names: &[&str]| names.iter().filter_map(|name| account[name].as_u64()).sum::<u64>();
        let ends = ["blocked", "out_of_locks", "blind", "forced", "taken", "unasked", "lost"];
        ensure!(account["turns"].as_u64() == Some(sum(&ends)), "turns are missing: {account}");
        ensure!(account["ended"].is_null(), "{account}");
    }
    ensure!(rr["blind"].as_u64() > Some(50) && rr["out_of_locks"] == 0, "{rr}");
    ensure!(deferred["out_of_locks"].as_u64() > Some(20) && deferred["blind"] == 0, "{deferred}");
    // 400 times as many in the probe; a busy machine is far from that.
    ensure!(kept > 5 * collapsed, "{kept} operations under deferred, {collapsed} under rr");
    Ok(())
}

/// PV guests halt in the VMM, too.
fn two_machines_have_pages_of_their_own() -> anyhow::Result<()> {
    need_kernel_7()?;
    let boot = Boot::on("emulated").host_kernel("7").cpus(2).slots(1).vms(2).pv("vmm");
    let boot = boot.policy("deferred").driver("bpf");
    let ran = boot.command(["lockbench", "--seconds", "0.5"]).run()?.exits(0)?;
    ensure!(
        String::from_utf8_lossy(&ran.stdout).matches("\"violations\":0,").count() == 2,
        "{}",
        ran.show()
    );
    ran.complains(&["schedule in the host's kernel: "]).map(drop)
}

/// While it runs a second one is refused; killed, it leaves its vCPUs to the kernel's own scheduler.
fn a_killed_loader_leaves_nothing() -> anyhow::Result<()> {
    need_kernel_7()?;
    let boot = "/init boot --cpus 2 --policy deferred --driver bpf";
    let state = format!("{BUSYBOX} cat /sys/kernel/sched_ext/state");
    let script = format!(
        "{boot} -- sh -c 'while :; do :; done' & \
         until {state} | {BUSYBOX} grep -q enabled; do {BUSYBOX} sleep 0.1; done; \
         {boot} -- true; echo second $?; kill -9 $!; wait $!; echo killed $?; \
         {BUSYBOX} sleep 1; {state}"
    );
    let words = ["emulate", "--host-kernel", "7", "--", BUSYBOX, "sh", "-c", &script];
    let ran = pvticket(words).limit(120).run()?.exits(0)?;
    let ran = ran.says("second 2\nkilled 137\ndisabled\n")?;
    ran.complains(&["--driver bpf: end the scheduler pvticket, which is loaded"]).map(drop)
}

fn what_the_driver_lacks_is_refused() -> anyhow::Result<()> {
    let refused = |words: &[&str], parts: &[&str]| {
        let boot = ["boot", "--host", "emulated", "--driver", "bpf"];
        let words = boot.iter().chain(words).chain(&["--", "true"]);
        pvticket(words.copied()).run()?.fails(2, parts)?.says("").map(drop)
    };
    refused(&["--host-kernel", "6.1", "--policy", "rr"], &["no sched_ext", "--host-kernel 7"])?;
    for policy in ["host", "fair", "gang", "lhp", "deferred:look"] {
        refused(&["--host-kernel", "7", "--policy", policy], &["rr and deferred", policy])?;
    }
    let record = ["--host-kernel", "7", "--policy", "rr", "--record", "f"];
    refused(&record, &["--record", "records nothing"])
}
