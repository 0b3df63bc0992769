//! The control socket of a run: what is said on it, and who answers.
//!
//! A client sends requests, a line of JSON each, and gets a line of JSON for each:
//!
//! | request | what it does |
//! |---|---|
//! | `{"do":"status"}` | nothing |
//! | `{"do":"pause"}` | no further cell is begun; the one under way ends |
//! | `{"do":"resume"}` | cells are begun again |
//! | `{"do":"stop"}` | as Ctrl-C: the cell under way is aborted, and the run ends |
//! | `{"do":"watch"}` | from now on a line comes at each change too, at most four a second |
//!
//! An answer is `{"ok":true,"status":{...}}`, with the [`Status`] after the request was obeyed, or
//! `{"ok":false,"error":"..."}`. Integers have up to 64 bits. A `version` other than
//! [`VERSION`](super::status::VERSION) is of another form. The run's end closes the connection; a
//! watcher gets a last line of state `ended` before.
//!
//! Whoever can connect is the run's own user, but nothing a client does may harm the run: requests
//! are at most [`LONGEST_REQUEST`] long and come at a bounded pace, who does not read its answers is
//! dropped, and so is who says nothing for long and does not watch; there is a limit to connections.

mod lines;
mod serve;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use lines::{Lines, TooLong};
pub use serve::serve;

use super::status::Status;

/// Bytes of a request at most, its end included.
pub const LONGEST_REQUEST: usize = 64 << 10;

/// Bytes of an answer at most, as far as a client should care: a status of 64 cells side by side
/// with 128 vCPUs each has below 2 MiB.
pub const LONGEST_ANSWER: usize = 16 << 20;

/// What a client can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    /// How the run gets on.
    Status,
    /// To begin no more cells.
    Pause,
    /// To go on.
    Resume,
    /// To abort the cell under way, and to end.
    Stop,
    /// To be told of all that changes.
    Watch,
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// What for.
    #[serde(rename = "do")]
    pub wish: Wish,
}

/// What is no request.
#[derive(Debug, Error)]
#[error(
    "this is no request: {0}; say {{\"do\":\"status\"}}, or pause, resume, stop or watch instead of \
     status"
)]
pub struct NoRequest(#[from] serde_json::Error);

impl Request {
    /// Reads one from a line without its end.
    pub fn parse(line: &[u8]) -> Result<Self, NoRequest> {
        Ok(serde_json::from_slice(line)?)
    }

    /// The line for it.
    pub fn line(self) -> serde_json::Result<Vec<u8>> {
        line(&self)
    }
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The request was obeyed.
    pub ok: bool,
    /// Why it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The run, after it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Box<Status>>,
}

impl Answer {
    /// Obeyed; this is the run now.
    pub fn good(status: Status) -> Self {
        Self { ok: true, error: None, status: Some(Box::new(status)) }
    }

    /// Not obeyed.
    pub fn bad(why: &dyn ToString) -> Self {
        Self { ok: false, error: Some(why.to_string()), status: None }
    }

    /// The line for it.
    pub fn line(&self) -> serde_json::Result<Vec<u8>> {
        line(self)
    }
}

fn line(of: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(of)?;
    text.push(b'\n');
    Ok(text)
}

#[cfg(test)]
mod tests;
