//! Schedules of pvticket on Linux guests: correct under overcommit, preemptions classified by the
//! kernel's telemetry, and no slot for a vCPU in HLT.

use super::locks::{self, Counted};
use crate::prelude::*;

tests![
    torture_under_rr_with_native_locks: torture("rr", "off") => Long("9 s of locktorture; with another backend or policy in make test"),
    torture_under_rr_with_backend_vmm: torture("rr", "vmm") => Long("9 s of locktorture; with another backend or policy in make test"),
    torture_under_rr_with_backend_doorbell: torture("rr", "doorbell") => Long("9 s of locktorture; with another backend or policy in make test"),
    torture_under_rr_with_backend_kvm: torture("rr", "kvm") => Long("9 s of locktorture; with another backend or policy in make test"),
    deferred_preempts_no_holder_in_an_idling_kernel => Quiet("33 s: it waits for the rare preemption"),
    a_kicker_by_doorbell_makes_way,
    a_halted_vcpu_gives_up_its_slot_with_backend_vmm: a_halted_vcpu_gives_up_its_slot("vmm") => Long("10 s; with another backend in make test"),
    a_halted_vcpu_gives_up_its_slot_with_backend_doorbell: a_halted_vcpu_gives_up_its_slot("doorbell"),
    a_halted_vcpu_gives_up_its_slot_with_backend_kvm: a_halted_vcpu_gives_up_its_slot("kvm") => Long("10 s; with another backend in make test"),
    torture_under_random_with_backend_vmm: torture("random", "vmm") => Long("9 s of locktorture; with another backend or policy in make test"),
    torture_under_kick_boost_with_backend_vmm: torture("kick-boost", "vmm") => Long("9 s of locktorture; with another backend or policy in make test"),
    torture_under_deferred_with_backend_kvm: torture("deferred", "kvm"),
    lock_holders_of_a_kernel_are_preempted_on_request: deliberate("lhp:20,20ms", "lhp", "vmm"),
    the_next_in_line_of_a_kernel_are_preempted_on_request: deliberate("lwp:20,20ms", "lwp", "off"),
    a_vcpu_in_hlt_keeps_no_slot => Long("11 s"),
    a_timeline_counts_the_locks_of_a_kernel => Long("16 s: two kernels; host::trace has timelines of payloads"),
    two_machines_run_the_same_command: Boot::direct().with("--cpus 2 --mem 256M --slots 2 --policy fair --vms 2")
        .script("nproc; exit 3").run()?.exits(3)?.stdout_is("2\n2\n").map(drop),
    a_stock_kernels_locks_are_observed,
    without_telemetry_preemptions_are_unclassified,
];

/// Two vCPUs per slot, on two slots.
fn torture(policy: &str, pv: &str) -> anyhow::Result<()> {
    locks::torture_of(Boot::direct().with(format!("--pv {pv} --policy {policy} --slots 2")))
}

/// Checks injected preemptions of `kind`; in the short form only with the backend `short`.
fn deliberate(policy: &str, kind: &str, short: &str) -> anyhow::Result<()> {
    for pv in by_form(&[short][..], &["off", "vmm"]) {
        let boot = Boot::direct().with(format!("--cpus 2 --pv {pv} --slots 2 --policy {policy}"));
        let (ran, mut stats) = boot.measure(["lockbench", "--seconds", "2"])?;
        ran.stderr_has(&["schedule: "])?;
        let schedule = stats["schedule"].take();
        let count = |name: &str| count(&schedule, name);
        let (hits, injected) = (count("hits/hits")?, count("injected")?);
        ensure!(hits == injected, "{injected}: {schedule:#}");
        expect_usually!(injected > 0, "no vCPU was preempted: {schedule:#}");
        ensure!(count(kind)? >= injected, "not all were {kind}: {schedule:#}");
        // Before its first lock a vCPU is unclassified.
        expect_usually!(count("unknown")? <= 20, "unclassified preemptions: {schedule:#}");
    }
    Ok(())
}

