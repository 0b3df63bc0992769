//! Features of some kernels: a run-time switch of PV, locktorture, CPU hotplug.

use std::time::Duration;

use super::{Suite, VCPUS};
use crate::check::{
    Failure,
    guests::{BootResult, SKIP, TIMED_OUT},
    ktap::TestResult,
};
use base::sanitize;

/// A script that runs the benchmark and, until it ends, repeats `step`, which increments `$n`. Prints result and `$n`.
fn with_bench(needs: &str, step: &str, seconds: Duration) -> String {
    format!(
        "{needs} || exit {SKIP}; {bench} >/bench & load=$!; n=0; \
         while kill -0 $load 2>/dev/null; do {step}; done; wait $load || exit 1; cat /bench; echo $n",
        bench = super::bench_script(seconds)
    )
}

/// The result of a script of [`with_bench`]; `$n` counts `event`.
fn count_result(result: &BootResult, event: &str, missing: &str) -> Result<TestResult, Failure> {
    if result.lacks_feature() {
        return Ok(TestResult::skipped(missing));
    }
    super::BenchResult::read(result)?;
    let count: u64 = result.stdout.lines().nth(1).and_then(|line| line.parse().ok()).unwrap_or(0);
    let notes = vec![format!("{event} {count} times, no addition lost")];
    Ok(match count {
        0 => TestResult::timed_out("no attempt succeeded", notes),
        _ => TestResult::ok(notes),
    })
}

/// PV is turned off and on while the lock is contended.
pub(super) fn pv_switch(suite: &mut Suite<'_>) -> anyhow::Result<TestResult> {
    const FILE: &str = "/sys/kernel/debug/pvticket/enabled";
    let seconds = suite.load.long;
    let needs = format!("[ -e {FILE} ]");
    let step = format!("echo 0 >{FILE} && echo 1 >{FILE} && n=$((n + 1)) || exit 1");
    let boot = suite.overcommitted(suite.backend(), "rr");
    let result = suite.guests.run(&boot.script(&with_bench(&needs, &step, seconds), seconds))?;
    Ok(count_result(&result, "PV was turned off and on", &format!("the kernel has no {FILE}"))?)
}

/// CPUs are unplugged and plugged in while the lock is contended.
pub(super) fn hot_unplug(suite: &mut Suite<'_>) -> anyhow::Result<TestResult> {
    let seconds = suite.load.long;
    // Linux waits 10 s for a CPU (arch/x86/kernel/smpboot.c).
    let step = format!(
        "for c in 1 2 3; do echo 0 >/sys/devices/system/cpu/cpu$c/online && n=$((n + 1)); done; \
                for c in 1 2 3; do echo 1 >/sys/devices/system/cpu/cpu$c/online || exit {TIMED_OUT}; done"
    );
    let script = with_bench("[ -e /sys/devices/system/cpu/cpu1/online ]", &step, seconds);
    let boot = suite.overcommitted(suite.backend(), "rr");
    let result = suite.guests.run(&boot.script(&script, seconds))?;
    Ok(count_result(&result, "a CPU was unplugged", "the kernel cannot unplug CPUs")?)
}

/// The kernel's locktorture, which powers the guest off at its end.
pub(super) fn locktorture(suite: &mut Suite<'_>) -> anyhow::Result<TestResult> {
    let seconds = suite.load.long.as_secs().max(3);
    let parameters = format!(
        "locktorture.torture_type=spin_lock locktorture.nwriters_stress={} locktorture.stat_interval=1 \
         locktorture.shutdown_secs={seconds} locktorture.verbose=0",
        2 * VCPUS
    );
    let script = format!("sleep 1; dmesg | grep -q spin_lock-torture || exit {SKIP}; sleep 600");
    let boot = suite.overcommitted(suite.backend(), "rr").append(&parameters);
    let result = suite.guests.run(&boot.script(&script, Duration::from_secs(seconds)))?;
    if result.lacks_feature() {
        return Ok(TestResult::skipped("locktorture is not built in"));
    }
    result.check()?;
    let line = result.log.lines().rfind(|line| line.contains("Writes:"));
    let notes = line.iter().map(|line| sanitize::truncate(line.trim(), 200).to_owned()).collect();
    Ok(if result.log.contains("End of test: SUCCESS") && !result.log.contains("!!!") {
        TestResult::ok(notes)
    } else {
        TestResult::not_ok("locktorture did not end with SUCCESS", notes)
    })
}
