//! Time that the host took from a guest: the host stalled or ran other work, or the VMM was stopped. The
//! guest's clock continues, so that this time looks like a delay in the kernel.

use std::{
    fmt, fs,
    time::{Duration, Instant},
};

use base::host_counts::ThreadTimes;
use experiment::host::around::suspended;
use os::processes::ThreadAccounts;
use rustix::param::clock_ticks_per_second;

/// Sleep between two polls of the program's state.
pub const SLEEP: Duration = Duration::from_millis(10);
/// Tolerance of a sleep: a kernel with 100 ticks per second wakes within two ticks.
const TOLERANCE: Duration = Duration::from_millis(20);
/// Maximum sleeps between two readings of /proc.
const SLEEPS_PER_SAMPLE: u32 = 20;
/// Threshold of [`HostTime::is_much`]: a share of the time, within these bounds.
const SHARE: f64 = 0.02;
const MIN_MUCH: Duration = Duration::from_millis(200);
const MAX_MUCH: Duration = Duration::from_millis(500);

/// Time taken by the host during `wall`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct HostTime {
    /// Elapsed time of the program.
    pub wall: Duration,
    /// The polling thread got no CPU.
    stalled: Duration,
    /// Threads of the program were runnable while other processes had its CPUs.
    waited: Duration,
    /// Steal time: the hypervisor that runs this host ran other VMs.
    stolen: Duration,
    suspended: Duration,
    /// The program was stopped or frozen.
    stopped: Duration,
    /// Whether any of the added times was above the threshold.
    is_much: bool,
}

impl HostTime {
    /// The total. Delays of our thread and of the program's threads overlap: the longest counts.
    pub fn total(&self) -> Duration {
        self.stalled.max(self.waited).max(self.stolen) + self.suspended + self.stopped
    }

    /// Whether the host took enough time to make a correct kernel appear late.
    pub const fn is_much(&self) -> bool {
        self.is_much
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(self, rhs: Self) -> Self {
        Self {
            wall: self.wall + rhs.wall,
            stalled: self.stalled + rhs.stalled,
            waited: self.waited + rhs.waited,
            stolen: self.stolen + rhs.stolen,
            suspended: self.suspended + rhs.suspended,
            stopped: self.stopped + rhs.stopped,
            is_much: self.is_much || rhs.is_much,
        }
    }

    /// A program that was stopped for this time.
    #[cfg(test)]
    pub(crate) fn stopped_for(stopped: Duration) -> Self {
        Self { stopped, ..Self::default() }
    }

    fn finish(self) -> Self {
        let is_much = self.total() > self.wall.mul_f64(SHARE).clamp(MIN_MUCH, MAX_MUCH);
        Self { is_much, ..self }
    }
}

impl fmt::Display for HostTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (total, wall) = (self.total().as_secs_f64(), self.wall.as_secs_f64());
        write!(f, "the host took {total:.1} s of {wall:.1} s")?;
        for (time, name) in [
            (self.stalled, "stalled or busy"),
            (self.waited, "CPUs busy with other work"),
            (self.stolen, "steal time"),
            (self.suspended, "suspended"),
            (self.stopped, "guest stopped or frozen"),
        ] {
            if time >= SLEEP {
                write!(f, ", {name} {:.1} s", time.as_secs_f64())?;
            }
        }
        Ok(())
    }
}

/// One reading of /proc.
#[derive(Debug, Default, Clone)]
struct Sample {
    /// Time since the start of the watch.
    at: Duration,
    /// Total time of the host in suspend.
    suspended: Duration,
    /// Steal time by CPU.
    stolen: Vec<Duration>,
    is_stopped: bool,
}

impl Sample {
    fn read(process: u32, at: Duration) -> Self {
        let text = |file: &str| fs::read_to_string(file).unwrap_or_default();
        let process_file = |name: &str| text(&format!("/proc/{process}/{name}"));
        Self {
            at,
            suspended: Duration::from_nanos(suspended().0),
            stolen: stolen(&text("/proc/stat")),
            is_stopped: is_stopped(&process_file("stat"), &process_file("wchan")),
        }
    }
}

/// Steal time of each CPU (proc_stat(5): the eighth number).
fn stolen(stat: &str) -> Vec<Duration> {
    let ticks = clock_ticks_per_second().max(1);
    let cpu_steal = |line: &str| {
        let mut fields = line.strip_prefix("cpu")?.split(' ');
        fields.next()?.parse::<u32>().ok()?;
        let count: u64 = fields.nth(7)?.parse().ok()?;
        Some(Duration::from_millis(count.saturating_mul(1000) / ticks))
    };
    stat.lines().filter_map(cpu_steal).collect()
}

/// Whether the process is stopped (proc_pid_stat(5)) or in a frozen cgroup (kernel/freezer.c, signal.c).
fn is_stopped(stat: &str, wchan: &str) -> bool {
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('T' | 't'))
        || ["refrigerator", "freezer"].iter().any(|at| wchan.contains(at))
}

/// The longest wait of a thread while other processes had the CPUs of the slots; zero up to half of `step`.
fn waited_for_others(threads: &[ThreadTimes], step: Duration, slots: u32) -> Duration {
    let ran: u64 = threads.iter().map(|times| times.ran.0).sum();
    let waited = threads.iter().map(|times| times.waited.0).max().unwrap_or(0);
    // A vCPU also waits while another vCPU has the CPU of its slot.
    let others_time = step.saturating_mul(slots).saturating_sub(Duration::from_nanos(ran));
    let lost = Duration::from_nanos(waited).min(others_time).min(step);
    // After a slice, a thread stays runnable for up to a third of the time (`study::disturbance`).
    if lost > step / 2 { lost } else { Duration::ZERO }
}

/// Watches the host while a program runs.
#[derive(Debug)]
pub struct HostWatch {
    process: u32,
    /// CPUs shared by the program's threads.
    slots: u32,
    start: Instant,
    /// Sleeps since the last reading of /proc.
    sleeps: u32,
    last: Sample,
    threads: ThreadAccounts,
    time: HostTime,
}

impl HostWatch {
    /// Starts the watch of a process whose threads share `slots` CPUs.
    pub fn start(process: u32, slots: u32) -> Self {
        let mut threads = ThreadAccounts::default();
        threads.refresh(process);
        Self {
            process,
            slots,
            start: Instant::now(),
            sleeps: 0,
            last: Sample::read(process, Duration::ZERO),
            threads,
            time: HostTime::default(),
        }
    }

    /// Whether the program is stopped or frozen.
    pub fn is_stopped(&self) -> bool {
        self.last.is_stopped
    }

    /// Records a sleep of the polling thread, which was meant to take [`SLEEP`].
    pub fn record_sleep(&mut self, time: Duration) {
        let late = time.saturating_sub(SLEEP);
        if late > TOLERANCE {
            self.time.stalled += late;
        }
        self.sleeps += 1;
        if time > TOLERANCE || self.sleeps >= SLEEPS_PER_SAMPLE {
            self.sample();
        }
    }

    /// Ends the watch and returns the time taken.
    pub fn end(mut self) -> HostTime {
        self.sample();
        HostTime { wall: self.start.elapsed() + self.time.suspended, ..self.time }.finish()
    }

    fn sample(&mut self) {
        self.sleeps = 0;
        let threads = self.threads.refresh(self.process);
        self.add(Sample::read(self.process, self.start.elapsed()), &threads);
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
        if now.is_stopped && before.is_stopped {
            time.stopped += step;
        }
    }
}

#[cfg(test)]
#[path = "host_time_tests.rs"]
mod tests;
