//! Time that the host took from a guest: the host stood still or ran other work, or the VMM was stopped. The guest's clock
//! runs on, so such a time looks like a delay of the kernel.

use std::{
    fmt, fs,
    time::{Duration, Instant},
};

use base::host_counts::ThreadTimes;
use experiment::host::around::suspended;
use os::processes::ThreadAccounts;
use rustix::param::clock_ticks_per_second;

/// The sleep of the thread that waits for the program.
pub const SLEEP: Duration = Duration::from_millis(10);
/// A sleep that is longer by more was delayed: a kernel of 100 ticks a second wakes within two of them.
const LATE: Duration = Duration::from_millis(20);
/// Sleeps for one look at the files of the system.
const SLEEPS: u32 = 20;
/// Less explains nothing: this share of the time, within these bounds.
const SHARE: f64 = 0.02;
const LEAST: Duration = Duration::from_millis(200);
const MOST: Duration = Duration::from_millis(500);

/// Time taken by the host during `wall`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct HostTime {
    /// How long the program was waited for.
    pub wall: Duration,
    /// A thread that only reads the clock got no CPU.
    gaps: Duration,
    /// Threads of the program were ready to run, while others than they had its CPUs.
    waited: Duration,
    /// The hypervisor above ran others.
    stolen: Duration,
    /// The host was suspended.
    suspended: Duration,
    /// The program was stopped or frozen.
    held: Duration,
    /// Whether it was much in any of the times that were added up.
    is_much: bool,
}

impl HostTime {
    /// All of it. What delays our thread delays the program's for the same time.
    pub fn taken(&self) -> Duration {
        self.gaps.max(self.waited).max(self.stolen) + self.suspended + self.held
    }

    /// Enough to make a right kernel look late?
    pub const fn is_much(&self) -> bool {
        self.is_much
    }

    /// Both times together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            wall: self.wall + other.wall,
            gaps: self.gaps + other.gaps,
            waited: self.waited + other.waited,
            stolen: self.stolen + other.stolen,
            suspended: self.suspended + other.suspended,
            held: self.held + other.held,
            is_much: self.is_much || other.is_much,
        }
    }

    /// The program was stopped for this time.
    #[cfg(test)]
    pub(crate) fn held(held: Duration) -> Self {
        Self { held, ..Self::default() }
    }

    fn judged(self) -> Self {
        let is_much = self.taken() > self.wall.mul_f64(SHARE).clamp(LEAST, MOST);
        Self { is_much, ..self }
    }
}

impl fmt::Display for HostTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (taken, wall) = (self.taken().as_secs_f64(), self.wall.as_secs_f64());
        write!(f, "the host took {taken:.1} s of {wall:.1} s away")?;
        for (time, name) in [
            (self.gaps, "stood still or was busy"),
            (self.waited, "CPUs had other work"),
            (self.stolen, "steal time"),
            (self.suspended, "suspended"),
            (self.held, "guest stopped or frozen"),
        ] {
            if time >= SLEEP {
                write!(f, ", {name} {:.1} s", time.as_secs_f64())?;
            }
        }
        Ok(())
    }
}

/// One reading of the system's files.
#[derive(Debug, Default, Clone)]
struct Sample {
    /// When, since the begin of the watch.
    at: Duration,
    /// For how long the host has been suspended.
    suspended: Duration,
    /// By CPU.
    stolen: Vec<Duration>,
    is_held: bool,
}

impl Sample {
    fn read(process: u32, at: Duration) -> Self {
        let text = |file: &str| fs::read_to_string(file).unwrap_or_default();
        let of_process = |name: &str| text(&format!("/proc/{process}/{name}"));
        Self {
            at,
            suspended: Duration::from_nanos(suspended().0),
            stolen: stolen(&text("/proc/stat")),
            is_held: is_held(&of_process("stat"), &of_process("wchan")),
        }
    }
}

