//! Many vCPUs on two and four slots under the BPF scheduler: nothing stalls, and every slice is accounted
//! for. `PVTICKET_TEST_LONG=SECONDS` sets the duration of the last schedule.

use std::env;

use super::{
    bpf::STATE,
    bpf_policies::{is_complete, slots_of},
    emulated::shell,
};
use crate::prelude::*;

kernel_7::tests![slots_and_machines_share_without_a_stall => Long("150 s: four loads on up to four slots")];

/// Variable with the seconds of the last schedule.
const LONG: &str = "PVTICKET_TEST_LONG";

/// VMs of equal size on some slots.
struct Load {
    slots: u32,
    machines: u32,
    vcpus: u32,
    policy: &'static str,
    /// `--pv` of the guests.
    pv: &'static str,
}

const LOADS: [Load; 4] = [
    Load { slots: 2, machines: 1, vcpus: 8, policy: "deferred", pv: "off" },
    Load { slots: 4, machines: 1, vcpus: 8, policy: "deferred", pv: "vmm" },
    Load { slots: 4, machines: 2, vcpus: 4, policy: "fair:1,3", pv: "kvm" },
    Load { slots: 4, machines: 2, vcpus: 4, policy: "deferred", pv: "kvm" },
];

impl Load {
    fn command(&self, seconds: u64) -> String {
        let Self { slots, machines, vcpus, policy, pv } = self;
        format!(
            "/init boot --driver bpf --cpus {vcpus} --slots {slots} --vms {machines} --policy {policy} --pv {pv} \
             --stats /tmp/stats -- lockbench --seconds {seconds} && echo stats && BUSYBOX cat /tmp/stats && \
             echo end; "
        )
    }

    /// Checks the command's output, and prints a row.
    fn check(&self, output: &str, seconds: u64) -> anyhow::Result<()> {
        let Self { slots, machines, vcpus, policy, .. } = self;
        let (benches, stats) =
            output.split_once("stats\n").with_context(|| format!("no stats: {output}"))?;
        let mut least = u64::MAX;
        let mut operations = Vec::new();
        for line in benches.lines() {
            let bench: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
            ensure!(bench["violations"] == 0, "{bench}");
            let counts = each_operations(&bench);
            ensure!(counts.len() as u64 == u64::from(*vcpus), "{bench}");
            least = counts.iter().copied().fold(least, u64::min);
            operations.push(counts.iter().sum::<u64>());
        }
        ensure!(operations.len() as u64 == u64::from(*machines), "{output}");
        let stats: Value = serde_json::from_str(stats).with_context(|| stats.to_owned())?;
        let schedule = &stats["schedule"];
        is_complete(schedule)?;
        ensure!(schedule["ended"].is_null(), "{schedule}");
        let log =
            schedule["account"]["preemptions_one_by_one"].as_array().context("no preemptions")?;
        let moved =
            (0..u64::from(machines * vcpus)).filter(|vcpu| slots_of(log, *vcpu).len() > 1).count();
        let longest =
            log.iter().filter_map(|preemption| preemption["off_ns"].as_u64()).max().unwrap_or(0);
        println!(
            "{slots} slots, {machines} x {vcpus} vCPUs, {policy}, {seconds} s: {} slices, {} lost, {} forced, {moved} \
             vCPUs moved, longest off {} ms, operations {operations:?}, least of a vCPU {least}",
            schedule["turns"],
            schedule["lost"],
            schedule["forced"],
            longest / 1_000_000,
        );
        expect_usually!(least > 0, "a vCPU got nowhere: {operations:?}");
        expect_usually!(moved > 0, "no vCPU moves: {schedule}");
        // The kernel ends a scheduler after a stall of 30 s.
        ensure!(longest < 20_000_000_000, "a vCPU was off for {longest} ns");
        Ok(())
    }
}

fn slots_and_machines_share_without_a_stall() -> anyhow::Result<()> {
    let long = env::var(LONG).ok().map(|text| text.parse::<u64>().context(LONG)).transpose()?;
    let last = LOADS.len() - 1;
    let seconds = |ix| if ix == last { long.unwrap_or(3) } else { 2 };
    let script: String =
        LOADS.iter().enumerate().map(|(ix, load)| load.command(seconds(ix))).collect();
    let shell = shell(&["--host-kernel", "7", "--cpus", "4"], &format!("{script}{STATE}"));
    let ran = shell.limit(400 + 3 * long.unwrap_or(0)).run()?.exits(0)?;
    let text = ran.text()?;
    let parts: Vec<&str> = text.split("end\n").collect();
    ensure!(parts.len() == LOADS.len() + 1 && parts[LOADS.len()] == "disabled\n", "{}", ran.show());
    LOADS
        .iter()
        .zip(parts)
        .enumerate()
        .try_for_each(|(ix, (load, output))| load.check(output, seconds(ix)))
}
