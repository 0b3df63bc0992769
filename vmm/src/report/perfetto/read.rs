//! Packets out of a file, whoever may have written it.

use std::io::{self, BufRead, Read};

use prost::Message;
use thiserror::Error;

use super::{proto::TracePacket, write::PACKET};

/// The longest packet that is read: ours have some hundred bytes.
const LONGEST: u64 = 1 << 20;

/// Why a file is no trace of ours.
#[derive(Debug, Error)]
pub enum TraceError {
    /// It cannot be read.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// Something else wrote it.
    #[error("it is no trace of pvticket (make one with --trace)")]
    NotOurs,
    /// It says what cannot be.
    #[error("it is damaged at byte {0}")]
    Damaged(u64),
    /// It ends in the middle.
    #[error("it ends too early, at byte {0}: it was cut off")]
    Short(u64),
}

/// The packets of a trace, one by one.
pub(super) struct Packets<R> {
    input: R,
    /// Where the next begins.
    pub(super) at: u64,
    bytes: Vec<u8>,
}

impl<R: BufRead> Packets<R> {
    pub(super) const fn new(input: R) -> Self {
        Self { input, at: 0, bytes: Vec::new() }
    }

    /// The next one; None at the end.
    pub(super) fn next(&mut self) -> Result<Option<TracePacket>, TraceError> {
        let damaged =
            || if self.at == 0 { TraceError::NotOurs } else { TraceError::Damaged(self.at) };
        let Some(tag) = byte(&mut self.input)? else { return Ok(None) };
        if tag != PACKET {
            return Err(damaged());
        }
        let (mut length, mut read) = (0u64, 1);
        loop {
            let Some(next) = byte(&mut self.input)? else {
                return Err(TraceError::Short(self.at + read));
            };
            length |= u64::from(next & 0x7f) << (7 * (read - 1));
            read += 1;
            if next & 0x80 == 0 {
                break;
            }
            // Four groups of seven bits hold more than the longest packet's.
            if read > 4 {
                return Err(damaged());
            }
        }
        if length > LONGEST {
            return Err(damaged());
        }
        self.bytes.clear();
        let found = self.input.by_ref().take(length).read_to_end(&mut self.bytes)? as u64;
        if found < length {
            return Err(TraceError::Short(self.at + read + found));
        }
        let packet = TracePacket::decode(self.bytes.as_slice()).map_err(|_| damaged())?;
        self.at += read + length;
        Ok(Some(packet))
    }
}

/// None: that was all.
fn byte(input: &mut impl BufRead) -> io::Result<Option<u8>> {
    let next = input.fill_buf()?.first().copied();
    if next.is_some() {
        input.consume(1);
    }
    Ok(next)
}
