//! The runtime of everything asynchronous: one thread, the caller's.

use std::{io, os::unix::net::UnixStream};

use thiserror::Error;
use tokio::runtime::{Builder, Runtime};

/// Pairs of descriptors that tokio may want at once: an epoll instance and a copy of it, an
/// eventfd, a socket pair for signals and a copy of its end, and some to spare.
const PAIRS: usize = 5;

/// No runtime.
#[derive(Debug, Error)]
#[error("cannot start the event loop: {0}")]
pub struct RuntimeError(#[source] io::Error);

/// Builds it. tokio panics where it can have no descriptors for its signals, so that they are
/// asked for before.
pub fn build() -> Result<Runtime, RuntimeError> {
    let spare = (0..PAIRS).map(|_| UnixStream::pair()).collect::<io::Result<Vec<_>>>();
    drop(spare.map_err(RuntimeError)?);
    Builder::new_current_thread().enable_all().build().map_err(RuntimeError)
}
