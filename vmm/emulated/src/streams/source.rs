//! A stream to read in a `select`.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// A stream to read from. It stays silent after its end.
#[derive(Debug)]
pub struct StreamReader<R> {
    /// The stream, also for writing.
    pub stream: R,
    /// Whether it has not ended.
    pub open: bool,
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> StreamReader<R> {
    /// Creates a reader of a stream that has not ended.
    pub fn new(stream: R) -> Self {
        Self { stream, buffer: vec![0; 64 << 10], open: true }
    }

    /// Reads from the stream. Never returns after its end.
    pub async fn read(&mut self) -> io::Result<usize> {
        if !self.open {
            return std::future::pending().await;
        }
        self.stream.read(&mut self.buffer).await
    }

    /// Returns the bytes of a read; empty at the end of the stream and on an error, which
    /// counts as the end.
    pub fn chunk(&mut self, read: io::Result<usize>) -> &[u8] {
        let count = read.unwrap_or(0);
        self.open = count > 0;
        &self.buffer[..count]
    }
}
