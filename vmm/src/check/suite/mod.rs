//! The tests, in the order in which they run.

mod bench;
mod exclusion;
mod features;
mod wakeups;

pub use bench::Load;

use std::{
    str::FromStr,
    time::{Duration, Instant},
};

use crate::check::{
    Failure, NoVerdict, Skip,
    guests::{Boot, Guests, SKIP},
    ktap::{TestResult, Verdict},
    reference::{Rates, Reference},
};
use base::{backend::PvBackend, sanitize};
use bench::{BenchResult, bench_script};
use locks::System;
use study::guest::kernels;
use wakeups::wakeup;

/// vCPUs of most guests: 2 for each of 2 slots.
pub const VCPUS: u32 = 4;

/// A test: its name in the output and its function. An error other than [`Failure`] or
/// [`Skip`] ends the run.
pub type Test = (&'static str, fn(&mut Suite<'_>) -> anyhow::Result<TestResult>);

/// Repetitions of a test that failed by a timeout while the host took time.
const REPEATS: u32 = 2;

/// The test of a program of the user, which replaces all but the initial tests.
pub const PROGRAM: &str = "program";

/// Number of initial tests that always run, because the others need their results.
pub const REQUIRED: usize = 2;

/// The name of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestName(pub &'static str);

impl FromStr for TestName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let test = TESTS.iter().find(|(name, _)| *name == text);
        test.map(|(name, _)| Self(name)).ok_or_else(|| {
            let names: Vec<&str> = TESTS.iter().map(|(name, _)| *name).collect();
            format!("unknown test '{text}': must be one of {}", names.join(", "))
        })
    }
}

/// All tests. If the first test fails to boot the kernel, there is no verdict.
pub const TESTS: [Test; 16] = [
    ("boot", |suite| first_boot(suite.guests)),
    ("smp", smp),
    ("exclusion_native", exclusion::native),
    ("exclusion_pv", exclusion::pv),
    ("preempted_holders", |suite| exclusion::targeted(suite, "lhp:100,2ms", "a holder")),
    ("preempted_waiters", |suite| exclusion::targeted(suite, "lwp:100,2ms", "the next in line")),
    ("wakeups_vmm", |suite| wakeup(suite, PvBackend::Vmm, Some(wakeups::KICKS_AND_HALTS))),
    ("wakeups_doorbell", |suite| wakeup(suite, PvBackend::Doorbell, Some(wakeups::KICKS))),
    ("wakeups_kvm", |suite| wakeup(suite, PvBackend::Kvm, None)),
    ("pv_switch", features::pv_switch),
    ("locktorture", features::locktorture),
    ("hot_unplug", features::hot_unplug),
    ("progress", exclusion::progress),
    ("throughput_1x", |suite| throughput(suite, 1)),
    ("throughput_2x", |suite| throughput(suite, 2)),
    (PROGRAM, program),
];

/// The PV locks that a kernel has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PvLocks {
    /// Ticketlocks of pvticket, with every backend.
    Ticket,
    /// Mainline's PV queued locks, with the backend KVM only.
    Queued,
    /// No PV locks, or not enabled in this guest.
    Absent,
}

/// The state of the test run.
pub struct Suite<'a> {
    guests: &'a mut Guests,
    load: Load,
    /// Reference for the rates.
    against: Option<&'a Reference>,
    /// `None` if unknown.
    pv: Option<PvLocks>,
    /// The results of this kernel.
    pub outcome: Reference,
}

impl<'a> Suite<'a> {
    /// A run in these guests. `outcome` names the kernel and the host, and has no results yet.
    pub fn new(
        guests: &'a mut Guests,
        load: Load,
        outcome: Reference,
        against: Option<&'a Reference>,
    ) -> Self {
        Self { guests, load, against, pv: None, outcome }
    }

