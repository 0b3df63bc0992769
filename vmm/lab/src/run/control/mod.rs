//! The control socket of a run: its protocol and its server.
//!
//! A client sends requests, one line of JSON each, and gets one line of JSON in answer to each:
//!
//! | request | what it does |
//! |---|---|
//! | `{"do":"status"}` | only asks for the status |
//! | `{"do":"pause"}` | no further cell is begun; those under way are finished |
//! | `{"do":"resume"}` | cells are begun again |
//! | `{"do":"stop"}` | like Ctrl-C: the cells under way are aborted, and the run ends |
//! | `{"do":"watch"}` | from now on each change is sent too, at most four per second |
//!
//! An answer is `{"ok":true,"status":{...}}`, with the [`Status`] after the request took effect, or
//! `{"ok":false,"error":"..."}`. Integers have up to 64 bits. A status whose `version` is not
//! [`VERSION`](study::status::VERSION) has another layout. The run's end closes the connection;
//! before that, a watcher gets a last line with state `ended`.
//!
//! Only the run's own user can connect, but still no client may harm the run: requests are at most
//! [`LONGEST_REQUEST`] bytes long and rate-limited, a client that does not read its answers is
//! dropped, and so is one that stays silent without watching; the number of connections is limited.

mod lines;
mod serve;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use lines::{LineReader, TooLong};
pub use serve::serve;

use study::status::Status;

/// Longest request, in bytes, including the newline.
pub const LONGEST_REQUEST: usize = 64 << 10;

/// Longest answer that a client should accept, in bytes: a status of 64 cells side by side with 128
/// vCPUs each is below 2 MiB.
pub const LONGEST_ANSWER: usize = 16 << 20;

/// The kinds of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    /// Asks for the status.
    Status,
    /// Begin no more cells.
    Pause,
    /// Begin cells again after a pause.
    Resume,
    /// Abort the cells under way, and end.
    Stop,
    /// Subscribe to all changes.
    Watch,
}

/// A request of a client: one line of JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// What is asked for.
    #[serde(rename = "do")]
    pub wish: Wish,
}

/// A line that cannot be parsed as a request.
#[derive(Debug, Error)]
#[error(
    "invalid request: {0}; send {{\"do\":\"status\"}}, or pause, resume, stop or watch instead of \
     status"
)]
pub struct NoRequest(#[from] serde_json::Error);

impl Request {
    /// Parses a line without its newline.
    pub fn parse(line: &[u8]) -> Result<Self, NoRequest> {
        Ok(serde_json::from_slice(line)?)
    }

    /// Serializes it as a line, with its newline.
    pub fn line(self) -> serde_json::Result<Vec<u8>> {
        line(&self)
    }
}

/// The answer to a request: one line of JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The request took effect.
    pub ok: bool,
    /// Why it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The status after it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Box<Status>>,
}

impl Answer {
    /// The request took effect; `status` is the run's status now.
    pub fn good(status: Status) -> Self {
        Self { ok: true, error: None, status: Some(Box::new(status)) }
    }

    /// The request failed.
    pub fn bad(error: &dyn ToString) -> Self {
        Self { ok: false, error: Some(error.to_string()), status: None }
    }

    /// Serializes it as a line, with its newline.
    pub fn line(&self) -> serde_json::Result<Vec<u8>> {
        line(self)
    }
}

fn line(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(value)?;
    text.push(b'\n');
    Ok(text)
}

#[cfg(test)]
mod tests;
