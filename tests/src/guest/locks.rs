//! Spinlocks in the guest under overcommit: correct, and with equal counts in guest and VMM.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::prelude::*;

tests![
    torture_of_native_locks: torture("off") => Long("6 s of locktorture; under other schedules in make test"),
    torture_of_pv_locks_with_backend_kvm: torture("kvm") => Long("6 s of locktorture; under other schedules in make test"),
    torture_of_pv_locks_with_backend_doorbell: torture("doorbell") => Long("6 s of locktorture; under other schedules in make test"),
    torture_of_pv_locks_with_backend_vmm: torture("vmm") => Long("6 s of locktorture; under other schedules in make test"),
    both_sides_count_alike_with_backend_vmm,
    kicks_with_backend_doorbell_do_not_reach_the_vmm: served_by_kvm("doorbell"),
    both_sides_count_with_backend_kvm: served_by_kvm("kvm"),
    a_guest_without_pv_never_halts,
    benchmark_at_every_ratio_with_backend_vmm: benchmark_at_every_ratio("vmm"),
    benchmark_at_every_ratio_with_backend_doorbell: benchmark_at_every_ratio("doorbell") => Long("8 s: three boots; with another backend in make test"),
    benchmark_at_every_ratio_with_backend_kvm: benchmark_at_every_ratio("kvm") => Long("8 s: three boots; with another backend in make test"),
    pv_is_switched_under_load_with_backend_vmm: pv_is_switched_under_load("vmm"),
    pv_is_switched_under_load_with_backend_doorbell: pv_is_switched_under_load("doorbell") => Long("12 s; with another backend in make test"),
    pv_is_switched_under_load_with_backend_kvm: pv_is_switched_under_load("kvm") => Long("12 s; with another backend in make test"),
    pv_is_switched_under_torture => Long("9 s; under another load in make test"),
    unavailable_pv_is_not_switched_on,
];

/// Number of vCPUs: an overcommit of 2x.
const VCPUS: u32 = 4;
/// Number of CPUs.
const CPUS: usize = 2;

/// Runs a boot on the first [`CPUS`] CPUs that this process may use.
fn on_few_cpus(boot: Boot) -> anyhow::Result<RunResult> {
    // The affinity is per thread; the child inherits it from this thread.
    let start = move || {
        let allowed = sched_getaffinity(None).context("sched_getaffinity")?;
        let mut few = CpuSet::new();
        let cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
        cpus.take(CPUS).for_each(|cpu| few.set(cpu));
        sched_setaffinity(None, &few).context("sched_setaffinity")?;
        boot.start()
    };
    let running = thread::spawn(start).join().ok().context("the starting thread panicked")??;
    running.wait()
}

/// Runs the torture test on few CPUs, under the host's scheduler.
fn torture(pv: &str) -> anyhow::Result<()> {
    torture_of(Boot::direct().option("--pv", pv))
}

/// Runs locktorture with two writers per vCPU; the guest then shuts down, with the verdict on its console.
pub fn torture_of(boot: Boot) -> anyhow::Result<()> {
    torture_with_command(boot.command(["sleep", "600"])).map(drop)
}

/// Runs the torture test in parallel with a command that does not end. Returns the boot's result.
fn torture_with_command(boot: Boot) -> anyhow::Result<RunResult> {
    let writers = 2 * VCPUS;
    let parameters = format!(
        "locktorture.torture_type=spin_lock locktorture.nwriters_stress={writers} \
         locktorture.stat_interval=1 locktorture.shutdown_secs={} locktorture.verbose=0",
        by_form(3, 4)
    );
    let boot = boot.option("--cpus", VCPUS.to_string()).option("--append", &parameters);
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
    expect_usually!(total > Some(0), "the lock was never taken: {last}");
    Ok(ran)
}

/// Checks a benchmark's result: mutual exclusion, and counts of all vCPUs.
fn is_sound(bench: &Value, vcpus: u32) -> anyhow::Result<()> {
    ensure!(bench["violations"] == 0, "mutual exclusion failed: {bench}");
    ensure!(each_operations(bench).len() == vcpus as usize, "not every CPU took part: {bench}");
    expect_usually!(operations(bench) > 0, "no operations: {bench}");
    Ok(())
}

