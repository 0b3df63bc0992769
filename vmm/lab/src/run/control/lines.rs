//! Splits a byte stream into lines of bounded length.

use std::mem;

use thiserror::Error;

use base::units::ByteSize;

/// A line exceeds the limit, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a line is longer than {}", ByteSize(*.0 as u64))]
pub struct TooLong(pub usize);

/// Buffers the bytes of an incomplete line.
#[derive(Debug)]
pub struct LineReader {
    kept: Vec<u8>,
    /// Bytes that have been searched for a line end.
    seen: usize,
    limit: usize,
}

impl LineReader {
    /// A splitter for lines of at most `limit` bytes, including the newline.
    pub fn new(limit: usize) -> Self {
        Self { kept: Vec::new(), seen: 0, limit }
    }

    /// Adds received bytes. Call [`take`](Self::take) until it returns None before adding more: that
    /// bounds the buffer to one line and what came with its end.
    pub fn add(&mut self, bytes: &[u8]) {
        self.kept.extend_from_slice(bytes);
    }

    /// The next line, without its newline. None: there is no complete line.
    pub fn take(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        let end = memchr::memchr(b'\n', &self.kept[self.seen..]).map(|at| self.seen + at);
        match end {
            Some(end) if end < self.limit => {
                let rest = self.kept.split_off(end + 1);
                let mut line = mem::replace(&mut self.kept, rest);
                line.truncate(end);
                self.seen = 0;
                Ok(Some(line))
            }
            None if self.kept.len() < self.limit => {
                self.seen = self.kept.len();
                Ok(None)
            }
            _ => Err(TooLong(self.limit)),
        }
    }
}
