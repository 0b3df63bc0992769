//! CPUs that are threads: a halt is `park`, a kick is `unpark` (whose token is the sticky bit).

pub mod bench;
pub mod grammar;
mod progress;

use std::io::Write;
use std::panic::{self, AssertUnwindSafe};
use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use locks::Pv;

use progress::Progress;

/// The threads, once they have started.
pub struct Threads {
    handles: Vec<OnceLock<Thread>>,
    kicks: AtomicU64,
    /// Locks taken.
    taken: AtomicU64,
}

impl Threads {
    /// For `count` CPUs.
    pub fn new(count: usize) -> Self {
        let handles = (0..count).map(|_| OnceLock::new()).collect();
        Self { handles, kicks: AtomicU64::new(0), taken: AtomicU64::new(0) }
    }

    /// A thread has taken the lock.
    pub fn takes(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    /// What happened until now; a wakeup is lost when this stays the same.
    fn happened(&self) -> u64 {
        self.kicks.load(Ordering::Relaxed) + self.taken.load(Ordering::Relaxed)
    }
}

impl Pv for Threads {
    fn spin_hint(&self) {
        // There are more threads than processors: a thread that spins for a preempted one gives
        // way.
        thread::yield_now();
    }

    fn lock_spinning(&self, _ticket: u16) {
        thread::park();
    }

    fn unlock_kick(&self, cpu: usize) {
        self.kicks.fetch_add(1, Ordering::Relaxed);
        self.handles[cpu].get().expect("a kicked CPU has started").unpark();
    }
}

/// A machine without halts.
pub struct Off;

impl Pv for Off {
    const ENABLED: bool = false;

    fn spin_hint(&self) {
        thread::yield_now();
    }

    fn lock_spinning(&self, _ticket: u16) {
        panic!("PV is off");
    }

    fn unlock_kick(&self, _cpu: usize) {
        panic!("PV is off");
    }
}

/// Runs `part` with each number below `count` on a separate thread. If one fails or sleeps forever,
/// the others may never end, and neither would the test: then the process ends.
pub fn run(pv: &Threads, count: usize, part: impl Fn(usize) + Sync) {
    let finished = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    thread::scope(|scope| {
        for id in 0..count {
            let (part, finished, failed) = (&part, &finished, &failed);
            scope.spawn(move || {
                pv.handles[id].get_or_init(thread::current);
                match panic::catch_unwind(AssertUnwindSafe(|| part(id))) {
                    Ok(()) => finished.fetch_add(1, Ordering::SeqCst),
                    Err(payload) => {
                        say(payload
                            .downcast_ref::<String>()
                            .map_or("a CPU failed", String::as_str));
                        failed.store(true, Ordering::SeqCst);
                        0
                    }
                };
            });
        }
        let mut progress = Progress::new();
        while finished.load(Ordering::SeqCst) < count {
            if failed.load(Ordering::SeqCst) {
                process::abort();
            }
            if progress.has_ended(pv.happened() + finished.load(Ordering::SeqCst) as u64) {
                say("a waiter slept forever");
                process::abort();
            }
            thread::sleep(Duration::from_millis(1));
        }
    });
}

/// Unlike `eprintln`, is not captured until the test ends.
fn say(what: &str) {
    let name = thread::current().name().unwrap_or("a CPU").to_owned();
    // A closed standard error cannot be reported.
    let _ = writeln!(std::io::stderr(), "{name}: {what}");
}
