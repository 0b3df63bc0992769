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
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A flag that ends an experiment early. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Interrupt {
    flag: Arc<AtomicBool>,
    bell: Option<Arc<Bell>>,
}

/// Waits for an [`Interrupt`] to be raised.
#[derive(Debug)]
pub struct Listener(Option<tokio::net::UnixStream>);

impl Listener {
    /// Returns once the flag is raised.
    pub async fn raised(&self) {
        let is_raised = match &self.0 {
            Some(heard) => heard.readable().await.is_ok(),
            None => false,
        };
        if !is_raised {
            future::pending().await
        }
    }
}

/// A socket pair within the process.
#[derive(Debug)]
struct Bell {
    /// Becomes readable when the flag is raised, and stays readable.
    heard: UnixStream,
    /// The write end.
    rung: UnixStream,
}

impl Interrupt {
    /// Creates a flag that signals do not raise.
    pub fn never() -> Self {
        Self::default()
    }

    /// Returns the flag that SIGINT, SIGTERM and SIGHUP raise, from [`super::catch`].
    pub fn on_signals() -> io::Result<Self> {
        super::catch()
    }

    /// Creates a flag with a descriptor.
    pub fn with_bell() -> io::Result<Self> {
        let (heard, rung) = UnixStream::pair()?;
        Ok(Self { flag: Arc::default(), bell: Some(Arc::new(Bell { heard, rung })) })
    }

    /// Returns a descriptor that becomes readable when the flag is raised, and stays readable.
    /// None for a flag without a descriptor.
    pub fn descriptor(&self) -> io::Result<Option<OwnedFd>> {
        self.bell.as_ref().map(|bell| bell.heard.as_fd().try_clone_to_owned()).transpose()
    }

    /// Returns the same descriptor, borrowed.
    pub fn as_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.bell.as_ref().map(|bell| bell.heard.as_fd())
    }

    /// Returns an asynchronous listener. Must be called within a tokio runtime.
    pub fn listener(&self) -> io::Result<Listener> {
        let Some(bell) = &self.bell else { return Ok(Listener(None)) };
        let heard = bell.heard.try_clone()?;
        // The byte is never read.
        heard.set_nonblocking(true)?;
        tokio::net::UnixStream::from_std(heard).map(Some).map(Listener)
    }

    /// Raises the flag.
    pub fn raise(&self) {
        self.flag.store(true, SeqCst);
        if let Some(bell) = &self.bell {
            // A full socket is already readable.
            let _ = (&bell.rung).write(&[1]);
        }
    }

    /// Whether the flag has been raised.
    pub fn raised(&self) -> bool {
        self.flag.load(SeqCst)
    }

    /// Sleeps until `deadline`; returns `false` if the flag was raised before.
    pub fn sleep_until(&self, deadline: Instant) -> bool {
        loop {
            if self.raised() {
                return false;
            }
            match deadline.checked_duration_since(Instant::now()) {
                Some(left) if !left.is_zero() => thread::sleep(left.min(LOOK_EVERY)),
                _ => return true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_to_the_end_unless_raised() {
        let interrupt = Interrupt::never();
        let start = Instant::now();
        assert!(interrupt.sleep_until(start + Duration::from_millis(20)));
        assert!(start.elapsed() >= Duration::from_millis(20));
        interrupt.raise();
        assert!(!interrupt.clone().sleep_until(start + Duration::from_secs(3600)));
    }
}
