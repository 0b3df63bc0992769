//! Limits on a guest's output.

use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::devices::output::Sink;
use base::units::ByteSize;

/// A byte limit shared by several outputs and by its clones.
#[derive(Debug, Clone)]
pub struct OutputLimit {
    total: ByteSize,
    remaining: Arc<AtomicU64>,
}

impl OutputLimit {
    /// Creates a limit of `total` bytes.
    pub fn new(total: ByteSize) -> Self {
        Self { total, remaining: Arc::new(AtomicU64::new(total.0)) }
    }

    fn reserve(&self, bytes: usize) -> io::Result<()> {
        let old = self.remaining.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(bytes as u64));
        let exceeded = || io::Error::other(format!("it exceeds --output-limit {}", self.total));
        old.map(drop).map_err(|_| exceeded())
    }

    fn release(&self, bytes: usize) {
        self.remaining.fetch_add(bytes as u64, Relaxed);
    }
}

/// An output that fails once its limit is exhausted.
#[derive(Debug)]
pub struct LimitedOutput<W> {
    out: W,
    limit: Option<OutputLimit>,
}

impl<W: Write> LimitedOutput<W> {
    /// Limits `out` if `limit` is set.
    pub fn new(out: W, limit: Option<OutputLimit>) -> Self {
        Self { out, limit }
    }
}

impl<W: Write> Write for LimitedOutput<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(limit) = &self.limit {
            limit.reserve(bytes.len())?;
        }
        self.out.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl<W: Sink> Sink for LimitedOutput<W> {
    fn write_now(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(limit) = &self.limit else { return self.out.write_now(bytes) };
        limit.reserve(bytes.len())?;
        let written = self.out.write_now(bytes)?;
        limit.release(bytes.len() - written);
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_share_a_limit() {
        let limit = Some(OutputLimit::new(ByteSize(10)));
        let (mut first, mut second) = (Vec::new(), Vec::new());
        let mut a = LimitedOutput::new(&mut first, limit.clone());
        let mut b = LimitedOutput::new(&mut second, limit);
        a.write_all(b"123456").unwrap();
        b.write_all(b"1234").unwrap();
        let error = a.write_all(b"7").unwrap_err().to_string();
        assert_eq!(error, "it exceeds --output-limit 10 bytes");
        assert_eq!((first, second), (b"123456".to_vec(), b"1234".to_vec()));
        let mut free = LimitedOutput::new(Vec::new(), None);
        free.write_all(&[0; 99]).unwrap();
    }
}