    /// Runs a test. If it fails by a timeout while the host takes time, it is repeated and finally skipped.
    pub fn verdict(&mut self, test: &Test) -> anyhow::Result<TestResult> {
        let (_, test) = test;
        let mut retries = REPEATS;
        loop {
            self.guests.take_host_time();
            let result = test(self).or_else(TestResult::from_error)?;
            let host = self.guests.take_host_time();
            match result.verdict {
                Verdict::NotOk(reason) if result.is_timeout && host.is_much() => {
                    if retries == 0 {
                        return Ok(TestResult::skipped(format!("{host}: {reason}")));
                    }
                    retries -= 1;
                }
                verdict => return Ok(TestResult { verdict, ..result }),
            }
        }
    }

    /// The backend of tests that do not compare backends: the kernel's most direct one.
    const fn backend(&self) -> PvBackend {
        match self.pv {
            Some(PvLocks::Ticket) => PvBackend::Vmm,
            Some(PvLocks::Queued) => PvBackend::Kvm,
            Some(PvLocks::Absent) | None => PvBackend::Off,
        }
    }

    /// The kernel's PV locks, or the reason to skip their tests.
    fn pv_locks(&self) -> Result<PvLocks, Skip> {
        match self.pv {
            None => Err(Skip("smp failed, so the kernel's PV locks are unknown".into())),
            Some(PvLocks::Absent) => Err(Skip("the kernel did not enable PV locks".into())),
            Some(pv) => Ok(pv),
        }
    }

    /// A guest with [`VCPUS`] vCPUs, under this policy.
    fn overcommitted(&self, pv: PvBackend, policy: &str) -> Boot {
        Boot::new(VCPUS, pv).schedule(policy, self.guests.slots())
    }

    /// Boots a guest and runs the benchmark.
    fn bench(&mut self, boot: Boot, seconds: Duration) -> anyhow::Result<BenchResult> {
        let result = self.guests.run(&boot.script(&bench_script(seconds), seconds))?;
        Ok(BenchResult::read(&result)?)
    }
}

/// Boots with one vCPU and native locks. Fails if the kernel does not run a command, or lacks eventfd or SMP.
/// The time limit of later boots is a multiple of this boot's. A bug report is a failed test.
pub fn first_boot(guests: &mut Guests) -> anyhow::Result<TestResult> {
    let try_eventfd = bench_script(Duration::from_millis(20));
    let script = format!(
        "uname -rv; {try_eventfd} >/dev/null 2>/errors || ! grep -q 'not implemented' /errors || exit {SKIP}"
    );
    let boot = Boot::new(1, PvBackend::Off).script(&script, Duration::ZERO);
    let start = Instant::now();
    let result = guests.run(&boot)?;
    let boot_time = start.elapsed();
    let uname = Uname::parse(&result.stdout);
    if result.lacks_feature() {
        let reason = "the kernel has no eventfd, which the tests require (CONFIG_EVENTFD)";
        return Err(NoVerdict(reason.into()).into());
    }
    let Some(Uname { release, is_smp }) = uname.filter(|_| result.succeeded()) else {
        let reason = format!("the kernel does not boot with one vCPU: {}", result.reason());
        return Err(NoVerdict(reason).into());
    };
    if !is_smp {
        let reason = "the kernel supports only one CPU, so locks never have waiters (CONFIG_SMP)";
        return Err(NoVerdict(reason.into()).into());
    }
    guests.set_limit(boot_time);
    let release = sanitize::truncate(release, 100);
    let seconds = boot_time.as_secs_f64();
    let notes = vec![format!("Linux {release}, booted and ran a command in {seconds:.1} s")];
    Ok(match result.check() {
        Ok(()) => TestResult::ok(notes),
        Err(failure) => TestResult::failed(failure, notes),
    })
}

/// Output of `uname -rv`.
#[derive(Debug, PartialEq, Eq)]
struct Uname<'a> {
    release: &'a str,
    /// Whether the version contains `SMP` (Linux's init/Makefile).
    is_smp: bool,
}

impl<'a> Uname<'a> {
    fn parse(printed: &'a str) -> Option<Self> {
        let mut words = printed.split_whitespace();
        let release = words.next()?;
        Some(Self { release, is_smp: words.any(|word| word == "SMP") })
    }
}

