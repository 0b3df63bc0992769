//! Guest output, written by the vCPU threads: a slow reader slows the guest down instead of filling memory.
//! A vCPU that waits for the reader does not hold a slot.

use std::{
    fmt,
    fs::File,
    io::{self, Write},
    sync::{Mutex, MutexGuard, PoisonError, TryLockError},
};

/// Destination of a guest's output.
pub trait Sink: Write + Send {
    /// Writes as much as the reader accepts without blocking. Returns the number of bytes written; an
    /// implementation that never blocks writes all.
    fn write_now(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }
}

impl Sink for io::Sink {}
impl Sink for File {}

/// Runs its argument, which may block on a reader, once. In the meantime, a vCPU thread gives up its slot.
pub type WaitRunner<'a> = &'a dyn Fn(&mut dyn FnMut() -> io::Result<()>) -> io::Result<()>;

/// The [`WaitRunner`] of a thread that has already given up its slot.
const WITHOUT_SLOT: WaitRunner<'static> = &|wait| wait();

/// A sink shared by several threads.
pub struct Output(Mutex<Box<dyn Sink>>);

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Output")
    }
}

impl Output {
    /// Creates an output to `sink`.
    pub fn new(sink: Box<dyn Sink>) -> Self {
        Self(Mutex::new(sink))
    }

    /// Writes all bytes, or returns the error, for instance that the reader has closed the output. Waits
    /// for the reader or another writer only within `run_wait`.
    pub fn write(&self, bytes: &[u8], run_wait: WaitRunner<'_>) -> io::Result<()> {
        self.locked(run_wait, |locked, run_wait| locked.write(bytes, run_wait))
    }

    /// Runs `act` with the output locked. `act` waits by its second argument: `run_wait`, unless already within it.
    pub(super) fn locked(
        &self,
        run_wait: WaitRunner<'_>,
        act: impl Fn(Locked<'_>, WaitRunner<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let sink = match self.0.try_lock() {
            Ok(sink) => sink,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Another thread is writing, or waiting for the reader.
            Err(TryLockError::WouldBlock) => {
                return run_wait(&mut || {
                    let sink = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                    act(Locked(sink), WITHOUT_SLOT)
                });
            }
        };
        act(Locked(sink), run_wait)
    }
}

pub(super) struct Locked<'a>(MutexGuard<'a, Box<dyn Sink>>);

impl Locked<'_> {
    /// Like [`Output::write`].
    pub(super) fn write(mut self, bytes: &[u8], run_wait: WaitRunner<'_>) -> io::Result<()> {
        let written = self.0.write_now(bytes)?;
        if written == bytes.len() {
            return self.0.flush();
        }
        let mut sink = Some(self.0);
        run_wait(&mut || {
            // The output is unlocked once the reader has taken everything, before the wait for a slot.
            let Some(mut sink) = sink.take() else { return Ok(()) };
            sink.write_all(&bytes[written..])?;
            sink.flush()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        cell::Cell,
        sync::{Arc, mpsc},
        thread,
    };

    use super::*;

    /// Accepts `room` bytes at once, and the rest after a wait.
    struct SlowSink {
        room: usize,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for SlowSink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.written.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Sink for SlowSink {
        fn write_now(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let now = bytes.len().min(self.room);
            self.room -= now;
            self.write(&bytes[..now])
        }
    }

    fn output(room: usize) -> (Output, Arc<Mutex<Vec<u8>>>) {
        let written = Arc::new(Mutex::new(Vec::new()));
        (Output::new(Box::new(SlowSink { room, written: written.clone() })), written)
    }

    /// Writes the bytes. Returns the number of times that the thread waited.
    fn write(output: &Output, bytes: &[u8]) -> u32 {
        let waits = Cell::new(0);
        let run_wait: WaitRunner<'_> = &|wait| {
            waits.set(waits.get() + 1);
            wait()
        };
        output.write(bytes, run_wait).unwrap();
        waits.get()
    }

    #[test]
    fn waits_aside_only_for_unaccepted_bytes() {
        let (output, written) = output(5);
        assert_eq!(write(&output, b"abcd"), 0);
        assert_eq!(write(&output, b"efgh"), 1);
        assert_eq!(*written.lock().unwrap(), b"abcdefgh");
    }

    #[test]
    fn output_is_unlocked_while_waiting_for_a_slot() {
        let (output, written) = output(0);
        let run_wait: WaitRunner<'_> = &|wait| {
            wait()?;
            // Acts as another vCPU, which has the slot now.
            assert_eq!(write(&output, b"second"), 1);
            Ok(())
        };
        output.write(b"first ", run_wait).unwrap();
        assert_eq!(*written.lock().unwrap(), b"first second");
    }

    #[test]
    fn waits_aside_for_another_writer() {
        let (output, written) = output(0);
        let (waits, is_waiting) = mpsc::channel();
        let (read, is_read) = mpsc::channel();
        thread::scope(|scope| {
            let output = &output;
            scope.spawn(move || {
                let run_wait: WaitRunner<'_> = &|wait| {
                    waits.send(()).unwrap();
                    is_read.recv().unwrap();
                    wait()
                };
                output.write(b"first ", run_wait).unwrap();
            });
            is_waiting.recv().unwrap();
            let second: WaitRunner<'_> = &|wait| {
                read.send(()).unwrap();
                wait()
            };
            output.write(b"second", second).unwrap();
        });
        assert_eq!(*written.lock().unwrap(), b"first second");
    }
}
