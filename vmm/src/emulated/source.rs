//! A stream that is one of several to be listened to.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// A stream to read from, which is silent once it has ended.
#[derive(Debug)]
pub struct Source<R> {
    /// The stream itself, to write to.
    pub stream: R,
    /// May more come?
    pub open: bool,
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Source<R> {
    /// A source that is open.
    pub fn new(stream: R) -> Self {
        Self { stream, buffer: vec![0; 64 << 10], open: true }
    }

    /// Reads; waits for ever if there is nothing more to come.
    pub async fn read(&mut self) -> io::Result<usize> {
        if !self.open {
            return std::future::pending().await;
        }
        self.stream.read(&mut self.buffer).await
    }

    /// The bytes of a read; none at the stream's end, or on an error, which is the same to us.
    pub fn taken(&mut self, read: io::Result<usize>) -> &[u8] {
        let count = read.unwrap_or(0);
        self.open = count > 0;
        &self.buffer[..count]
    }
}
