//! Runs work on two threads that wait for each other.

use std::{
    io,
    sync::{atomic::AtomicU64, mpsc},
    thread::{self, Builder},
};

/// A word in its own pair of cache lines, as processors fetch lines in pairs.
#[repr(align(128))]
pub struct PaddedAtomicU64(pub AtomicU64);

/// Runs both on new threads, and waits for them. `second` begins only once both threads exist, or it would wait
/// for `first` forever.
pub fn run_both<A: Send, B: Send>(
    first: impl FnOnce() -> io::Result<A> + Send,
    second: impl FnOnce() -> io::Result<B> + Send,
) -> io::Result<(A, B)> {
    let (go, started) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let second = Builder::new().spawn_scoped(scope, move || match started.recv() {
            Ok(()) => second().map(Some),
            Err(_) => Ok(None),
        })?;
        let first = Builder::new().spawn_scoped(scope, first);
        if first.is_ok() {
            // The second thread waits for this.
            let _ = go.send(());
        }
        // Without the message, the second thread ends.
        drop(go);
        let first = first?;
        let died = |_| io::Error::other("its thread died");
        let first = first.join().map_err(died).flatten();
        let second = second.join().map_err(died).flatten();
        let not_begun = || io::Error::other("its thread did not begin");
        Ok((first?, second?.ok_or_else(not_begun)?))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn threads_run_concurrently() {
        let barrier = &Barrier::new(2);
        let meet = |value| {
            move || {
                barrier.wait();
                Ok(value)
            }
        };
        assert_eq!(run_both(meet(1), meet(2)).unwrap(), (1, 2));
    }

    #[test]
    fn error_of_either_thread_is_returned() {
        let fails = || Err::<(), _>(io::Error::other("why"));
        for done in [run_both(fails, || Ok(())), run_both(|| Ok(()), fails)] {
            assert_eq!(done.unwrap_err().to_string(), "why");
        }
        let panics = || -> io::Result<()> { panic!("for the test") };
        assert_eq!(run_both(|| Ok(()), panics).unwrap_err().to_string(), "its thread died");
    }
}
