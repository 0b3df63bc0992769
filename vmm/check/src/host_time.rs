//! Time that the host took from a guest: the host stood still or ran other work, or the VMM was stopped. The guest's clock
//! runs on, so such a time looks like a delay of the kernel.

use std::{
    collections::HashMap,
    fmt, fs, io,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use base::{host_counts::ThreadTimes, threads};
use rustix::{
    param::clock_ticks_per_second,
    thread::ClockId,
    time::{Timespec, clock_gettime},
};

/// Between two looks at the clock.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// A look that is later was delayed: a kernel of 100 ticks a second wakes within two of them.
const LATE: Duration = Duration::from_millis(20);
/// Looks at the clock for one at the files of the system.
const FILES_EVERY: u32 = 20;
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
        let busy = self.gaps.max(self.waited).max(self.stolen);
        busy.saturating_add(self.suspended).saturating_add(self.held)
    }

    /// Enough to make a right kernel look late?
    pub const fn is_much(&self) -> bool {
        self.is_much
    }

    /// Both times together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            wall: self.wall.saturating_add(other.wall),
            gaps: self.gaps.saturating_add(other.gaps),
            waited: self.waited.saturating_add(other.waited),
            stolen: self.stolen.saturating_add(other.stolen),
            suspended: self.suspended.saturating_add(other.suspended),
            held: self.held.saturating_add(other.held),
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
            if time >= LOOK_EVERY {
                write!(f, ", {name} {:.1} s", time.as_secs_f64())?;
            }
        }
        Ok(())
    }
}

/// One reading of the system's files.
#[derive(Debug, Default, Clone)]
struct Sample {
    /// When, by a clock that stands still while the host is suspended, and by one that does not.
    monotonic: Duration,
    boot: Duration,
    /// By CPU.
    stolen: Vec<Duration>,
    /// By thread of the program.
    threads: HashMap<String, ThreadTimes>,
    is_held: bool,
}

impl Sample {
    fn read(process: u32) -> Self {
        let clock = |id| {
            let Timespec { tv_sec, tv_nsec } = clock_gettime(id);
            Duration::new(u64::try_from(tv_sec).unwrap_or(0), u32::try_from(tv_nsec).unwrap_or(0))
        };
        let folder = PathBuf::from(format!("/proc/{process}"));
        let text = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
        let times = |thread: PathBuf| {
            let text = fs::read_to_string(thread.join("schedstat")).ok()?;
            Some((thread.file_name()?.to_str()?.to_owned(), ThreadTimes::parse(&text)?))
        };
        Self {
            monotonic: clock(ClockId::Monotonic),
            boot: clock(ClockId::Boottime),
            stolen: stolen(&fs::read_to_string("/proc/stat").unwrap_or_default()),
            threads: threads::of(process).into_iter().filter_map(times).collect(),
            is_held: is_held(&text("stat"), &text("wchan")),
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

/// Adds up what was taken.
#[derive(Debug, Default)]
struct Account {
    /// CPUs that the program's threads share.
    slots: u32,
    last: Sample,
    time: HostTime,
}

impl Account {
    /// The thread slept for so long instead of [`LOOK_EVERY`].
    fn slept(&mut self, time: Duration) {
        let late = time.saturating_sub(LOOK_EVERY);
        if late > LATE {
            self.time.gaps = self.time.gaps.saturating_add(late);
        }
    }

    fn look(&mut self, now: Sample) {
        let before = &self.last;
        let step = now.monotonic.saturating_sub(before.monotonic);
        let away = |sample: &Sample| sample.boot.saturating_sub(sample.monotonic);
        let pairs = now.stolen.iter().zip(&before.stolen);
        let stolen = pairs.map(|(now, before)| now.saturating_sub(*before)).max();
        // Of threads that existed before. A vCPU also waits while another vCPU has the CPU of its slot.
        let threads: Vec<ThreadTimes> = now
            .threads
            .iter()
            .filter_map(|(name, times)| Some(times.since(*before.threads.get(name)?)))
            .collect();
        let nanos = |time: base::units::Nanos| Duration::from_nanos(time.0);
        let ran =
            threads.iter().fold(Duration::ZERO, |all, times| all.saturating_add(nanos(times.ran)));
        let waited = threads.iter().map(|times| nanos(times.waited)).max().unwrap_or_default();
        let of_others = step.saturating_mul(self.slots).saturating_sub(ran);
        let lost = waited.min(of_others).min(step);
        let time = &mut self.time;
        time.stolen = time.stolen.saturating_add(stolen.unwrap_or_default());
        time.suspended = time.suspended.saturating_add(away(&now).saturating_sub(away(before)));
        // Threads whose turns are over wait for up to two fifths of the time until they sleep (`study::disturbance`).
        if lost > step / 2 {
            time.waited = time.waited.saturating_add(lost);
        }
        if now.is_held && before.is_held {
            time.held = time.held.saturating_add(step);
        }
        self.last = now;
    }
}

/// Watches the host while a program runs.
#[derive(Debug)]
pub struct HostWatch {
    began: Instant,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    account: Mutex<Account>,
    is_over: AtomicBool,
}

impl HostWatch {
    /// Starts to watch for this process, whose threads share `slots` CPUs.
    pub fn start(process: u32, slots: u32) -> io::Result<Self> {
        let account = Account { slots, last: Sample::read(process), time: HostTime::default() };
        let shared = Arc::new(Shared { account: Mutex::new(account), is_over: false.into() });
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new().spawn(move || theirs.watch(process))?;
        Ok(Self { began: Instant::now(), shared, thread: Some(thread) })
    }

    /// Is the program stopped, or frozen?
    pub fn is_held(&self) -> bool {
        self.shared.account().last.is_held
    }

    /// Ends the watch. Returns all time taken.
    pub fn end(mut self) -> HostTime {
        self.join();
        let time = self.shared.account().time;
        HostTime { wall: self.began.elapsed().saturating_add(time.suspended), ..time }.judged()
    }

    fn join(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        // A thread that panicked has nothing to add.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Drop for HostWatch {
    fn drop(&mut self) {
        self.join();
    }
}

impl Shared {
    fn account(&self) -> std::sync::MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self, process: u32) {
        for number in 1_u32.. {
            let before = Instant::now();
            thread::sleep(LOOK_EVERY);
            let slept = before.elapsed();
            self.account().slept(slept);
            let is_over = self.is_over.load(Ordering::Relaxed);
            if is_over || number % FILES_EVERY == 0 || slept > LATE {
                let sample = Sample::read(process);
                self.account().look(sample);
            }
            if is_over {
                return;
            }
        }
    }
}

#[cfg(test)]
#[path = "host_time_tests.rs"]
mod tests;