/// Result of an overcommitted lock benchmark, with the counters of guest and VMM.
pub struct Counted {
    bench: Value,
    guest: Value,
    stats: Value,
}

impl Counted {
    /// Uses a low spin threshold, which emulated CPUs reach; with the kernel's own there are about ten halts.
    fn run(pv: &str) -> anyhow::Result<Self> {
        Self::from_boot(Boot::direct().with(format!("--pv {pv} --append pvticket_spin=256")))
    }

    /// Runs a boot on few CPUs.
    pub fn from_boot(boot: Boot) -> anyhow::Result<Self> {
        let script = "lockbench --seconds 2 --critical 500 && lockstats";
        let (ran, stats) = boot
            .with(format!("--cpus {VCPUS}"))
            .script(script)
            .with_stats(|boot| on_few_cpus(boot)?.exits(0))?;
        let mut lines = ran.text()?.lines().map(serde_json::from_str);
        let mut line = || lines.next().and_then(Result::ok).with_context(|| ran.show());
        let (bench, guest) = (line()?, line()?);
        is_sound(&bench, VCPUS)?;
        Ok(Self { bench, guest, stats })
    }

    /// Returns the operations of the vCPU with the fewest.
    pub fn fewest(&self) -> u64 {
        each_operations(&self.bench).into_iter().min().unwrap_or(0)
    }

    /// Returns a counter of the guest.
    pub fn guest(&self, name: &str) -> anyhow::Result<u64> {
        count(&self.guest, name)
    }

    /// Returns the number of halts of the guest's waiters.
    pub fn halts(&self) -> anyhow::Result<u64> {
        Ok(self.guest("halted_irq_off")? + self.guest("halted_irq_on")?)
    }

    /// Returns a counter of the VMM at the moment when the guest read its own.
    pub fn vmm(&self, name: &str) -> anyhow::Result<u64> {
        count(&self.stats["vmm_when_guest_read_its_own"]["total"], name)
    }

    /// Checks that VMM and guest agree on the number of halts and kicks by hypercall.
    pub fn count_alike(&self) -> anyhow::Result<()> {
        for (guest, vmm) in [("halted_irq_off", "lock_spinning"), ("kicked", "unlock_kick")] {
            let (guests, vmms) = (self.guest(guest)?, self.vmm(vmm)?);
            ensure!(guests == vmms, "the guest counts {guests} {guest}, the VMM {vmms} {vmm}");
        }
        Ok(())
    }

    fn vmm_served_none(&self) -> anyhow::Result<()> {
        let served = ["lock_spinning", "unlock_kick"];
        let counts = served.map(|name| count(&self.stats["vmm"]["total"], name).ok());
        ensure!(counts == [Some(0); 2], "the VMM served {served:?}: {counts:?}: {}", self.guest);
        Ok(())
    }

    fn kvm(&self, name: &str) -> anyhow::Result<u64> {
        count(&self.stats["kvm"], name)
    }
}

/// The benchmark's waiters halt with interrupts on, which is not a hypercall; waiters for the
/// kernel's other locks make the call, if there are any in these two seconds.
fn both_sides_count_alike_with_backend_vmm() -> anyhow::Result<()> {
    let counted = Counted::run("vmm")?;
    ensure!(counted.guest["backend"] == "vmm", "backend: {}", counted.guest);
    counted.count_alike()?;
    for name in ["halted_irq_off", "kicked"] {
        expect_usually!(counted.guest(name)? > 0, "no {name}");
    }
    expect_usually!(counted.vmm("parked")? > 0, "no vCPU was parked");
    Ok(())
}

/// KVM serves the halts, and the kicks as hypercalls or by one ioeventfd per vCPU. It also counts halts and
/// hypercalls for other reasons, such as idle CPUs.
fn served_by_kvm(backend: &str) -> anyhow::Result<()> {
    let counted = Counted::run(backend)?;
    ensure!(counted.guest["backend"] == backend, "backend: {}", counted.guest);
    let (halted, kicked) = (counted.halts()?, counted.guest("kicked")?);
    expect_usually!(halted > 0 && kicked > 0, "no halts or kicks: {}", counted.guest);
    let halts = counted.kvm("halt_exits")?;
    ensure!(halts >= halted, "KVM saw {halts} halts, the guest's waiters made {halted}");
    if backend == "kvm" {
        let calls = counted.kvm("hypercalls")?;
        ensure!(calls >= kicked, "KVM saw {calls} calls, the guest made {kicked} kicks");
    }
    counted.vmm_served_none()
}

