//! vCPU threads that did not stop in time, and the resources that they use.
//!
//! Such a thread may stop at any later time. If it then dropped the last reference to a resource, it would
//! make calls that are forbidden for its class (for timers of a schedule, or the affinity of other threads),
//! and the filter would end the process. So its machine is kept here, and nothing is measured until then.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::vcpu::Board;
use base::units::VcpuId;
use kvm::signal;

/// Time to wait for a thread before other work begins.
pub const PATIENCE: Duration = Duration::from_secs(10);

const PAUSE: Duration = Duration::from_millis(5);

/// Threads that use a resource of type `T`.
#[derive(Debug)]
struct LeftBehind<T>(Mutex<Vec<LeftThread<T>>>);

#[derive(Debug)]
struct LeftThread<T> {
    id: VcpuId,
    thread: JoinHandle<()>,
    /// Dropped by the waiter for the thread.
    _used: T,
}

static ALL: LeftBehind<Arc<Board>> = LeftBehind::new();

/// Abandons the thread of this vCPU, which uses `board`.
pub(super) fn add(id: VcpuId, thread: JoinHandle<()>, board: Arc<Board>) {
    ALL.add(id, thread, board);
}

/// Waits until all abandoned threads have ended, for at most `patience` or until `is_over`. Returns a vCPU
/// whose thread still exists.
pub fn wait(patience: Duration, is_over: impl Fn() -> bool) -> Option<VcpuId> {
    ALL.wait(patience, is_over)
}

impl<T> LeftBehind<T> {
    const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<LeftThread<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, id: VcpuId, thread: JoinHandle<()>, used: T) {
        self.lock().push(LeftThread { id, thread, _used: used });
    }

    fn wait(&self, patience: Duration, is_over: impl Fn() -> bool) -> Option<VcpuId> {
        let deadline = Instant::now() + patience;
        loop {
            let mut all = self.lock();
            all.retain(|left| !left.thread.is_finished());
            let first = all.first()?.id;
            // A signal between two guest runs ends only the next run.
            all.iter().for_each(|left| signal::kick(&left.thread));
            drop(all);
            if is_over() || Instant::now() >= deadline {
                return Some(first);
            }
            thread::sleep(PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::mpsc::{self, Sender},
        thread::ThreadId,
    };

    use super::*;

    /// Reports the thread that drops it.
    struct Used(Sender<ThreadId>);

    impl Drop for Used {
        fn drop(&mut self) {
            self.0.send(thread::current().id()).unwrap();
        }
    }

    /// Regression: a thread dropped its schedule's timers in a later cell, and its filter ended the process.
    #[test]
    fn the_resources_of_a_thread_are_dropped_by_its_waiter() {
        let all = LeftBehind::new();
        let (end, ended) = mpsc::channel::<()>();
        let (say, dropped) = mpsc::channel();
        let ours = Arc::new(Used(say));
        let theirs = ours.clone();
        // Inherited by the thread. It is sent the kick, which would otherwise end this process.
        signal::block_in_this_thread().unwrap();
        let thread = thread::spawn(move || {
            let _ = ended.recv();
            drop(theirs);
        });
        all.add(VcpuId(3), thread, ours);
        assert_eq!(all.wait(Duration::from_secs(600), || true), Some(VcpuId(3)));
        assert_eq!(all.wait(Duration::from_millis(20), || false), Some(VcpuId(3)));
        assert!(dropped.try_recv().is_err());
        drop(end);
        assert_eq!(all.wait(Duration::from_secs(600), || false), None);
        assert_eq!(dropped.try_recv(), Ok(thread::current().id()));
    }
}
