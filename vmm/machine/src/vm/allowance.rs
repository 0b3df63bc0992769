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

/// A byte limit shared by several outputs, and by its clones.
#[derive(Debug, Clone)]
pub struct Allowance {
    whole: ByteSize,
    left: Arc<AtomicU64>,
}

impl Allowance {
    /// Creates an allowance of `whole` bytes.
    pub fn new(whole: ByteSize) -> Self {
        Self { whole, left: Arc::new(AtomicU64::new(whole.0)) }
    }

    fn take(&self, bytes: usize) -> io::Result<()> {
        let taken = self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes as u64));
        let exceeded =
            || io::Error::other(format!("it is more than --output-limit {}", self.whole));
        taken.map(drop).map_err(|_| exceeded())
    }

    fn give_back(&self, bytes: usize) {
        self.left.fetch_add(bytes as u64, Relaxed);
    }
}

/// An output that fails once its allowance is exhausted.
#[derive(Debug)]
pub struct LimitedOutput<W> {
    out: W,
    allowance: Option<Allowance>,
}

impl<W: Write> LimitedOutput<W> {
    /// Limits `out`. Without an allowance it is unlimited.
    pub fn new(out: W, allowance: Option<Allowance>) -> Self {
        Self { out, allowance }
    }
}

impl<W: Write> Write for LimitedOutput<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(allowance) = &self.allowance {
            allowance.take(bytes.len())?;
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
        let Some(allowance) = &self.allowance else { return self.out.write_now(bytes) };
        allowance.take(bytes.len())?;
        let written = self.out.write_now(bytes)?;
        allowance.give_back(bytes.len() - written);
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_share_an_allowance() {
        let allowance = Some(Allowance::new(ByteSize(10)));
        let (mut first, mut second) = (Vec::new(), Vec::new());
        let mut a = LimitedOutput::new(&mut first, allowance.clone());
        let mut b = LimitedOutput::new(&mut second, allowance);
        a.write_all(b"123456").unwrap();
        b.write_all(b"1234").unwrap();
        let error = a.write_all(b"7").unwrap_err().to_string();
        assert_eq!(error, "it is more than --output-limit 10 bytes");
        assert_eq!((first, second), (b"123456".to_vec(), b"1234".to_vec()));
        let mut free = LimitedOutput::new(Vec::new(), None);
        free.write_all(&[0; 99]).unwrap();
    }
}
