//! Stdout and stderr of this program, unbuffered.
//!
//! A write waits for a slow reader indefinitely, until a signal asks the program to end ([`signals`]). Then
//! it waits for [`GRACE`] more and drops the rest, so that a stalled reader of a pipe does not keep the
//! program from exiting. A closed pipe is not an error. Any other failure of stdout ([`failure`]), or of a
//! guest's input ([`input_failure`]), makes the program fail at its end.

use std::{
    fmt,
    io::{self, ErrorKind, Write},
    os::fd::BorrowedFd,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    stdio,
    termios::isatty,
};

use crate::signals::{self, Interrupt};
use base::sanitize;

/// Time for which a reader may stall after a signal has asked the program to end.
const GRACE: Duration = Duration::from_millis(500);

/// Minimum wait of a single write after such a signal, however long ago it arrived.
const MIN_WAIT: Duration = Duration::from_millis(50);

/// Bytes that a pipe accepts at once if it polls as writable (`PIPE_BUF`, pipe(7)): such a write does not
/// block.
const PIPE_BUF: usize = 4096;

/// Pause after a descriptor polled as writable but was not.
const PAUSE: Duration = Duration::from_millis(1);

/// One of the two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// State of one stream. The lock serializes the writes of threads.
#[derive(Debug)]
struct StreamState {
    lock: Mutex<()>,
    has_stalled: AtomicBool,
}

static STATES: [StreamState; 2] = [
    StreamState { lock: Mutex::new(()), has_stalled: AtomicBool::new(false) },
    StreamState { lock: Mutex::new(()), has_stalled: AtomicBool::new(false) },
];

/// The first error of stdout other than a closed or stalled pipe.
static FAILURE: OnceLock<io::Error> = OnceLock::new();

/// The error that ended a guest's input.
static INPUT_FAILURE: OnceLock<io::Error> = OnceLock::new();

impl Stream {
    fn fd(self) -> BorrowedFd<'static> {
        match self {
            Self::Stdout => stdio::stdout(),
            Self::Stderr => stdio::stderr(),
        }
    }

    fn state(self) -> &'static StreamState {
        &STATES[self as usize]
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write(*self, bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Prints on stdout, replacing control characters other than line feeds. Errors other than a closed or stalled
/// pipe become the [`failure`].
pub fn print(text: &str) {
    print_raw(sanitize::lines(text).as_bytes());
}

/// Prints JSON on stdout, escaping control characters.
pub fn print_json(text: &str) {
    print_raw(sanitize::json(text).as_bytes());
}

/// Prints bytes on stdout unchanged, for other programs.
pub fn print_raw(bytes: &[u8]) {
    if let Err(error) = write(Stream::Stdout, bytes)
        && !matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::TimedOut)
    {
        let _ = FAILURE.set(error);
    }
}

/// Prints one line on stderr, replacing all control characters. Errors are ignored.
pub fn eprint_line(text: fmt::Arguments<'_>) {
    let _ = write(Stream::Stderr, format!("{}\n", sanitize::line(&text.to_string())).as_bytes());
}

/// Returns the error that made stdout fail, if any.
pub fn failure() -> Option<&'static io::Error> {
    FAILURE.get()
}

/// Records that reading stdin for a guest has failed, which must not be mistaken for the end of its input. A
/// terminal that has hung up (EIO) is not recorded.
pub fn input_failed(error: io::Error) {
    if error.raw_os_error() == Some(Errno::IO.raw_os_error()) && input_is_terminal() {
        return;
    }
    let _ = INPUT_FAILURE.set(error);
}

/// Whether stdin is a terminal. Must first be called before confinement, which forbids the query.
pub fn input_is_terminal() -> bool {
    static IS_TERMINAL: OnceLock<bool> = OnceLock::new();
    *IS_TERMINAL.get_or_init(|| isatty(stdio::stdin()))
}

/// Returns the error that ended a guest's input, if any.
pub fn input_failure() -> Option<&'static io::Error> {
    INPUT_FAILURE.get()
}

