//! Reads packets from an untrusted file.

use std::io::{self, BufRead, Read};

use prost::Message;
use thiserror::Error;

use super::{proto::TracePacket, write::PACKET};

/// Maximum length of a packet in bytes. Ours have a few hundred.
const MAX_PACKET: u64 = 1 << 20;

/// The reason why a file cannot be read as a trace of pvticket.
#[derive(Debug, Error)]
pub enum TraceError {
    /// An I/O error.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// The file is from another program.
    #[error("not a pvticket trace (make one with --trace)")]
    NotOurs,
    /// The contents are inconsistent.
    #[error("corrupted at byte {0}")]
    Damaged(u64),
    /// The file ends within a run.
    #[error("truncated at byte {0}")]
    Short(u64),
}

/// The packets of a trace in sequence.
pub(super) struct Packets<R> {
    input: R,
    /// Offset of the next packet in the file.
    pub(super) at: u64,
    bytes: Vec<u8>,
}

impl<R: BufRead> Packets<R> {
    pub(super) const fn new(input: R) -> Self {
        Self { input, at: 0, bytes: Vec::new() }
    }

    /// The next packet; `None` at the end.
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
            // Five groups of seven bits exceed the longest packet.
            if read > 4 {
                return Err(damaged());
            }
        }
        if length > MAX_PACKET {
            return Err(damaged());
        }
        self.bytes.clear();
        let bytes_read = self.input.by_ref().take(length).read_to_end(&mut self.bytes)? as u64;
        if bytes_read < length {
            return Err(TraceError::Short(self.at + read + bytes_read));
        }
        let packet = TracePacket::decode(self.bytes.as_slice()).map_err(|_| damaged())?;
        self.at += read + length;
        Ok(Some(packet))
    }
}

/// Reads a byte; `None` at the end of the input.
fn byte(input: &mut impl BufRead) -> io::Result<Option<u8>> {
    let next = input.fill_buf()?.first().copied();
    if next.is_some() {
        input.consume(1);
    }
    Ok(next)
}
