//! The protocol between the supervisor and the agent, which runs a command in the emulated host.
//!
//! Four virtio-serial ports carry frames: a length (4 bytes, little endian) followed by that
//! number of bytes. On the ports of stdin, stdout and stderr a frame contains data, and an empty
//! frame ends the stream. On the control port the first byte of a frame identifies its kind: a
//! JSON message, or a piece of a result file.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;

mod bytes;
#[cfg(test)]
mod tests;

/// Must change with every change of these types. Both ends are the same binary, so a difference
/// can only come from a mistake in packing.
pub const VERSION: u32 = 2;

/// Maximum number of bytes in a frame after its length.
pub const MAX_FRAME: usize = 1 << 20;

/// Maximum number of bytes in the agent's output frames: with the length a frame is one write to
/// a virtio-serial port, which Linux cuts at 32 KiB (drivers/char/virtio_console.c).
pub const OUTPUT_PIECE: usize = (32 << 10) - LENGTH;

const LENGTH: usize = 4;
const JSON: u8 = b'{';
const PIECE: u8 = b'F';

/// Names of the ports in `/sys/class/virtio-ports/*/name`.
pub const PORTS: [&str; 4] =
    ["pvticket.control", "pvticket.stdin", "pvticket.stdout", "pvticket.stderr"];

/// Reason why bytes are not a valid message.
#[derive(Debug, Error)]
pub enum WireError {
    /// A length above [`MAX_FRAME`].
    #[error("a frame of {0} bytes, {MAX_FRAME} are allowed")]
    TooLong(usize),
    /// A control frame of an unknown kind.
    #[error("a control frame of unknown kind {0:?}")]
    Kind(Option<u8>),
    /// JSON that does not match the type.
    #[error("an invalid JSON message")]
    Json(#[from] serde_json::Error),
}

impl From<WireError> for io::Error {
    fn from(error: WireError) -> Self {
        io::Error::new(io::ErrorKind::InvalidData, error)
    }
}

/// Messages from the supervisor to the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToAgent {
    /// Run this job.
    Start(AgentJob),
}

/// Job of the agent. System strings are bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentJob {
    /// Arguments after the binary's name.
    #[serde(with = "bytes::list")]
    pub args: Vec<Vec<u8>>,
    /// Environment variables in addition to `PATH`, `HOME` and `TMPDIR`.
    #[serde(with = "bytes::pairs")]
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// Paths of the result files in the emulated host.
    #[serde(with = "bytes::list")]
    pub files_out: Vec<Vec<u8>>,
    /// Number of CPUs for the command.
    pub cpus: u32,
    /// A fault to cause, for tests.
    pub inject: Option<Injection>,
}

/// A fault that a test injects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Injection {
    /// The agent goes silent when the command starts.
    Mute,
    /// The supervisor stops the emulator with SIGSTOP when the command starts.
    Stop,
    /// The emulated host's kernel panics when the command starts.
    Panic,
    /// The supervisor kills the emulator when the command starts.
    Kill,
    /// The agent constantly restores FPU state on every CPU, which corrupts the first CPU.
    Fxrstor,
}

/// Messages from the agent to the supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromAgent {
    /// The agent is up.
    Hello {
        /// The agent's [`VERSION`].
        version: u32,
        /// Milliseconds since its kernel started.
        uptime_ms: u64,
    },
    /// A sign of life.
    Beat(Beat),
    /// The next bytes of a result file. Not encoded as JSON: see [`encode`].
    #[serde(skip)]
    Piece {
        /// Index of the file in [`AgentJob::files_out`].
        index: u32,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// A result file is complete.
    FileEnd {
        /// Index of the file in [`AgentJob::files_out`].
        index: u32,
    },
    /// A result file cannot be read.
    FileFailed {
        /// Index of the file in [`AgentJob::files_out`].
        index: u32,
        /// Reason.
        error: String,
    },
    /// The command has ended and its result files have been sent.
    Done(ErrandEnd),
    /// The command needs all online CPUs, so no CPU can be kept free of guests.
    NoneSpared {
        /// Number of online CPUs.
        online: usize,
        /// Number of CPUs that the command needs.
        wanted: u32,
    },
    /// The emulated host cannot run commands.
    Failed {
        /// Reason.
        error: String,
    },
}

