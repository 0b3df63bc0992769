//! A hostile and an honest VM on the slot of one schedule.

use std::thread::sleep;

use rustix::pipe::{fcntl_setpipe_size, pipe};

use super::guests::{End, Guest};
use crate::{
    facts::is_emulated,
    prelude::*,
    process::{ThreadTimes, times_by_name},
};

/// Durations by the speed of a host.
struct Pace {
    /// Time until both VMs are up.
    start: Duration,
    /// Time for which they share the slot.
    window: Duration,
    /// A slice that is long compared with the switch to the next slice.
    slice: &'static str,
}

const REAL: Pace =
    Pace { start: Duration::from_millis(300), window: Duration::from_millis(500), slice: "1ms" };
/// With slices of 1 ms the honest VM had 63 to 70 % of its share next to a VM that claims to hold a lock, and
/// with these 95 % (QEMU 10.0.2, TCG).
const EMULATED: Pace =
    Pace { start: Duration::from_millis(900), window: Duration::from_millis(900), slice: "8ms" };

impl Pace {
    /// The VMM ends a VM that [halts for ever](End::Halts) after 2 s. A busy host may take half of that, and
    /// the share of an honest VM that is alone needs no long window.
    fn for_guest(guest: &Guest) -> Self {
        match guest.end {
            End::Halts => Self { slice: Self::here().slice, ..REAL },
            _ => Self::here(),
        }
    }

    fn here() -> Self {
        if is_emulated() { EMULATED } else { REAL }
    }
}

/// Time limit from SIGTERM to the end of the VMM, equal to a vCPU thread's timeout for leaving KVM. It
/// excludes the time in which the VMM waits for a CPU ([`Stopwatch`]).
const ENDS_WITHIN: Duration = Duration::from_secs(2);
/// Wall-clock time after which the VMM counts as hung.
const HUNG: Duration = Duration::from_secs(120);
/// Limit of the growth of the VMM's own memory while both VMs run.
const GROWTH_KIB: u64 = 8 << 10;
/// Minimum part of its share that the honest VM gets.
const SHARE: f64 = 0.9;
/// CPU time of the honest VM's vCPU after which it counts as at work.
const AT_WORK: Duration = Duration::from_millis(1);
/// Exit status after SIGTERM, as a shell reports it.
const TERMINATED: i32 = 143;

/// A hostile guest under a policy.
pub struct Pair {
    pub guest: &'static Guest,
    /// The command-line form; `SLICE` stands for the length of a slice.
    pub policy: &'static str,
    /// Backend of its halts and kicks; None for the product's choice.
    pub backend: Option<&'static str>,
    /// Whether its output is left unread.
    pub stalled: bool,
}

/// Result of a pair.
#[derive(Debug, Default)]
pub struct PairResult {
    /// Share of the honest VM, 1 being equal parts for all vCPUs; None if there was no such VM.
    pub share: Option<f64>,
    /// Sum of the vCPUs' run-queue delays, relative to the window.
    pub waited: f64,
    /// CPU time of the hostile VM, 1 being equal parts for all vCPUs.
    pub hostile: f64,
}

impl Pair {
    /// Runs the pair and checks all promises except the share.
    pub fn run(&self) -> anyhow::Result<PairResult> {
        let folder = files::scratch()?;
        if let End::Exits(status) = self.guest.end {
            return self.ends_alone(&folder, status);
        }
        let Pace { start, window, slice } = Pace::for_guest(self.guest);
        let recording = folder.path().join("recording");
        let boot = self
            .boot(&folder)?
            .with("--vms 2 --slots 1")
            .option("--slice", slice)
            .option("--record", &recording);
        let mut program = program(boot);
        // The pipe's read end is open until the end of the test, and nothing is read.
        let unread = if self.stalled { Some(pipe()?) } else { None };
        if let Some((_, writer)) = &unread {
            fcntl_setpipe_size(writer, 4096)?;
            program = program.output(writer.try_clone()?);
        }
        let mut running = program.start()?;
        let process = running.pid();
        self.wait_for_both(&mut running)?;
        sleep(start);
        let cpus = self.guest.cpus() as usize;
        let before = (resident(process)?, times_by_name(process, "vcpu"));
        sleep(window);
        let growth_kib = resident(process)?.saturating_sub(before.0);
        let after = times_by_name(process, "vcpu");
        let part = |vcpus: usize, time: fn(&ThreadTimes) -> Duration| {
            let sum =
                |threads: &[ThreadTimes]| threads.iter().take(vcpus).map(time).sum::<Duration>();
            sum(&after).saturating_sub(sum(&before.1)).as_secs_f64() / window.as_secs_f64()
        };
        // vCPUs without a slot block and do not count.
        let waited = part(usize::MAX, |times| times.waited);
        let hostile = part(cpus, |times| times.ran) * (cpus + 1) as f64 / cpus as f64;
        let mut watch = Stopwatch::start(process);
        running.signal(Signal::TERM)?;
        running.wait_by(&mut watch, HUNG)?;
        let (ran, took) = (running.wait()?, watch.net());
        let ran = match self.guest.end {
            // The VMM's messages are in the unread pipe.
            _ if self.stalled => ran.exits(TERMINATED)?,
            End::Fails(words) => ran.exits(1)?.stderr_has(&[words])?,
            _ => ran.exits(TERMINATED)?.stderr_has(&[])?,
        };
        ensure!(growth_kib <= GROWTH_KIB, "{growth_kib} KiB more in {window:?}\n{}", ran.show());
        expect_usually!(took <= ENDS_WITHIN, "{took:?} from SIGTERM to its end");
        let share = Some(share(&recording, self.guest.cpus(), window)?);
        Ok(PairResult { share, waited, hostile })
    }

