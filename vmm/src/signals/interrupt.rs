//! A flag that ends what is under way, and a descriptor that says so.

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

/// Longest sleep without a look at the flag.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A flag that ends an experiment early. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Interrupt {
    flag: Arc<AtomicBool>,
    bell: Option<Arc<Bell>>,
}

/// Waits for an [`Interrupt`].
#[derive(Debug)]
pub struct Listener(Option<tokio::net::UnixStream>);

impl Listener {
    /// Until it is raised.
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

/// A connection to ourselves.
#[derive(Debug)]
struct Bell {
    /// Becomes readable when the flag is raised, and stays so.
    heard: UnixStream,
    /// What makes it so.
    rung: UnixStream,
}

impl Interrupt {
    /// A flag that nobody raises.
    pub fn never() -> Self {
        Self::default()
    }

    /// A flag that SIGINT, SIGTERM and SIGHUP raise, as [`super::catch`] has it.
    pub fn on_signals() -> io::Result<Self> {
        super::catch()
    }

    /// One with a descriptor.
    pub(crate) fn with_bell() -> io::Result<Self> {
        let (heard, rung) = UnixStream::pair()?;
        Ok(Self { flag: Arc::default(), bell: Some(Arc::new(Bell { heard, rung })) })
    }

    /// A descriptor that becomes readable when the flag is raised, and stays so, if anything
    /// raises it.
    pub fn descriptor(&self) -> io::Result<Option<OwnedFd>> {
        self.bell.as_ref().map(|bell| bell.heard.as_fd().try_clone_to_owned()).transpose()
    }

    /// The same, borrowed.
    pub fn as_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.bell.as_ref().map(|bell| bell.heard.as_fd())
    }

    /// What waits for it on a runtime, which must be there.
    pub fn listener(&self) -> io::Result<Listener> {
        let Some(bell) = &self.bell else { return Ok(Listener(None)) };
        let heard = bell.heard.try_clone()?;
        // Nobody reads of it.
        heard.set_nonblocking(true)?;
        tokio::net::UnixStream::from_std(heard).map(Some).map(Listener)
    }

    /// Raises it.
    pub fn raise(&self) {
        self.flag.store(true, SeqCst);
        if let Some(bell) = &self.bell {
            // A full socket has been rung already.
            let _ = (&bell.rung).write(&[1]);
        }
    }

    /// Has it been raised?
    pub fn raised(&self) -> bool {
        self.flag.load(SeqCst)
    }

    /// Sleeps until `deadline`; `false`: interrupted before.
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