/// Steal time of each CPU (proc_stat(5): the eighth number).
fn stolen(stat: &str) -> Vec<Duration> {
    let ticks = clock_ticks_per_second().max(1);
    let of_cpu = |line: &str| {
        let mut fields = line.strip_prefix("cpu")?.split(' ');
        fields.next()?.parse::<u32>().ok()?;
        let count: u64 = fields.nth(7)?.parse().ok()?;
        Some(Duration::from_millis(count.saturating_mul(1000) / ticks))
    };
    stat.lines().filter_map(of_cpu).collect()
}

/// Is the process stopped (proc_pid_stat(5)), or in a frozen control group, of version 1 or 2 (kernel/freezer.c, signal.c)?
fn is_held(stat: &str, wchan: &str) -> bool {
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('T' | 't'))
        || ["refrigerator", "freezer"].iter().any(|at| wchan.contains(at))
}

/// Time for which a thread waited while others than the program's threads had the CPUs of its slots.
fn waited_for_others(threads: &[ThreadTimes], step: Duration, slots: u32) -> Duration {
    let ran: u64 = threads.iter().map(|times| times.ran.0).sum();
    let waited = threads.iter().map(|times| times.waited.0).max().unwrap_or(0);
    // A vCPU also waits while another vCPU has the CPU of its slot.
    let of_others = step.saturating_mul(slots).saturating_sub(Duration::from_nanos(ran));
    let lost = Duration::from_nanos(waited).min(of_others).min(step);
    // Threads whose turns are over wait for up to two fifths of the time until they sleep (`study::disturbance`).
    if lost > step / 2 { lost } else { Duration::ZERO }
}

/// Watches the host while a program runs.
#[derive(Debug)]
pub struct HostWatch {
    process: u32,
    /// CPUs that the program's threads share.
    slots: u32,
    began: Instant,
    /// Since the last look at files.
    sleeps: u32,
    last: Sample,
    threads: ThreadAccounts,
    time: HostTime,
}

impl HostWatch {
    /// Starts to watch for this process, whose threads share `slots` CPUs.
    pub fn start(process: u32, slots: u32) -> Self {
        let mut threads = ThreadAccounts::default();
        threads.renew(process);
        Self {
            process,
            slots,
            began: Instant::now(),
            sleeps: 0,
            last: Sample::read(process, Duration::ZERO),
            threads,
            time: HostTime::default(),
        }
    }

    /// Is the program stopped, or frozen?
    pub fn is_held(&self) -> bool {
        self.last.is_held
    }

    /// The calling thread slept for so long instead of [`SLEEP`].
    pub fn slept(&mut self, time: Duration) {
        let late = time.saturating_sub(SLEEP);
        if late > LATE {
            self.time.gaps += late;
        }
        self.sleeps += 1;
        if time > LATE || self.sleeps >= SLEEPS {
            self.look();
        }
    }

    /// Ends the watch. Returns all time taken.
    pub fn end(mut self) -> HostTime {
        self.look();
        HostTime { wall: self.began.elapsed() + self.time.suspended, ..self.time }.judged()
    }

    fn look(&mut self) {
        self.sleeps = 0;
        let threads = self.threads.renew(self.process);
        self.add(Sample::read(self.process, self.began.elapsed()), &threads);
    }

    fn add(&mut self, now: Sample, threads: &[ThreadTimes]) {
        let before = std::mem::replace(&mut self.last, now);
        let (now, time) = (&self.last, &mut self.time);
        let step = now.at.saturating_sub(before.at);
        let pairs = now.stolen.iter().zip(&before.stolen);
        let stolen = pairs.map(|(now, before)| now.saturating_sub(*before)).max();
        time.stolen += stolen.unwrap_or_default();
        time.suspended += now.suspended.saturating_sub(before.suspended);
        time.waited += waited_for_others(threads, step, self.slots);
        if now.is_held && before.is_held {
            time.held += step;
        }
    }
}

#[cfg(test)]
#[path = "host_time_tests.rs"]
mod tests;
