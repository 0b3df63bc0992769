//! `--driver bpf` end to end, in an emulated host with a 7.x kernel: a Linux guest under a scheduler in the
//! host's kernel.

use super::{
    bpf_drivers::{compare, run_by},
    emulated::shell_7,
};
use crate::prelude::*;

kernel_7::tests![
    a_guest_is_scheduled_by_the_hosts_kernel,
    two_machines_have_pages_of_their_own,
    drivers_are_compared => Long("250 s: four cells of Linux guests"),
    a_scheduler_that_the_kernel_ends_is_reported,
    a_measurement_without_its_scheduler_has_no_figures,
    a_killed_worker_leaves_no_scheduler,
    a_killed_loader_leaves_nothing,
];

/// Builds a boot of a Linux guest whose schedule the host's kernel carries out.
pub(super) fn boot(options: &str) -> Boot {
    Boot::on("emulated").with("--host-kernel 7 --driver bpf").with(options)
}

/// Returns the schedule's figures and the operations of each machine.
pub(super) fn measure(boot: Boot) -> anyhow::Result<(Value, Vec<u64>)> {
    let (ran, mut stats) = boot.measure(["lockbench", "--seconds", "1"])?;
    let ran = ran.stderr_has(&["schedule in the host's kernel: "])?;
    let mut per_machine = Vec::new();
    for line in ran.text()?.lines() {
        let bench: Value = serde_json::from_str(line).with_context(|| ran.show())?;
        ensure!(bench["violations"] == 0, "{bench}");
        per_machine.push(operations(&bench));
    }
    Ok((stats["schedule"].take(), per_machine))
}

fn a_guest_is_scheduled_by_the_hosts_kernel() -> anyhow::Result<()> {
    let on_one_slot =
        |policy: &str| measure(boot("--cpus 4 --slots 1 --pv off --policy").with(policy));
    let (rr, collapsed) = on_one_slot("rr")?;
    let (deferred, fast) = on_one_slot("deferred")?;
    for schedule in [&rr, &deferred] {
        ensure!(schedule["ended"].is_null(), "{schedule}");
    }
    ensure!(rr["slice"].as_u64() > Some(50) && rr["forced"] == 0, "{rr}");
    ensure!(deferred["yielded"].as_u64() > Some(20), "{deferred}");
    // Measured: a factor of 400, far less on a busy machine.
    ensure!(
        fast[0] > 5 * collapsed[0],
        "{fast:?} operations under deferred, {collapsed:?} under rr"
    );
    Ok(())
}

/// With PV guests, which halt in the VMM.
fn two_machines_have_pages_of_their_own() -> anyhow::Result<()> {
    let (_, per_machine) = measure(boot("--cpus 2 --slots 1 --vms 2 --pv vmm --policy deferred"))?;
    ensure!(per_machine.len() == 2, "{per_machine:?}");
    Ok(())
}

/// Both drivers in one comparison: each row names its driver, and `deferred` keeps the lock from collapsing.
fn drivers_are_compared() -> anyhow::Result<()> {
    let words =
        "--guest linux --policy rr,deferred --vcpus 4 --runs 1 --seconds 0.5 --locks ticket";
    let compared = Compared::new(compare(words))?;
    let schedules = "policy rr, slices of 4ms; rr (bpf), slices of 4ms; deferred, slices of 4ms; deferred (bpf)";
    ensure!(compared.ran.words()?.contains(schedules), "{}", compared.ran.show());
    let runs = compared.runs()?;
    let rate = |policy: &str, driver: &str| {
        let run = run_by(&runs, policy, driver)?;
        ensure!(run["violations"] == 0, "{run}");
        compared.ran.stdout_has(&[&format!("\n  ticket, driver {driver} under {policy} ")])?;
        ensure!(count(run, "schedule/whole/grants")? > 20, "few slices: {run}");
        anyhow::Ok((operations(run), count(run, "schedule/whole/lhp")?))
    };
    for driver in ["user", "bpf"] {
        let ((collapsed, lhp), (fast, _)) = (rate("rr", driver)?, rate("deferred", driver)?);
        ensure!(fast > 5 * collapsed, "{driver}: {fast} under deferred, {collapsed} under rr");
        expect_usually!(lhp > 0, "{driver}: rr preempted no holder");
    }
    Ok(())
}

