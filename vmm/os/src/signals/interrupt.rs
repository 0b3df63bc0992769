//! A flag that ends work in progress, with a descriptor to poll.

use std::{
    future,
    io::{self, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

/// Maximum sleep between two checks of the flag.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// A flag that ends work early. Clones share the flag.
#[derive(Debug, Clone, Default)]
pub struct Interrupt {
    flag: Arc<AtomicBool>,
    sockets: Option<Arc<SocketPair>>,
}

/// Waits for an [`Interrupt`] to be raised.
#[derive(Debug)]
pub struct Listener(Option<tokio::net::UnixStream>);

impl Listener {
    /// Returns once the flag is raised; never for a flag without a descriptor.
    pub async fn raised(&self) {
        let is_raised = match &self.0 {
            Some(socket) => socket.readable().await.is_ok(),
            None => false,
        };
        if !is_raised {
            future::pending().await
        }
    }
}

#[derive(Debug)]
struct SocketPair {
    /// Becomes readable when the flag is raised, and stays readable.
    read_end: UnixStream,
    write_end: UnixStream,
}

impl Interrupt {
    /// Creates a flag without a descriptor; signals do not raise it.
    pub fn never() -> Self {
        Self::default()
    }

    /// Returns the flag raised by signals, from [`super::catch`].
    pub fn on_signals() -> io::Result<Self> {
        super::catch()
    }

    /// Creates a flag with a descriptor.
    pub fn with_descriptor() -> io::Result<Self> {
        let (read_end, write_end) = UnixStream::pair()?;
        let sockets = Some(Arc::new(SocketPair { read_end, write_end }));
        Ok(Self { flag: Arc::default(), sockets })
    }

    /// Returns a descriptor that becomes readable when the flag is raised, and stays readable.
    /// None for a flag without a descriptor.
    pub fn descriptor(&self) -> io::Result<Option<OwnedFd>> {
        self.sockets.as_ref().map(|pair| pair.read_end.as_fd().try_clone_to_owned()).transpose()
    }

    /// Borrows the [`descriptor`](Self::descriptor).
    pub fn as_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.sockets.as_ref().map(|sockets| sockets.read_end.as_fd())
    }

    /// Returns an asynchronous listener. Must be called within a tokio runtime.
    pub fn listener(&self) -> io::Result<Listener> {
        let Some(sockets) = &self.sockets else { return Ok(Listener(None)) };
        let socket = sockets.read_end.try_clone()?;
        // The byte of `raise` is never read.
        socket.set_nonblocking(true)?;
        tokio::net::UnixStream::from_std(socket).map(Some).map(Listener)
    }

    /// Raises the flag.
    pub fn raise(&self) {
        // One byte is enough, and never blocks.
        if !self.flag.swap(true, SeqCst)
            && let Some(sockets) = &self.sockets
        {
            let _ = (&sockets.write_end).write(&[1]);
        }
    }

    /// Whether the flag has been raised.
    pub fn raised(&self) -> bool {
        self.flag.load(SeqCst)
    }

    /// Sleeps until `deadline`; returns `false` as soon as the flag is raised.
    pub fn sleep_until(&self, deadline: Instant) -> bool {
        loop {
            if self.raised() {
                return false;
            }
            match deadline.checked_duration_since(Instant::now()) {
                Some(pause) if !pause.is_zero() => thread::sleep(pause.min(CHECK_INTERVAL)),
                _ => return true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_until_deadline_or_interrupt() {
        let interrupt = Interrupt::never();
        let start = Instant::now();
        assert!(interrupt.sleep_until(start + Duration::from_millis(20)));
        assert!(start.elapsed() >= Duration::from_millis(20));
        interrupt.raise();
        assert!(!interrupt.clone().sleep_until(start + Duration::from_secs(3600)));
    }
}
