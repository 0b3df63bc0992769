//! vCPU threads that did not leave in time, and what they use.
//!
//! Such a thread comes out at any time later, and what it is then the last to use would be dropped by it, with calls
//! that its class may not make (the timers of a schedule, the affinity of other threads): the filter would end the
//! process. So its machine is kept here until the thread has ended. Nothing is measured beside it meanwhile.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::vcpu::Board;
use base::units::VcpuId;
use kvm::signal;

/// How long a thread is waited for before something else begins.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// Threads that use something of type `T`.
#[derive(Debug)]
struct LeftBehind<T>(Mutex<Vec<LeftThread<T>>>);

#[derive(Debug)]
struct LeftThread<T> {
    id: VcpuId,
    thread: JoinHandle<()>,
    /// Dropped by whoever waits for the thread.
    _used: T,
}

static ALL: LeftBehind<Arc<Board>> = LeftBehind::new();

/// Gives up the thread of this vCPU, which uses `board`.
pub(super) fn add(id: VcpuId, thread: JoinHandle<()>, board: Arc<Board>) {
    ALL.add(id, thread, board);
}

/// Waits until all threads that were given up have ended, for up to `patience`, or until `is_over`. Returns a vCPU whose
/// thread is still there.
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
            // A signal between two runs of its guest ends only the next one.
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

    /// Tells which thread drops it.
    struct Used(Sender<ThreadId>);

    impl Drop for Used {
        fn drop(&mut self) {
            self.0.send(thread::current().id()).unwrap();
        }
    }

    /// Regression: the thread dropped the timers of its schedule in a later cell, and its filter ended the worker.
    #[test]
    fn the_resources_of_a_thread_are_dropped_by_its_waiter() {
        let all = LeftBehind::new();
        let (end, ended) = mpsc::channel::<()>();
        let (say, dropped) = mpsc::channel();
        let ours = Arc::new(Used(say));
        let theirs = ours.clone();
        // Inherited: the thread is sent the kick, which would end this process.
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
