//! The command's output, passed on as it arrives.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt},
    sync::oneshot,
};

use crate::wire::Decoder;
use os::streams;
pub use os::streams::Stream;

/// Handling of one of the command's output streams.
///
/// Determines whether a frozen machine may be restarted: the command starts again, and its output must not
/// appear twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OutputMode {
    /// Passed on at once. There is no restart after the first byte.
    #[default]
    Live,
    /// Passed on at once, and may appear twice: progress, logs.
    Progress,
}

/// Whether any output that must not appear twice has been passed on.
#[derive(Debug, Clone, Default)]
pub struct PassedOutput(Arc<AtomicBool>);

impl PassedOutput {
    pub fn any(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    fn mark(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Reads frames from the machine up to an empty frame, and passes them on.
pub async fn forward(
    mut port: impl AsyncRead + Unpin,
    stream: Stream,
    mode: OutputMode,
    sent: PassedOutput,
) -> io::Result<()> {
    let mut decoder = Decoder::default();
    let mut buffer = vec![0; 64 << 10];
    let mut writer = None;
    loop {
        let count = port.read(&mut buffer).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        decoder.push(&buffer[..count]);
        while let Some(bytes) = decoder.next_frame()? {
            if bytes.is_empty() {
                return Ok(());
            }
            if mode == OutputMode::Live {
                sent.mark();
            }
            let writer = match &mut writer {
                Some(writer) => writer,
                None => writer.insert(Writer::start(stream).map_err(user_error)?),
            };
            writer.write(bytes).await?;
        }
    }
}

/// The thread that writes to one of this process's streams, and may have to wait for its reader. (The
/// runtime's `spawn_blocking` panics if it cannot start a thread.)
#[derive(Debug)]
struct Writer(mpsc::Sender<(Vec<u8>, oneshot::Sender<io::Result<()>>)>);

impl Writer {
    fn start(stream: Stream) -> io::Result<Self> {
        let (to, pieces) = mpsc::channel::<(Vec<u8>, oneshot::Sender<_>)>();
        let work = move || {
            for (bytes, done) in pieces {
                // The session may have ended.
                let _ = done.send(streams::write(stream, &bytes));
            }
        };
        thread::Builder::new().name("output".into()).spawn(work)?;
        Ok(Self(to))
    }

    async fn write(&self, bytes: Vec<u8>) -> io::Result<()> {
        let (done, written) = oneshot::channel();
        // If the thread has died, it has dropped `done`.
        let _ = self.0.send((bytes, done));
        written.await.map_err(io::Error::other)?.map_err(user_error)
    }
}

/// Marks an error as coming from this process's stream, not from the port.
fn user_error(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), UserStream(error))
}

#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct UserStream(io::Error);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frame;

    fn forward_all(bytes: &[u8], mode: OutputMode) -> (io::Result<()>, bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let sent = PassedOutput::default();
        let result = runtime.block_on(forward(bytes, Stream::Stderr, mode, sent.clone()));
        (result, sent.any())
    }

    #[test]
    fn only_live_output_forbids_a_restart() {
        let stream = [frame(b"\n"), frame(b"")].concat();
        assert!(forward_all(&stream, OutputMode::Live).1);
        assert!(!forward_all(&stream, OutputMode::Progress).1);
        assert!(!forward_all(&frame(b""), OutputMode::Live).1);
    }

    #[test]
    fn a_stream_cut_short_is_an_error() {
        let (result, _) = forward_all(&frame(b"half"), OutputMode::Progress);
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