/// All vCPUs come up. The kernel's PV locks are known from its log.
fn smp(suite: &mut Suite<'_>) -> anyhow::Result<TestResult> {
    let boot = suite.overcommitted(PvBackend::Kvm, "rr");
    let result = suite.bench(boot, suite.load.duration)?;
    let choice = result.spinlocks.unwrap_or_default();
    suite.pv = match kernels::chosen(&choice) {
        Some(System::PvTicket) => Some(PvLocks::Ticket),
        Some(System::PvQueued) => Some(PvLocks::Queued),
        _ => Some(PvLocks::Absent),
    };
    let notes =
        vec![if choice.is_empty() { "the log does not name the spinlocks".into() } else { choice }];
    Ok(match result.workers {
        workers if workers == VCPUS as usize => TestResult::ok(notes),
        workers => TestResult::timed_out(format!("only {workers} of {VCPUS} vCPUs came up"), notes),
    })
}

/// A program of the user succeeds with native and PV locks, and while holders and waiters are preempted.
fn program(suite: &mut Suite<'_>) -> anyhow::Result<TestResult> {
    let program = suite.guests.program().cloned();
    let program = program.ok_or_else(|| Skip("requires --program".into()))?;
    let pv = suite.backend();
    let injected = ["random", "lhp:100,2ms", "lwp:100,2ms"].map(|policy| (pv, policy));
    let mut notes = Vec::new();
    for (pv, policy) in [(PvBackend::Off, "random")].into_iter().chain(injected) {
        let boot = suite.overcommitted(pv, policy).program(&program);
        let start = Instant::now();
        let result = suite.guests.run(&boot)?;
        if result.is_not_started() {
            return Err(NoVerdict(result.reason()).into());
        }
        let (seconds, pv) = (start.elapsed().as_secs_f64(), pv.name());
        if let Err(Failure { reason, is_timeout }) = result.check() {
            let reason = format!("under {policy}, PV {pv}: {reason}");
            return Ok(TestResult::failed(Failure { reason, is_timeout }, notes));
        }
        notes.push(format!("under {policy}, PV {pv}: passed in {seconds:.1} s, with the boot"));
    }
    Ok(TestResult::ok(notes))
}

/// Rates of native and PV locks in alternating boots. Fails if they are worse than the reference's.
fn throughput(suite: &mut Suite<'_>, ratio: u32) -> anyhow::Result<TestResult> {
    let mut kinds = vec![("native", PvBackend::Off)];
    kinds.extend(suite.pv_locks().is_ok().then(|| ("pv", suite.backend())));
    let mut rates: Vec<Rates> = kinds.iter().map(|(locks, _)| Rates::new(locks, ratio)).collect();
    for _ in 0..suite.load.rounds {
        for ((_, pv), rates) in kinds.iter().zip(&mut rates) {
            rates.measure(suite.guests, suite.load, *pv)?;
        }
    }
    let result = match suite.against {
        Some(reference) => reference.judge(&suite.outcome.host, &rates),
        None => TestResult::ok(rates.iter().map(Rates::line).collect()),
    };
    // A repeated test replaces its rates.
    suite.outcome.rates.retain(|rates| rates.overcommit != ratio);
    suite.outcome.rates.extend(rates);
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smp_is_read_from_uname() {
        let debian = "6.12.48-amd64 #1 SMP PREEMPT_DYNAMIC Debian 6.12.48-1 (2025-09-20)\n";
        for (printed, release, is_smp) in [
            (debian, "6.12.48-amd64", true),
            ("7.3.4 #2 SMP Fri Nov 27 20:00:00 UTC 2026", "7.3.4", true),
            ("6.1.192-SMP #3 PREEMPT Fri Nov 27 20:00:00 UTC 2026\n", "6.1.192-SMP", false),
        ] {
            assert_eq!(Uname::parse(printed), Some(Uname { release, is_smp }), "{printed}");
        }
        assert_eq!(Uname::parse("\n"), None);
    }
}
