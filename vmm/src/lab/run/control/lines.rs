//! Lines out of bytes as they come, none longer than a limit.

use std::mem;

use thiserror::Error;

use crate::units::ByteSize;

/// A line beyond the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a line is longer than {}", ByteSize(*.0 as u64))]
pub struct TooLong(pub usize);

/// Keeps what has come of a line that has not ended.
#[derive(Debug)]
pub struct Lines {
    kept: Vec<u8>,
    /// Where the search for the next end begins.
    seen: usize,
    limit: usize,
}

impl Lines {
    /// Of at most `limit` bytes each, their ends included.
    pub fn new(limit: usize) -> Self {
        Self { kept: Vec::new(), seen: 0, limit }
    }

    /// Adds what has come. Take the lines out before more is added, so that no more is kept than a
    /// line and what came with its end.
    pub fn add(&mut self, bytes: &[u8]) {
        self.kept.extend_from_slice(bytes);
    }

    /// The next line, without its end. None: there is no whole one.
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