/// Prints the state of `sched_ext`.
pub(super) const STATE: &str = "BUSYBOX cat /sys/kernel/sched_ext/state";

/// SysRq-S ends any BPF scheduler (Documentation/scheduler/sched-ext.rst).
const SYSRQ: &str = "echo S > /proc/sysrq-trigger";

/// Runs a command in the emulated host, and `event` a second after its scheduler has been loaded. Prints
/// the command's status and the state of `sched_ext` at the end.
fn run_with_event(command: &str, event: &str) -> anyhow::Result<RunResult> {
    let script = format!(
        "{command} & until {STATE} | BUSYBOX grep -q enabled; do BUSYBOX sleep 0.1; done; \
         BUSYBOX sleep 1; {event}; wait $!; echo status $?; {STATE}"
    );
    shell_7(&script).run()?.exits(0)
}

/// The guest continues under the kernel's own scheduler until its end; the command fails with one line.
fn a_scheduler_that_the_kernel_ends_is_reported() -> anyhow::Result<()> {
    let boot = "/init boot --cpus 2 --slots 1 --policy deferred --driver bpf";
    let ran = run_with_event(&format!("{boot} -- sh -c 'sleep 4; echo whole'"), SYSRQ)?;
    let ran = ran.stdout_is("whole\nstatus 1\ndisabled\n")?;
    ran.stderr_has(&["the host's kernel ended the scheduler (", "the vCPUs continued without it"])
        .map(drop)
}

/// Runs a comparison of a minute, which `event` must end.
fn long_comparison(event: &str) -> anyhow::Result<RunResult> {
    let compare =
        "/init compare --policy deferred --set drivers=bpf --vcpus 2 --slots 1 --locks ticket";
    let ran = run_with_event(&format!("{compare} --runs 1 --seconds 60 > /dev/null"), event)?;
    ran.stdout_is("status 1\ndisabled\n")
}

/// The run is marked as failed at once, and the comparison ends with one line.
fn a_measurement_without_its_scheduler_has_no_figures() -> anyhow::Result<()> {
    let ran = long_comparison(SYSRQ)?;
    let stderr = ran.errors();
    let names_cell = |line: &&str| line.starts_with("pvticket: cell 0: payload lock, ticket");
    let lines: Vec<_> = stderr.lines().filter(names_cell).collect();
    let [line] = lines[..] else { bail!("{}", ran.show()) };
    let reason = "under deferred (bpf), 50+200, 60 s: the host's kernel ended the BPF scheduler (";
    ensure!(line.contains(reason), "{}", ran.show());
    Ok(())
}

/// The worker has loaded the scheduler, which ends with it.
fn a_killed_worker_leaves_no_scheduler() -> anyhow::Result<()> {
    let list = "BUSYBOX ps -o pid,args | BUSYBOX grep '[i]nit cells' | BUSYBOX cut -c1-5";
    let ran = long_comparison(&format!("BUSYBOX kill -9 $({list})"))?;
    ran.stderr_has(&["the worker ended with signal: 9 (SIGKILL)"]).map(drop)
}

/// While a loader runs, a second is refused. No scheduler outlives a killed loader.
fn a_killed_loader_leaves_nothing() -> anyhow::Result<()> {
    let boot = "/init boot --cpus 2 --policy deferred --driver bpf";
    let script = format!(
        "{boot} -- sh -c 'while :; do :; done' & \
         until {STATE} | BUSYBOX grep -q enabled; do BUSYBOX sleep 0.1; done; \
         {boot} -- true; echo second $?; kill -9 $!; wait $!; echo killed $?; \
         BUSYBOX sleep 1; {STATE}"
    );
    let ran = shell_7(&script).run()?.exits(0)?;
    let ran = ran.stdout_is("second 2\nkilled 137\ndisabled\n")?;
    ran.stderr_has(&["driver bpf: this host needs: end the scheduler pvticket, which is loaded"])
        .map(drop)
}
