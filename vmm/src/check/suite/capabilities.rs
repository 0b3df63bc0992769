//! Features of some kernels: a run-time switch of PV, locktorture, CPU hotplug.

use std::time::Duration;

use super::{Suite, VCPUS};
use crate::check::{
    Failure,
    guests::{Ended, LACKING, TIMED_OUT},
    ktap::TestResult,
};
use base::shown;

/// Runs the benchmark, and `each` in a loop until it ends. `each` increments n. Prints the result and n.
fn beside_bench(needs: &str, each: &str, seconds: Duration) -> String {
    format!(
        "{needs} || exit {LACKING}; {bench} >/bench & load=$!; n=0; \
         while kill -0 $load 2>/dev/null; do {each}; done; wait $load || exit 1; cat /bench; echo $n",
        bench = super::bench_script(seconds)
    )
}

/// The result of such a script, with the count of `what`.
fn counted(ended: &Ended, what: &str, lacking: &str) -> Result<TestResult, Failure> {
    if ended.is_lacking() {
        return Ok(TestResult::skipped(lacking));
    }
    super::BenchResult::read(ended)?;
    let count: u64 = ended.stdout.lines().nth(1).and_then(|line| line.parse().ok()).unwrap_or(0);
    let notes = vec![format!("{what} {count} times, no addition lost")];
    Ok(match count {
        0 => TestResult::late("it never succeeded", notes),
        _ => TestResult::ok(notes),
    })
}

/// PV is turned off and on while the lock is contended.
pub(super) fn pv_switch(suite: &mut Suite<'_>) -> anyhow::Result<TestResult> {
    const FILE: &str = "/sys/kernel/debug/pvticket/enabled";
    let seconds = suite.load.long;
    let needs = format!("[ -e {FILE} ]");
    let each = format!("echo 0 >{FILE} && echo 1 >{FILE} && n=$((n + 1)) || exit 1");
    let boot = suite.overcommitted(suite.backend(), "rr");
    let ended = suite.guests.run(&boot.script(&beside_bench(&needs, &each, seconds), seconds))?;
    Ok(counted(&ended, "PV was turned off and on", &format!("the kernel has no {FILE}"))?)
}

/// CPUs are unplugged and plugged in while the lock is contended.
pub(super) fn hot_unplug(suite: &mut Suite<'_>) -> anyhow::Result<TestResult> {
    let seconds = suite.load.long;
    // Linux waits 10 s for a CPU (arch/x86/kernel/smpboot.c).
    let each = format!(
        "for c in 1 2 3; do echo 0 >/sys/devices/system/cpu/cpu$c/online && n=$((n + 1)); done; \
                for c in 1 2 3; do echo 1 >/sys/devices/system/cpu/cpu$c/online || exit {TIMED_OUT}; done"
    );
    let script = beside_bench("[ -e /sys/devices/system/cpu/cpu1/online ]", &each, seconds);
    let boot = suite.overcommitted(suite.backend(), "rr");
    let ended = suite.guests.run(&boot.script(&script, seconds))?;
    Ok(counted(&ended, "a CPU was unplugged", "the kernel cannot unplug CPUs")?)
}

/// The kernel's locktorture, which powers the machine off at its end.
pub(super) fn locktorture(suite: &mut Suite<'_>) -> anyhow::Result<TestResult> {
    let seconds = suite.load.long.as_secs().max(3);
    let parameters = format!(
        "locktorture.torture_type=spin_lock locktorture.nwriters_stress={} locktorture.stat_interval=1 \
         locktorture.shutdown_secs={seconds} locktorture.verbose=0",
        2 * VCPUS
    );
    let script = format!("sleep 1; dmesg | grep -q spin_lock-torture || exit {LACKING}; sleep 600");
    let boot = suite.overcommitted(suite.backend(), "rr").append(&parameters);
    let ended = suite.guests.run(&boot.script(&script, Duration::from_secs(seconds)))?;
    if ended.is_lacking() {
        return Ok(TestResult::skipped("locktorture is not built in"));
    }
    ended.check()?;
    let figures = ended.log.lines().rfind(|line| line.contains("Writes:"));
    let notes = figures.map(|line| shown::cut(line.trim(), 200).to_owned()).into_iter().collect();
    Ok(if ended.log.contains("End of test: SUCCESS") && !ended.log.contains("!!!") {
        TestResult::ok(notes)
    } else {
        TestResult::not_ok("locktorture did not end with SUCCESS", notes)
    })
}