/// End of the command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrandEnd {
    /// Exit status, or 128 plus the number of the signal that ended the command.
    pub status: i32,
    /// Number of processes that the emulated host's kernel has killed for lack of memory.
    pub oom_kills: u64,
}

/// A sign of life, with counters of activity.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// Counts up from 1.
    pub number: u64,
    /// Local timer interrupts of each CPU.
    pub ticks: Vec<u64>,
    /// CPU time of the command, in clock ticks.
    pub cpu_time: u64,
    /// Bytes passed on for stdin, stdout and stderr.
    pub moved: [u64; 3],
}

/// Returns a frame that contains `bytes`, at most [`MAX_FRAME`] (not checked).
pub fn frame(bytes: &[u8]) -> Vec<u8> {
    let mut framed = Vec::with_capacity(LENGTH + bytes.len());
    framed.extend((bytes.len() as u32).to_le_bytes());
    framed.extend(bytes);
    framed
}

/// Encodes a control frame from the supervisor.
pub fn encode_to_agent(message: &ToAgent) -> Result<Vec<u8>, WireError> {
    json(message)
}

/// Encodes a control frame from the agent.
pub fn encode(message: &FromAgent) -> Result<Vec<u8>, WireError> {
    match message {
        FromAgent::Piece { index, bytes } => {
            let mut body = vec![PIECE];
            body.extend(index.to_le_bytes());
            body.extend(bytes);
            Ok(frame(&body))
        }
        message => json(message),
    }
}

fn json(message: &impl Serialize) -> Result<Vec<u8>, WireError> {
    let mut body = vec![JSON];
    serde_json::to_writer(&mut body, message)?;
    if body.len() > MAX_FRAME {
        return Err(WireError::TooLong(body.len()));
    }
    Ok(frame(&body))
}

/// Decodes the supervisor's message in a control frame.
pub fn decode_to_agent(body: &[u8]) -> Result<ToAgent, WireError> {
    from_json(body)
}

/// Decodes the agent's message in a control frame.
pub fn decode(body: &[u8]) -> Result<FromAgent, WireError> {
    match body {
        [PIECE, a, b, c, d, bytes @ ..] => {
            let index = u32::from_le_bytes([*a, *b, *c, *d]);
            Ok(FromAgent::Piece { index, bytes: bytes.to_vec() })
        }
        body => from_json(body),
    }
}

fn from_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, WireError> {
    match body {
        [JSON, text @ ..] => Ok(serde_json::from_slice(text)?),
        body => Err(WireError::Kind(body.first().copied())),
    }
}

/// Splits a byte stream into frames, for any division of its bytes into reads.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    taken: usize,
}

impl Decoder {
    /// Appends bytes that arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        self.buffer.extend(bytes);
    }

    /// Returns the contents of the next frame once it is complete.
    pub fn next_frame(&mut self) -> Result<Option<Vec<u8>>, WireError> {
        let rest = &self.buffer[self.taken..];
        let Some((head, body)) = rest.split_first_chunk::<LENGTH>() else { return Ok(None) };
        let length = u32::from_le_bytes(*head) as usize;
        if length > MAX_FRAME {
            return Err(WireError::TooLong(length));
        }
        let Some(body) = body.get(..length) else { return Ok(None) };
        self.taken += LENGTH + length;
        Ok(Some(body.to_vec()))
    }
}

/// Reads one frame; `None` if the stream ends before the frame or in its length.
pub fn read_frame(from: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut head = [0; LENGTH];
    match from.read_exact(&mut head) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let length = u32::from_le_bytes(head) as usize;
    if length > MAX_FRAME {
        return Err(WireError::TooLong(length).into());
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    Ok(Some(body))
}

/// Writes one frame.
pub fn write_frame(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(&frame(bytes))
}