    /// Checks the share that the policy promises.
    pub fn check_share(&self, result: &PairResult) -> anyhow::Result<()> {
        let Some(share) = result.share else { return Ok(()) };
        if result.is_busy() {
            return Ok(());
        }
        expect_usually!(share >= SHARE, "{share:.2} of its share under {}", self.policy);
        Ok(())
    }

    fn ends_alone(&self, folder: &TempDir, status: i32) -> anyhow::Result<PairResult> {
        let mut running = program(self.boot(folder)?).start()?;
        let mut watch = Stopwatch::start(running.pid());
        running.wait_by(&mut watch, HUNG)?;
        running.wait()?.exits(status)?.stderr_has(&[])?;
        Ok(PairResult::default())
    }

    /// Waits until both VMs are at work: the honest VM is the second, and its first vCPU works. A hostile VM
    /// that ends by itself may have no threads left.
    fn wait_for_both(&self, running: &mut Running) -> anyhow::Result<()> {
        let (process, cpus) = (running.pid(), self.guest.cpus() as usize);
        let ends = matches!(self.guest.end, End::Fails(_));
        running.wait_until("both machines at work", || {
            let times = times_by_name(process, "vcpu");
            let is_complete = times.len() == 2 * cpus || ends && times.len() == cpus;
            is_complete && times[times.len() - cpus].ran >= AT_WORK && resident(process).is_ok()
        })
    }

    fn boot(&self, folder: &TempDir) -> anyhow::Result<Boot> {
        let boot = Boot::direct().kernel_code(folder, &self.guest.code())?;
        let boot = boot.option("--cpus", self.guest.cpus().to_string());
        // The VM that has input is hostile.
        let boot = boot
            .option("--policy", self.policy.replace("SLICE", Pace::here().slice))
            .input(Input::Bytes(b"x".to_vec()));
        let boot = self.backend.into_iter().fold(boot, |boot, pv| boot.option("--pv", pv));
        Ok(boot.command(["attack"]))
    }
}

impl PairResult {
    /// Whether other load on the host took so much of the slot's time that the honest VM had too little.
    /// False if the hostile VM had more than its share.
    pub fn is_busy(&self) -> bool {
        let has_too_little = self.share.is_some_and(|share| share < SHARE);
        has_too_little && self.waited > 1.0 - SHARE && self.hostile < 2.0 - SHARE
    }
}

/// A software KVM is refused for guest kernels, but can run a few instructions.
fn program(boot: Boot) -> Program {
    boot.program().env("PVTICKET_TRUST_KVM", "1")
}

/// Returns the resident memory of a VMM without its guests' memory, in KiB. Guest memory is bounded by its
/// size and may be touched at any time; core dumps exclude it (`dd`, proc_pid_smaps(5)).
fn resident(process: Pid) -> anyhow::Result<u64> {
    let maps = fs::read_to_string(format!("/proc/{}/smaps", process.as_raw_nonzero()))?;
    let (mut sum, mut guests, mut mapping) = (0, 0, 0);
    for line in maps.lines() {
        if let Some(size) = line.strip_prefix("Rss:") {
            mapping =
                size.trim().trim_end_matches(" kB").parse().with_context(|| line.to_owned())?;
        } else if let Some(flags) = line.strip_prefix("VmFlags:") {
            let is_guests = flags.split_whitespace().any(|flag| flag == "dd");
            *(if is_guests { &mut guests } else { &mut sum }) += mapping;
        }
    }
    ensure!(sum > 0 && guests > 0, "no memory of its own, or none of a guest: {maps}");
    Ok(sum)
}

/// Returns the honest VM's time on the slot since its first slice, relative to equal parts for all vCPUs. Its
/// first vCPU follows the `hostile` vCPUs of the other VM, and its further vCPUs do not run.
fn share(recording: &Path, hostile: u32, window: Duration) -> anyhow::Result<f64> {
    let (mut cpu_time, mut first, mut last) = (0, None, 0);
    for slice in files::slices(recording)? {
        if slice.vcpu == hostile {
            first = first.or(Some(slice.at_ns));
            cpu_time += slice.ran_ns;
        }
        last = last.max(slice.at_ns + slice.ran_ns);
    }
    let total = last.saturating_sub(first.unwrap_or(0));
    // The last slice is open in the recording and has no length; it may cover most of the time.
    let total = total.max(window.as_nanos() as u64);
    Ok(cpu_time as f64 * f64::from(hostile + 1) / total as f64)
}