/// Writes all bytes. Fails with [`ErrorKind::TimedOut`] if the program is to end and the reader has stalled.
pub fn write(stream: Stream, bytes: &[u8]) -> io::Result<()> {
    let StreamState { lock, has_stalled } = stream.state();
    let _lock = lock.lock().unwrap_or_else(PoisonError::into_inner);
    if has_stalled.load(SeqCst) {
        return Err(ErrorKind::TimedOut.into());
    }
    let stop = signals::caught();
    let written = write_to(stream.fd(), bytes, stop.as_ref());
    if written.as_ref().is_err_and(|error| error.kind() == ErrorKind::TimedOut) {
        has_stalled.store(true, SeqCst);
    }
    written
}

/// Writes all bytes to a descriptor, like [`write()`]; `stop` is raised when the program is to end.
pub fn write_to(fd: BorrowedFd<'_>, mut bytes: &[u8], stop: Option<&Interrupt>) -> io::Result<()> {
    while !bytes.is_empty() {
        wait(fd, stop)?;
        match rustix::io::write(fd, &bytes[..bytes.len().min(PIPE_BUF)]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            // Another process has set O_NONBLOCK, and another writer was faster.
            Err(Errno::AGAIN) => thread::sleep(PAUSE),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Waits until the descriptor accepts more data. Fails when the grace period has expired.
fn wait(fd: BorrowedFd<'_>, stop: Option<&Interrupt>) -> io::Result<()> {
    let descriptor = stop.and_then(Interrupt::as_descriptor);
    loop {
        let remaining = stop.filter(|stop| stop.raised()).map(|_| {
            let since = signals::since_first().unwrap_or_default();
            GRACE.saturating_sub(since).max(MIN_WAIT)
        });
        let limit = remaining.and_then(|remaining| Timespec::try_from(remaining).ok());
        let mut fds = vec![PollFd::new(&fd, PollFlags::OUT)];
        // Once the flag is raised, the descriptor stays readable, and polling it again would not wait.
        if let (None, Some(descriptor)) = (remaining, &descriptor) {
            fds.push(PollFd::new(descriptor, PollFlags::IN));
        }
        match poll(&mut fds, limit.as_ref()) {
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(0) => return Err(ErrorKind::TimedOut.into()),
            Ok(_) if !fds[0].revents().is_empty() => return Ok(()),
            Ok(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::AsFd, time::Instant};

    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    /// Creates a pipe that accepts no more data.
    fn stalled() -> (impl AsFd, impl AsFd) {
        let (read, write) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        while rustix::io::write(&write, &[0; PIPE_BUF]).is_ok() {}
        (read, write)
    }

    #[test]
    fn stalled_readers_are_abandoned_after_a_signal() {
        let (_read, write) = stalled();
        let stop = Interrupt::with_descriptor().unwrap();
        let raised = stop.clone();
        let begin = Instant::now();
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            raised.raise();
        });
        let error = write_to(write.as_fd(), b"last words", Some(&stop)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(begin.elapsed() >= Duration::from_millis(100) + MIN_WAIT);
    }

    #[test]
    fn slow_readers_get_all_data() {
        let (read, write) = stalled();
        let reader = thread::spawn(move || {
            let mut bytes = Vec::new();
            let mut buffer = [0; 1 << 16];
            while !bytes.ends_with(b"end") {
                match rustix::io::read(&read, &mut buffer) {
                    Ok(count) => bytes.extend(&buffer[..count]),
                    Err(_) => thread::sleep(PAUSE),
                }
            }
            bytes.iter().filter(|byte| **byte == 7).count()
        });
        let text = [vec![7; 3 * PIPE_BUF + 1], b"end".to_vec()].concat();
        write_to(write.as_fd(), &text, Some(&Interrupt::never())).unwrap();
        assert_eq!(reader.join().unwrap(), 3 * PIPE_BUF + 1);
    }

    #[test]
    fn full_disks_and_closed_pipes_differ() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let error = write_to(full.as_fd(), b"x", None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        let (read, write) = rustix::pipe::pipe().unwrap();
        drop(read);
        let error = write_to(write.as_fd(), b"x", None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    }
}
