//! Spinlocks in the guest under overcommit: correct, and counted alike on both sides.

use std::{fs, thread};

use anyhow::{Context, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;

use crate::{files, product::Boot, ran::Ran, tests};

tests![
    torture_of_native_locks,
    torture_of_pv_locks_with_backend_kvm,
    torture_of_pv_locks_with_backend_vmm,
    both_sides_count_alike_with_backend_vmm,
    both_sides_count_with_backend_kvm,
    a_guest_without_pv_halts_never,
];

/// Overcommit of 2: this many vCPUs,
const VCPUS: u32 = 4;
/// on this many CPUs.
const CPUS: usize = 2;

/// Runs it on the first [`CPUS`] CPUs that this process may use.
fn on_few_cpus(boot: Boot) -> anyhow::Result<Ran> {
    // A thread of its own: what it may use goes with it, and the child inherits it.
    let start = move || {
        let all = sched_getaffinity(None).context("sched_getaffinity")?;
        let mut few = CpuSet::new();
        (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)).take(CPUS).for_each(|cpu| few.set(cpu));
        sched_setaffinity(None, &few).context("sched_setaffinity")?;
        boot.start()
    };
    let running = thread::spawn(start).join().ok().context("the starting thread panicked")??;
    running.wait()
}

/// On few CPUs, of which the host's scheduler makes what it will.
fn torture(pv: &str) -> anyhow::Result<()> {
    torture_of(Boot::direct().pv(pv))
}

/// Twice as many writers as vCPUs; the guest ends by itself with the verdict on its console.
pub fn torture_of(boot: Boot) -> anyhow::Result<()> {
    let writers = 2 * VCPUS;
    let parameters = format!(
        "locktorture.torture_type=spin_lock locktorture.nwriters_stress={writers} \
         locktorture.stat_interval=1 locktorture.shutdown_secs=4 locktorture.verbose=0"
    );
    let boot = boot.cpus(VCPUS).append(&parameters).command(["sleep", "600"]);
    let ran = on_few_cpus(boot)?.exits(0)?;
    let log = ran.errors();
    ensure!(log.contains("End of test: SUCCESS"), "no success\n{}", ran.show());
    ensure!(!log.contains('!'), "the torture complains\n{}", ran.show());
    let last = log
        .lines()
        .rfind(|line| line.contains("Writes:"))
        .with_context(|| format!("no figures\n{}", ran.show()))?;
    ensure!(last.contains("Fail: 0"), "failures: {last}");
    let total = last
        .split_once("Total:")
        .and_then(|(_, rest)| rest.split_whitespace().next()?.parse::<u64>().ok());
    ensure!(total > Some(0), "the lock was never taken: {last}");
    Ok(())
}

fn torture_of_native_locks() -> anyhow::Result<()> {
    torture("off")
}

fn torture_of_pv_locks_with_backend_kvm() -> anyhow::Result<()> {
    torture("kvm")
}

fn torture_of_pv_locks_with_backend_vmm() -> anyhow::Result<()> {
    torture("vmm")
}

/// One overcommitted benchmark of locks: its result, and the counters of both sides.
struct Counted {
    bench: Value,
    guest: Value,
    stats: Value,
}

impl Counted {
    fn run(pv: &str) -> anyhow::Result<Self> {
        let folder = files::scratch()?;
        let file = folder.path().join("stats");
        let script = "lockbench --seconds 2 --critical 500 && lockstats";
        let ran = on_few_cpus(Boot::direct().cpus(VCPUS).pv(pv).stats(&file).script(script))?;
        let ran = ran.exits(0)?;
        let mut lines = ran.text()?.lines().map(serde_json::from_str);
        let mut line = || lines.next().and_then(Result::ok).with_context(|| ran.show());
        let (bench, guest) = (line()?, line()?);
        let stats = serde_json::from_slice(&fs::read(&file).context("no --stats file")?)?;
        let counted = Self { bench, guest, stats };
        counted.bench_is_sound()?;
        Ok(counted)
    }

    fn bench_is_sound(&self) -> anyhow::Result<()> {
        let bench = &self.bench;
        ensure!(bench["violations"] == 0, "mutual exclusion failed: {bench}");
        let operations = bench["operations"].as_array().context("no operations")?;
        ensure!(operations.len() == VCPUS as usize, "not every CPU took part: {bench}");
        ensure!(operations.iter().any(|count| *count != 0), "no operations: {bench}");
        Ok(())
    }

    fn guest(&self, name: &str) -> anyhow::Result<u64> {
        number(&self.guest, name)
    }

    /// The VMM's own counter at the moment at which the guest read its own.
    fn vmm(&self, name: &str) -> anyhow::Result<u64> {
        number(&self.stats["vmm_when_guest_read_its_own"]["total"], name)
    }

    fn kvm(&self, name: &str) -> anyhow::Result<u64> {
        number(&self.stats["kvm"], name)
    }
}

fn number(object: &Value, name: &str) -> anyhow::Result<u64> {
    object[name].as_u64().with_context(|| format!("no {name} in {object}"))
}

fn both_sides_count_alike_with_backend_vmm() -> anyhow::Result<()> {
    let counted = Counted::run("vmm")?;
    ensure!(counted.guest["backend"] == "vmm", "backend: {}", counted.guest);
    for (guest, vmm) in [("halted_irq_off", "lock_spinning"), ("kicked", "unlock_kick")] {
        let (guests, vmms) = (counted.guest(guest)?, counted.vmm(vmm)?);
        ensure!(guests > 0, "no {guest} under overcommit: {}", counted.guest);
        ensure!(
            guests == vmms,
            "the guest counts {guests} {guest}, the VMM {vmms} {vmm}\n{}\n{:#}",
            counted.guest,
            counted.stats
        );
    }
    ensure!(counted.vmm("parked")? > 0, "no vCPU was ever parked: {:#}", counted.stats);
    Ok(())
}

fn both_sides_count_with_backend_kvm() -> anyhow::Result<()> {
    let counted = Counted::run("kvm")?;
    ensure!(counted.guest["backend"] == "kvm", "backend: {}", counted.guest);
    let halted = counted.guest("halted_irq_off")? + counted.guest("halted_irq_on")?;
    let kicked = counted.guest("kicked")?;
    ensure!(halted > 0 && kicked > 0, "no halts or kicks: {}", counted.guest);
    // KVM counts halts and calls for other reasons too: idle CPUs, for one.
    let (calls, halts) = (counted.kvm("hypercalls")?, counted.kvm("halt_exits")?);
    ensure!(calls >= kicked, "KVM saw {calls} calls, the guest made {kicked} kicks");
    ensure!(halts >= halted, "KVM saw {halts} halts, the guest's waiters made {halted}");
    for name in ["lock_spinning", "unlock_kick"] {
        let count = number(&counted.stats["vmm"]["total"], name)?;
        ensure!(count == 0, "the VMM served {count} {name} of backend kvm");
    }
    Ok(())
}

fn a_guest_without_pv_halts_never() -> anyhow::Result<()> {
    let counted = Counted::run("off")?;
    ensure!(counted.guest["backend"] == "off", "backend: {}", counted.guest);
    for name in ["halted_irq_off", "halted_irq_on", "kicked"] {
        ensure!(counted.guest(name)? == 0, "{name} without PV: {}", counted.guest);
    }
    for name in ["lock_spinning", "unlock_kick"] {
        let count = number(&counted.stats["vmm"]["total"], name)?;
        ensure!(count == 0, "the VMM served {count} {name} without PV");
    }
    Ok(())
}
