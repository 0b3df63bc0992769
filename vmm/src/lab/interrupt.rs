//! Ctrl-C, seen by whoever waits.

use std::{
    io::{self, Write},
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
    low_level::pipe,
};

/// Longest sleep without a look at the flag.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A flag that ends an experiment early. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Interrupt {
    flag: Arc<AtomicBool>,
    /// Becomes readable when it is raised, and stays so.
    descriptor: Option<Arc<OwnedFd>>,
    /// What makes it so.
    bell: Option<Arc<UnixStream>>,
}

impl Interrupt {
    /// A flag that nobody raises.
    pub fn never() -> Self {
        Self::default()
    }

    /// A flag that SIGINT, SIGTERM and SIGHUP raise, and do nothing else from now
    /// on.
    pub fn on_signals() -> io::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        let (read, write) = UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            flag::register(signal, flag.clone())?;
            pipe::register(signal, write.try_clone()?)?;
        }
        Ok(Self { flag, descriptor: Some(Arc::new(read.into())), bell: Some(Arc::new(write)) })
    }

    /// A descriptor that becomes readable when the flag is raised, if anything
    /// raises it.
    pub fn descriptor(&self) -> io::Result<Option<OwnedFd>> {
        self.descriptor.as_ref().map(|descriptor| descriptor.try_clone()).transpose()
    }

    /// Raises it.
    pub fn raise(&self) {
        self.flag.store(true, SeqCst);
        if let Some(bell) = &self.bell {
            // A full socket has been rung already.
            let _ = bell.as_ref().write(&[1]);
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
