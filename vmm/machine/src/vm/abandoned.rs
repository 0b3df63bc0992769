//! vCPU threads that did not stop in time, and the resources that they use.
//!
//! Such a thread may stop at any later time. If it then dropped the last reference to a resource, it would make calls
//! that are forbidden for its class (for timers of a schedule, or the affinity of other threads), and the filter would
//! end the process. So its machine is kept here, and nothing is measured until the thread has ended.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::vcpu::VcpuShared;
use base::units::VcpuId;
use kvm::signal;

/// Time to wait for a thread before other work begins.
pub const TIMEOUT: Duration = Duration::from_secs(10);

const PAUSE: Duration = Duration::from_millis(5);

/// Threads that use a resource of type `T`.
#[derive(Debug)]
struct AbandonedThreads<T>(Mutex<Vec<AbandonedThread<T>>>);

#[derive(Debug)]
struct AbandonedThread<T> {
    id: VcpuId,
    thread: JoinHandle<()>,
    /// Dropped by the waiter for the thread.
    _resource: T,
}

static ALL: AbandonedThreads<Arc<VcpuShared>> = AbandonedThreads::new();

/// Abandons the thread of this vCPU, which uses `shared`.
pub(super) fn add(id: VcpuId, thread: JoinHandle<()>, shared: Arc<VcpuShared>) {
    ALL.add(id, thread, shared);
}

/// Waits until all abandoned threads have ended, for at most `timeout` or until `is_interrupted`. Returns a vCPU
/// whose thread still exists.
pub fn wait(timeout: Duration, is_interrupted: impl Fn() -> bool) -> Option<VcpuId> {
    ALL.wait(timeout, is_interrupted)
}

impl<T> AbandonedThreads<T> {
    const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<AbandonedThread<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, id: VcpuId, thread: JoinHandle<()>, resource: T) {
        self.lock().push(AbandonedThread { id, thread, _resource: resource });
    }

    fn wait(&self, timeout: Duration, is_interrupted: impl Fn() -> bool) -> Option<VcpuId> {
        let deadline = Instant::now() + timeout;
        loop {
            let mut threads = self.lock();
            threads.retain(|entry| !entry.thread.is_finished());
            let first = threads.first()?.id;
            // A signal between two guest runs ends only the next run.
            threads.iter().for_each(|entry| signal::kick(&entry.thread));
            drop(threads);
            if is_interrupted() || Instant::now() >= deadline {
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
    struct DropReporter(Sender<ThreadId>);

    impl Drop for DropReporter {
        fn drop(&mut self) {
            self.0.send(thread::current().id()).unwrap();
        }
    }

    /// Regression: a thread dropped its schedule's timers in a later cell, and its filter ended the process.
    #[test]
    fn waiter_drops_the_resources_of_a_thread() {
        let threads = AbandonedThreads::new();
        let (end, ended) = mpsc::channel::<()>();
        let (drops, dropped) = mpsc::channel();
        let resource = Arc::new(DropReporter(drops));
        let clone = resource.clone();
        // The thread inherits the mask. The kick sent to it would otherwise end this process.
        signal::block_in_this_thread().unwrap();
        let thread = thread::spawn(move || {
            let _ = ended.recv();
            drop(clone);
        });
        threads.add(VcpuId(3), thread, resource);
        assert_eq!(threads.wait(Duration::from_secs(600), || true), Some(VcpuId(3)));
        assert_eq!(threads.wait(Duration::from_millis(20), || false), Some(VcpuId(3)));
        assert!(dropped.try_recv().is_err());
        drop(end);
        assert_eq!(threads.wait(Duration::from_secs(600), || false), None);
        assert_eq!(dropped.try_recv(), Ok(thread::current().id()));
    }
}
