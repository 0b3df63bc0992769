//! Steal time according to the guest's kernel, the host's scheduler, and the clock.

use std::{fs::File, path::PathBuf, time::Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::{
    files::STOCK_KERNEL,
    prelude::*,
    process::{ThreadTimes, thread_named, times_by_name},
    product::profile_folder,
};

tests![
    stolen_time_is_the_wait_time_of_the_vcpu => Quiet("27 s: it compares three clocks"),
    stolen_time_is_the_wait_time_for_a_slot,
    a_stock_kernel_sees_which_vcpus_are_preempted: sees_which_vcpus_are_preempted(1_000),
    ten_thousand_samples_are_right: sees_which_vcpus_are_preempted(10_000) => Long("25 s"),
];

/// Works without a pause and prints a reading now and then: `cpu`, then user, nice, system, idle,
/// iowait, irq, softirq and steal in hundredths of a second (proc_stat(5)).
const SCRIPT: &str = "n=0; while [ $n -lt 400 ]; do n=$((n+1)); i=0; \
    while [ $i -lt 1000 ]; do i=$((i+1)); done; \
    read -r line < /proc/stat; echo \"reading $n: $line\"; done";

/// The reading at which the comparison starts.
const FROM: u32 = 5;

/// Minimum duration of the comparison.
const SECONDS: f64 = 3.0;

/// Starts a process that is always runnable on this CPU.
fn hog(cpu: usize) -> anyhow::Result<Running> {
    let busybox = files::cached("busybox/busybox")?;
    let on_cpu = Program::new(&busybox).args(["taskset".into(), format!("{:x}", 1_u128 << cpu)]);
    on_cpu.args([busybox]).args(["sh", "-c", "while :; do :; done"]).start()
}

fn only(cpu: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(cpu);
    set
}

/// Returns the host's figures on the only vCPU's thread at one moment.
fn host_times(process: Pid) -> anyhow::Result<(Instant, ThreadTimes)> {
    let times = times_by_name(process, "vcpu0").pop().context("no thread vcpu0")?;
    Ok((Instant::now(), times))
}

/// Returns the number of a reading, and its steal time in seconds.
fn parse_reading(line: &str) -> Option<(u32, f64)> {
    let (number, rest) = line.strip_prefix("reading ")?.split_once(": ")?;
    let ticks: f64 = rest.split_whitespace().nth(8)?.parse().ok()?;
    Some((number.parse().ok()?, ticks / 100.0))
}

/// A busy vCPU shares a CPU with a thread that is always runnable. The guest's steal time is the part of the
/// run-queue delay that KVM passes on. It is compared with that delay in the host's /proc, and with the
/// wall-clock time in which the vCPU did not run, which depends on neither.
///
/// Tolerance: guest and host are not read at the same moment. At each end the line passes through a
/// pipe to a thread that polls every few milliseconds, and a slice of the vCPU or of the other
/// thread may begin or end before that: some tens of milliseconds, the length of a slice. The guest
/// counts in ticks of 10 ms. A twentieth of the elapsed time allows for both. (Measured in the
/// emulated host, of 3.011 s: 1.500 s, 1.506 s and 1.505 s.)
fn stolen_time_is_the_wait_time_of_the_vcpu() -> anyhow::Result<()> {
    let allowed = sched_getaffinity(None)?;
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    let Some(cpu) = cpus.next_back().filter(|_| cpus.next().is_some()) else {
        return skip("only one CPU here");
    };
    let mut running = Boot::direct().with("--cpus 1").script(SCRIPT).start()?;
    let process = running.pid();
    running.wait_for_stdout("reading 1: ")?;
    let thread = thread_named(process, "vcpu0").context("no thread vcpu0")?;
    sched_setaffinity(Some(thread), &only(cpu))?;
    let hog = hog(cpu)?;
    running.wait_for_stdout(&format!("reading {FROM}: "))?;
    let (began, before) = host_times(process)?;
    let mut until = FROM;
    let (passed, after) = loop {
        until += 5;
        running.wait_for_stdout(&format!("reading {until}: "))?;
        let (now, after) = host_times(process)?;
        let passed = (now - began).as_secs_f64();
        if passed >= SECONDS {
            break (passed, after);
        }
    };
    drop(hog);
    let ran = running.wait()?.exits(0)?;
    let find_reading = |number| {
        ran.text().ok()?.lines().filter_map(parse_reading).find(|(reading, _)| *reading == number)
    };
    let (first, last) = find_reading(FROM).zip(find_reading(until)).with_context(|| ran.show())?;
    let guest = last.1 - first.1;
    let waited = (after.waited - before.waited).as_secs_f64();
    let ran = (after.ran - before.ran).as_secs_f64();
    let off = passed - ran;
    let summary = format!("guest {guest} s, run queue {waited} s, off {off} s of {passed} s");
    expect_usually!(guest > 0.25 * passed, "hardly any of it was stolen: {summary}");
    let tolerance = 0.05 * passed;
    for host in [waited, off] {
        expect_usually!((guest - host).abs() <= tolerance, "{summary}");
    }
    ensure!(guest <= passed + tolerance, "more than all of it: {summary}");
    Ok(())
}

/// A stock guest of four vCPUs on two slots reads the waits of the schedule's account, or no steal time if it is
/// offered none.
///
/// Tolerance: the kernel counts a wait at the vCPU's next tick, so at each end of the window a slice and a tick of
/// each vCPU may be missing. (Measured over 1 s in the busy emulated host: 0.99 to 1.01 of the account.)
fn stolen_time_is_the_wait_time_for_a_slot() -> anyhow::Result<()> {
    let settings = "--host direct --guest linux --locks pv-queued --pv-backends kvm --policy rr --vcpus 4 \
        --slots 2 --runs 1 --seconds 2";
    let steal_and_waits = |source: &str| -> anyhow::Result<(f64, f64)> {
        let program = pvticket(["compare", "--set", &format!("told={source}")]);
        let run = Compared::new(program.args(settings.split_whitespace()).limit(240))?.run()?;
        let nanos = |name: &str| run.pointer(name).and_then(Value::as_f64).context(run.to_string());
        Ok((nanos("/guest_steal_ns")?, nanos("/schedule/measured/ready_ns")?))
    };
    let (stolen, waited) = steal_and_waits("schedule")?;
    ensure!(waited > 0.0, "four vCPUs on two slots never waited");
    let summary = format!("guest {stolen} ns, account {waited} ns");
    expect_usually!((stolen / waited - 1.0).abs() <= 0.02, "{summary}");
    let (stolen, waited) = steal_and_waits("none")?;
    ensure!(stolen == 0.0 && waited > 0.0, "not offered, but counted: {stolen} of {waited} ns");
    Ok(())
}

/// Returns the path of the example that compares a guest's steal-time records with the progress of its vCPUs.
pub fn sampler() -> anyhow::Result<PathBuf> {
    Ok(profile_folder()?.join("examples/preempted_vcpus"))
}

/// `vcpu_is_preempted()` in Debian's kernel, with four vCPUs on two slots. The sampling vCPU has one of them, so of
/// each three samples of the others two find a preempted vCPU.
///
/// Tolerance: the sampling vCPU may lose its slot between two samples. (Measured in the emulated host: 6695 of 10 000,
/// 676 of 1000.) A vCPU with a slot stands until its thread wakes up, and when the host preempts this thread, of
/// which the record does not inform the guest: 103 of 3305, and 186 of 324 on a busy machine.
fn sees_which_vcpus_are_preempted(samples: u32) -> anyhow::Result<()> {
    let boot = Boot::direct()
        .option("--kernel", files::cached(STOCK_KERNEL)?)
        .with("--cpus 4 --slots 2 --mem 1G --policy rr --slice 20ms")
        .input(Input::From(File::open(sampler()?)?.into()));
    let script = format!("cat > /sampler && chmod 755 /sampler && /sampler {samples}");
    let ran = boot.script(&script).run()?.exits(0)?;
    let text = ran.text()?;
    let mut counts =
        text.split_whitespace().filter_map(|word| word.trim_matches([',', ';']).parse().ok());
    let mut next = || counts.next().with_context(|| ran.show());
    let (preempted, ran_on, running, stood): (u32, u32, u32, u32) =
        (next()?, next()?, next()?, next()?);
    ensure!(preempted + running == samples && ran_on == 0, "{text}");
    let share = f64::from(preempted) / f64::from(samples);
    expect_usually!((share - 2.0 / 3.0).abs() < 0.1, "not two in three: {text}");
    expect_usually!(stood < running, "{text}");
    Ok(())
}
