//! Runtime of all asynchronous code: single-threaded, on the caller's thread.

use std::{io, os::unix::net::UnixStream};

use thiserror::Error;
use tokio::runtime::{Builder, Runtime};

/// Pairs of descriptors that tokio may need at once: an epoll instance and its duplicate, an
/// eventfd, a socket pair for signals and a duplicate of one end, and some spare.
const PAIRS: usize = 5;

/// Error building the runtime.
#[derive(Debug, Error)]
#[error("cannot start the event loop")]
pub struct RuntimeError(#[source] io::Error);

/// Builds the runtime. tokio panics if it gets no descriptors for its signals, so their
/// availability is checked first.
pub fn build() -> Result<Runtime, RuntimeError> {
    let spare = (0..PAIRS).map(|_| UnixStream::pair()).collect::<io::Result<Vec<_>>>();
    drop(spare.map_err(RuntimeError)?);
    Builder::new_current_thread().enable_all().build().map_err(RuntimeError)
}