/// Runs a boot that records its schedule. Returns the result of `run`, and how each slice ended.
fn record_slices<T>(
    boot: Boot,
    run: impl FnOnce(Boot) -> anyhow::Result<T>,
) -> anyhow::Result<(T, Vec<u8>)> {
    let folder = files::scratch()?;
    let file = folder.path().join("recording");
    let ran = run(boot.option("--record", &file))?;
    Ok((ran, files::slices(&file)?.into_iter().map(|slice| slice.end).collect()))
}

/// A waiter that halts gives up its slot, and a kicked vCPU gets a slot: slices end early (6: halted in the
/// VMM; 7: in HLT), and all vCPUs make progress.
fn a_halted_vcpu_gives_up_its_slot(pv: &str) -> anyhow::Result<()> {
    let options = format!("--pv {pv} --policy rr --slots 2 --append pvticket_spin=256");
    let (counted, ends) = record_slices(Boot::direct().with(options), Counted::from_boot)?;
    expect_usually!(counted.fewest() > 0, "a vCPU never got the lock");
    let halts = counted.halts()?;
    let early = ends.iter().filter(|end| matches!(end, 6 | 7)).count();
    expect_usually!(halts > 100 && early > 100, "{halts} halts; {early} of {} slices", ends.len());
    Ok(())
}

/// Idle vCPUs wake while others' slices are extended: rarely in the lock benchmark, all the time in the
/// messaging benchmark. No holder is preempted within its grace.
fn deferred_preempts_no_holder_in_an_idling_kernel() -> anyhow::Result<()> {
    for workload in ["lock", "messaging"] {
        let words = ["compare", "--host", "direct", "--guest", "linux", "--runs", "1"];
        // If the host preempts the emulated CPUs for longer than a grace, holders are preempted.
        let policy = "deferred:ask,100ms";
        let options = ["--vcpus", "2x", "--policy", policy, "--workload", workload];
        let program = pvticket(words).args(options).args(["--seconds", "1"]);
        let runs = Compared::new(program.limit(240))?.runs()?;
        ensure!(runs.len() == 2, "not native and PV: {}", runs.len());
        for run in runs {
            let measured = &run["schedule"]["measured"];
            let [lhp, forced, slices, yields] =
                ["lhp", "forced", "grants", "yields"].map(|name| measured[name].as_u64());
            // Only an expired grace takes a slot from a holder.
            ensure!(lhp.is_some() && lhp <= forced, "{workload}: holders preempted: {measured:#}");
            // In the messaging benchmark one or two slices of holders per second last as long as the grace,
            // whether 100 ms or 1 s: presumably they wait for a vCPU without a slot to answer an interrupt.
            let max_lhp = if workload == "lock" { 0 } else { slices.unwrap_or(0) / 10 };
            expect_usually!(
                lhp <= Some(max_lhp),
                "{workload}: {lhp:?} holders had no time left: {measured:#}"
            );
            expect_usually!(
                slices > Some(50) && yields > Some(0),
                "{workload}: no slices: {measured:#}"
            );
        }
    }
    Ok(())
}

/// The schedule sees kicks by doorbell, and the kicker yields to the kicked vCPU (9: made way).
fn a_kicker_by_doorbell_makes_way() -> anyhow::Result<()> {
    let options = "--pv doorbell --policy kick-boost --slots 2 --append pvticket_spin=256";
    let (counted, ends) = record_slices(Boot::direct().with(options), Counted::from_boot)?;
    // A schedule must see every kick, so writes to the doorbell exit to the VMM.
    let (kicks, vmms) = (counted.guest("kicked")?, counted.vmm("unlock_kick")?);
    ensure!(kicks == vmms, "the guest counts {kicks} kicks, the VMM {vmms}");
    let made_way = ends.iter().filter(|end| **end == 9).count();
    expect_usually!(kicks > 100, "{kicks} kicks");
    expect_usually!(made_way > 20, "{made_way} of {} slices made way, {kicks} kicks", ends.len());
    Ok(())
}