fn a_guest_without_pv_never_halts() -> anyhow::Result<()> {
    let counted = Counted::run("off")?;
    ensure!(counted.guest["backend"] == "off", "backend: {}", counted.guest);
    for name in ["halted_irq_off", "halted_irq_on", "kicked"] {
        ensure!(counted.guest(name)? == 0, "{name} without PV: {}", counted.guest);
    }
    counted.vmm_served_none()
}

/// One, two and four vCPUs per CPU; only four in the short form.
fn benchmark_at_every_ratio(pv: &str) -> anyhow::Result<()> {
    for vcpus in by_form(&[4][..], &[1, 2, 4]).iter().map(|ratio| ratio * CPUS as u32) {
        // With the kernel's own threshold an emulated CPU spins for whole slices.
        let boot =
            Boot::direct().with(format!("--cpus {vcpus} --pv {pv} --append pvticket_spin=256"));
        let ran = on_few_cpus(boot.command(["lockbench", "--seconds", "0.5"]))?.exits(0)?;
        let bench = ran.json()?;
        is_sound(&bench, vcpus)?;
        let stats = &bench["stats"];
        ensure!(stats["backend"] == pv, "backend: {bench}");
        // Under overcommit hardly any acquisition succeeds without a halt.
        expect_usually!(vcpus == CPUS as u32 || count(stats, "kicked")? > 0, "no kicks: {bench}");
    }
    Ok(())
}

/// Switches PV `$times` times while the benchmark runs, and then until a vCPU is kicked or `$rounds` rounds
/// have run in total. A switch waits for a time slice of every vCPU, which may take tenths of a second, so PV
/// may be off for a complete round. Prints each round's result.
const SWITCH: &str = "enabled=/sys/kernel/debug/pvticket/enabled; n=0; kicks=; \
    while [ $n -lt $times ] || { [ -z \"$kicks\" ] && [ $rounds -gt 0 ]; }; do \
        rounds=$((rounds - 1)); \
        lockbench --seconds 2 --critical 100 >/tmp/bench & load=$!; \
        while kill -0 $load 2>/dev/null; do \
            echo $((n % 2)) >$enabled && read now <$enabled && [ $now = $((n % 2)) ] || exit 1; \
            n=$((n + 1)); done; \
        wait $load && echo 1 >$enabled && cat /tmp/bench || exit 1; \
        grep -q '\"kicked\":[1-9]' /tmp/bench && kicks=some; done; true";

fn pv_is_switched_under_load(pv: &str) -> anyhow::Result<()> {
    let script = format!("times={}; rounds=20; {SWITCH}", by_form(8, 20));
    // A low threshold, so that many waiters halt whenever PV is on.
    let boot = Boot::direct()
        .with(format!("--cpus {VCPUS} --pv {pv} --append pvticket_spin=64"))
        .script(&script);
    let ran = on_few_cpus(boot)?.exits(0)?;
    let mut kicked = 0;
    for line in ran.text()?.lines() {
        let bench: Value = serde_json::from_str(line).with_context(|| ran.show())?;
        is_sound(&bench, VCPUS)?;
        kicked += count(&bench["stats"], "kicked")?;
    }
    expect_usually!(kicked > 0, "no vCPU was kicked: {}", ran.show());
    Ok(())
}

fn pv_is_switched_under_torture() -> anyhow::Result<()> {
    let script = "cd /sys/kernel/debug/pvticket; \
        while echo 0 >enabled && echo 1 >enabled; do :; done; exit 1";
    torture_with_command(Boot::direct().with("--pv vmm").script(script)).map(drop)
}

fn unavailable_pv_is_not_switched_on() -> anyhow::Result<()> {
    let script = "cd /sys/kernel/debug/pvticket; cat enabled; echo 0 >enabled && \
        ! echo 1 >enabled && ! echo 2 >enabled && cat enabled";
    Boot::direct()
        .with("--cpus 2 --pv off")
        .script(script)
        .run()?
        .exits(0)?
        .stdout_is("0\n0\n")
        .map(drop)
}
