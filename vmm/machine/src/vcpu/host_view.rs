//! The host kernel's counts for a machine's vCPUs and the state of their threads, readable at any time.

use std::{fs::File, os::unix::fs::FileExt, sync::OnceLock};

use crate::clock::Moment;
use base::{
    host_counts::{HostCounts, ThreadTimes, YieldCounts},
    units::{Nanos, VcpuCount, VcpuId},
};
use kvm::{signal::ThreadClock, stats::Yields};

/// Scheduler statistics of the calling thread.
const TIMES: &str = "/proc/thread-self/schedstat";
/// State of the calling thread (proc_pid_stat(5)).
const STATE: &str = "/proc/thread-self/stat";

/// Maximum length of [`TIMES`], which has three numbers. Also covers the state in [`STATE`], which follows a
/// number and a name of at most 15 characters.
const MAX_TEXT: usize = 64;

/// The files to read. If a file cannot be opened, because the kernel lacks it or no descriptor is left, its
/// count is missing.
#[derive(Debug, Default)]
pub struct HostView {
    /// By vCPU, opened by the vCPU's own thread.
    threads: Box<[OnceLock<ThreadStatFiles>]>,
    is_counted: bool,
    yields: Box<[Yields]>,
}

#[derive(Debug)]
struct ThreadStatFiles {
    times: Option<File>,
    state: Option<File>,
    clock: Option<ThreadClock>,
}

impl HostView {
    /// Creates a view of this number of vCPUs that reads their CPU times and states, but no counts.
    pub fn new(vcpus: VcpuCount) -> Self {
        let threads = vcpus.ids().map(|_| OnceLock::new()).collect();
        Self { threads, is_counted: false, yields: Box::default() }
    }

    /// Enables counting, and KVM's yield counters.
    #[must_use]
    pub fn with_counts(self, yields: Vec<Yields>) -> Self {
        Self { is_counted: true, yields: yields.into(), ..self }
    }

    /// Registers the calling thread as this vCPU's. Must be called before the thread is confined.
    pub fn register(&self, vcpu: VcpuId) {
        if let Some(files) = self.threads.get(vcpu.0 as usize) {
            let times = self.is_counted.then(|| File::open(TIMES).ok()).flatten();
            let (state, clock) = (File::open(STATE).ok(), ThreadClock::current());
            let _ = files.set(ThreadStatFiles { times, state, clock });
        }
    }

    /// Returns the counts since the threads started. Omits all threads if the counts of any are missing.
    pub fn read(&self) -> HostCounts {
        let window = Moment::now().nanos();
        let times = self.threads.iter().map(|thread| times(thread.get()?.times.as_ref()?));
        let vcpus: Vec<_> = times.collect::<Option<_>>().unwrap_or_default();
        let vcpu_ids = (0..).map(VcpuId).take(vcpus.len());
        HostCounts {
            window,
            runnable: vcpu_ids.map(|vcpu| self.is_runnable(vcpu) == Some(true)).collect(),
            vcpus,
            yields: self
                .yields
                .iter()
                .map(Yields::read)
                .reduce(YieldCounts::plus)
                .unwrap_or_default(),
        }
    }

    /// Whether the thread of this vCPU has or waits for a CPU. None if unknown.
    pub fn is_runnable(&self, vcpu: VcpuId) -> Option<bool> {
        let file = self.threads.get(vcpu.0 as usize)?.get()?.state.as_ref()?;
        Some(state(text(file, &mut [0; MAX_TEXT])?)? == b'R')
    }

    /// Returns the CPU time of this vCPU's thread, or None if it has not started or has ended.
    pub fn cpu_time(&self, vcpu: VcpuId) -> Option<Nanos> {
        self.threads.get(vcpu.0 as usize)?.get()?.clock?.read()
    }
}

/// Reads the beginning of a file.
fn text<'a>(file: &File, space: &'a mut [u8; MAX_TEXT]) -> Option<&'a [u8]> {
    let count = file.read_at(space, 0).ok()?;
    space.get(..count)
}

fn times(file: &File) -> Option<ThreadTimes> {
    ThreadTimes::parse(str::from_utf8(text(file, &mut [0; MAX_TEXT])?).ok()?)
}

/// Returns the state, the letter after the name. The name is in parentheses and may contain some itself.
fn state(text: &[u8]) -> Option<u8> {
    let end = text.iter().rposition(|byte| *byte == b')')?;
    text.get(end + 2).copied()
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread, time::Duration};

    use super::*;

    /// Compares a thread's own times with the clock.
    #[test]
    fn other_threads_can_read_the_counts() {
        let view = HostView::new(VcpuCount::try_from(1).unwrap()).with_counts(Vec::new());
        assert!(view.read().vcpus.is_empty(), "its thread has not come");
        thread::scope(|scope| {
            scope.spawn(|| {
                view.register(VcpuId(0));
                let before = view.read();
                let accounted = || {
                    let total = view.read().since(&before).total();
                    total.ran.after(total.waited)
                };
                let began = Moment::now();
                while Moment::now().since(began) < Nanos::millis(30) {}
                // Without CONFIG_SCHED_INFO all counts are zero. A stopped host counts nothing.
                while (1..Nanos::millis(20).0).contains(&accounted().0) {}
                let window = view.read().since(&before).window;
                assert!(window >= Nanos::millis(30), "{window}");
            });
            thread::sleep(Duration::from_millis(1));
        });
        assert_eq!(view.read().yields, YieldCounts::default());
    }

    #[test]
    fn parses_the_state_after_the_name() {
        assert_eq!(state(b"71 (vcpu0) R 70 71"), Some(b'R'));
        assert_eq!(state(b"71 (a) R (b) S 70"), Some(b'S'));
        assert_eq!((state(b"71 (vcpu0)"), state(b"71")), (None, None));
    }

    #[test]
    fn distinguishes_sleeping_and_running_threads() {
        let view = HostView::new(VcpuCount::try_from(1).unwrap());
        assert_eq!((view.is_runnable(VcpuId(0)), view.cpu_time(VcpuId(0))), (None, None));
        let (end, ended) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let view = &view;
            scope.spawn(move || {
                view.register(VcpuId(0));
                assert_eq!(view.is_runnable(VcpuId(0)), Some(true));
                let _ = ended.recv();
            });
            while view.is_runnable(VcpuId(0)) != Some(false) {
                thread::sleep(Duration::from_millis(1));
            }
            assert!(view.cpu_time(VcpuId(0)).unwrap() > Nanos::ZERO);
            assert_eq!(view.read().vcpus, [], "its times are not counted");
            drop(end);
        });
    }
}