/// Slices end because the vCPU is in HLT (7).
fn a_vcpu_in_hlt_keeps_no_slot() -> anyhow::Result<()> {
    // One slot: while one vCPU works, the others must free the slot repeatedly.
    let boot = Boot::direct().with("--cpus 4 --slots 1 --policy rr");
    let boot = boot.script("for i in 1 2 3 4; do sleep 0.2; nproc; done");
    let (_, ends) = record_slices(boot, |boot| boot.run()?.exits(0))?;
    let idle = ends.iter().filter(|end| **end == 7).count();
    expect_usually!(idle > 4, "of {} slices {idle} ended in HLT", ends.len());
    Ok(())
}

fn a_timeline_counts_the_locks_of_a_kernel() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let file = folder.path().join("trace");
    let words = ["compare", "--host", "direct", "--guest", "linux", "--vcpus", "2", "--runs", "1"];
    let program = pvticket(words).args(["--seconds", "0.3", "--policy", "rr", "--trace"]);
    program.args([&file]).limit(240).run()?.exits(0)?;
    let bytes = fs::read(&file)?;
    let name = b"locks taken";
    let tracks = bytes.windows(name.len()).filter(|part| part == name).count();
    ensure!(tracks == 2, "{tracks} tracks of two runs, native and PV");
    let ran = pvticket(["trace"]).args([&file]).run()?.exits(0)?;
    ran.stdout_has(&["linux 6.12 lock, pv-ticket, 2 vCPUs on 2 CPUs under rr"])
}

/// A distribution's kernel, moved by KASLR: its lock state is observed through the symbols that our init finds in
/// the guest, and unknown before that.
fn a_stock_kernels_locks_are_observed() -> anyhow::Result<()> {
    let boot =
        Boot::direct().option("--kernel", files::cached(files::STOCK_KERNEL)?).with("--mem 1G");
    let boot = boot.with("--cpus 4 --slots 2 --policy lhp:50,5ms");
    let (_, stats) = boot.measure(["sh", "-c", "bench eventfd --json --seconds 3"])?;
    let schedule = &stats["schedule"];
    let count = |name: &str| count(schedule, name);
    let hits = |name: &str| schedule["hits"][name].as_u64().unwrap_or(0);
    expect_usually!(count("unknown")? < count("preemptions")?, "none observed: {schedule:#}");
    expect_usually!(hits("hits") > 0, "no injected preemption hit: {schedule:#}");
    ensure!(hits("guesses") <= hits("hits"), "{schedule:#}");
    let preemptions = schedule["preemptions_one_by_one"].as_array().context("not one by one")?;
    expect_usually!(!preemptions.is_empty(), "no record of a preemption: {schedule:#}");
    for preemption in preemptions {
        let fields = ["vcpu", "slot", "mode", "doing", "at_ns", "others_spun_ns"];
        ensure!(fields.iter().all(|name| !preemption[name].is_null()), "{preemption}");
    }
    Ok(())
}

/// A non-preemptible kernel does not count spinlocks in `preempt_count`: zero does not mean that none is
/// held.
fn without_telemetry_preemptions_are_unclassified() -> anyhow::Result<()> {
    let map = files::cached(files::SYSTEM_MAP)?;
    let boot =
        Boot::direct().with("--cpus 2 --slots 1 --policy rr --append pvticket_telemetry=off");
    let (_, stats) = boot.option("--system-map", &map).measure(["lockbench", "--seconds", "1"])?;
    let count = |name: &str| count(&stats["schedule"], name);
    expect_usually!(count("unknown")? * 2 > count("preemptions")?, "all classified: {stats:#}");
    ensure!(count("lhp")? == 0, "a guess was counted as a lock-holder preemption: {stats:#}");
    Ok(())
}
