//! The connection to a run: requests and answers.

use std::{
    io::{self, ErrorKind, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    path::Path,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use serde::Deserialize;
use thiserror::Error;

use lab::run::control::{Answer, LONGEST_ANSWER, LineReader, Request, TooLong, Wish};
use study::status::VERSION;

/// A run that cannot be watched.
#[derive(Debug, Error)]
pub(super) enum FeedError {
    /// Nothing accepts connections there.
    #[error("no run listens there ({0}): was it started with --listen, and does it still run?")]
    Connect(io::Error),
    /// The connection broke.
    #[error("the connection to the run failed")]
    Connection(#[from] io::Error),
    /// The run speaks another version of the protocol.
    #[error("the run speaks version {found} of the protocol, this pvticket version {VERSION}")]
    Version {
        /// The run's version.
        found: u32,
    },
    /// An answer that does not parse.
    #[error("the socket does not speak the pvticket protocol: {0}")]
    Strange(serde_json::Error),
    /// An answer that is too long.
    #[error("the socket does not speak the pvticket protocol")]
    TooLong(#[from] TooLong),
    /// The run rejected the request.
    #[error("the run says: {0}")]
    Refused(String),
    /// The run closed the connection.
    #[error("the run is gone")]
    Closed,
    /// No answer in time.
    #[error("the run does not answer")]
    Silent,
}

/// A connection to a run.
#[derive(Debug)]
pub(super) struct Feed {
    stream: UnixStream,
    lines: LineReader,
}

impl AsFd for Feed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Feed {
    pub(super) fn connect(path: &Path) -> Result<Self, FeedError> {
        let stream = UnixStream::connect(path).map_err(FeedError::Connect)?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream, lines: LineReader::new(LONGEST_ANSWER) })
    }

    /// Sends a request; `hear` returns the answer.
    pub(super) fn ask(&mut self, wish: Wish) -> Result<(), FeedError> {
        let line = Request { wish }.line().map_err(FeedError::Strange)?;
        match (&self.stream).write_all(&line) {
            // The run has closed the connection; its last answers may still be readable.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            other => Ok(other?),
        }
    }

    /// The answers received so far; waits for data until `deadline`. None if a line is incomplete.
    pub(super) fn hear(&mut self, deadline: Instant) -> Result<Vec<Answer>, FeedError> {
        let mut bytes = [0; 64 << 10];
        let count = loop {
            match self.stream.read(&mut bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(FeedError::Silent);
                    }
                    wait([self.stream.as_fd()], left)?;
                }
                other => break other?,
            }
        };
        if count == 0 {
            return Err(FeedError::Closed);
        }
        self.lines.add(&bytes[..count]);
        let mut answers = Vec::new();
        while let Some(line) = self.lines.take()? {
            answers.push(parse(&line)?);
        }
        Ok(answers)
    }
}

/// Parses an answer. Of another version, only the version is looked at.
pub(super) fn parse(line: &[u8]) -> Result<Answer, FeedError> {
    #[derive(Deserialize)]
    struct StatusHead {
        status: Option<StatusVersion>,
    }
    #[derive(Deserialize)]
    struct StatusVersion {
        version: u32,
    }
    let head: StatusHead = serde_json::from_slice(line).map_err(FeedError::Strange)?;
    match head.status {
        Some(StatusVersion { version }) if version != VERSION => {
            Err(FeedError::Version { found: version })
        }
        _ => serde_json::from_slice(line).map_err(FeedError::Strange),
    }
}

/// Which of these are readable, after at most `span`. A signal ends the wait early.
pub(super) fn wait<const N: usize>(
    sources: [BorrowedFd<'_>; N],
    span: Duration,
) -> io::Result<[bool; N]> {
    let mut fds = sources.map(|source| PollFd::from_borrowed_fd(source, PollFlags::IN));
    // All spans here are far below the kernel's limit.
    let span = Timespec::try_from(span).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
    match poll(&mut fds, Some(&span)) {
        Ok(_) | Err(Errno::INTR) => Ok(fds.map(|fd| !fd.revents().is_empty())),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn arbitrary_bytes_are_an_answer_or_an_error(
            bytes in proptest::collection::vec(any::<u8>(), 0..400),
        ) {
            let _ = parse(&bytes).map_err(|error| error.to_string());
        }

        #[test]
        fn json_that_is_no_answer_is_an_error(
            ok in any::<bool>(), version in 2u32.., text in "\\PC{0,20}",
        ) {
            let status = serde_json::json!({ "ok": ok, "status": { "version": version, text: 1 } });
            let error = parse(status.to_string().as_bytes()).unwrap_err();
            let matched = matches!(error, FeedError::Version { found } if found == version);
            prop_assert!(matched, "{error}");
        }
    }

    #[test]
    fn what_is_half_said_is_kept() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut feed = Feed { stream: ours, lines: LineReader::new(1000) };
        theirs.write_all(b"{\"ok\":false,\"err").unwrap();
        assert!(feed.hear(Instant::now()).unwrap().is_empty());
        assert!(matches!(feed.hear(Instant::now()), Err(FeedError::Silent)));
        theirs.write_all(b"or\":\"no\"}\n{\"ok\":false}\n").unwrap();
        let heard = feed.hear(Instant::now()).unwrap();
        assert_eq!(heard.len(), 2);
        assert_eq!(heard[0].error.as_deref(), Some("no"));
        theirs.write_all(&[b'x'; 2000]).unwrap();
        assert!(matches!(feed.hear(Instant::now()), Err(FeedError::TooLong(_))));
        drop(theirs);
        assert!(matches!(feed.hear(Instant::now()), Err(FeedError::Closed)));
    }
}
