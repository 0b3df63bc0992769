//! The command's input, read once from the user and kept so that it can be sent again.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    thread,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    pipe::{PipeFlags, pipe_with},
    process::{Signal, getpid, kill_process},
};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::{Mutex, mpsc},
};

use super::output::PassedOutput;
use crate::wire::frame;
use base::escape::EscapeFilter;
use os::{streams, terminal};

/// Maximum number of input bytes kept for a restart.
const MAX_KEPT: usize = 16 << 20;

/// Interval between checks whether the terminal has returned from another job.
const TERMINAL_CHECK: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };

/// Bytes per read.
const PIECE: usize = 64 << 10;

/// Source of the command's input.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum StdinMode {
    /// No input; stdin is at its end.
    #[default]
    Null,
    /// This process's own stdin.
    Inherit,
    /// This process's own stdin, a terminal in raw mode. Keys that end the machine are handled
    /// here by sending the signal that the terminal would have sent.
    Keys,
    /// These bytes.
    Bytes(Vec<u8>),
}

/// The command's input, shared by all sessions.
#[derive(Debug, Clone)]
pub struct Input {
    shared: Arc<Mutex<InputState>>,
    // Dropping the last clone ends the reading thread, because its poll sees the pipe close.
    _reader: Option<Arc<OwnedFd>>,
}

#[derive(Debug)]
struct InputState {
    kept_input: Vec<u8>,
    is_dropped: bool,
    ended: bool,
    from: Option<mpsc::Receiver<Vec<u8>>>,
}

impl Input {
    /// Opens the input.
    pub fn open(mode: &StdinMode, sent: &PassedOutput) -> io::Result<Self> {
        let (from, reader, kept_input) = match mode {
            StdinMode::Null => (None, None, Vec::new()),
            StdinMode::Bytes(bytes) => (None, None, bytes.clone()),
            StdinMode::Inherit | StdinMode::Keys => {
                let keys = (*mode == StdinMode::Keys).then(|| KeyFilter::new(sent.clone()));
                let (pipe_read, pipe_write) = pipe_with(PipeFlags::CLOEXEC)?;
                let (to, from) = mpsc::channel(4);
                thread::Builder::new()
                    .name("stdin".into())
                    .spawn(move || read_until_closed(&pipe_read, &to, keys))?;
                (Some(from), Some(Arc::new(pipe_write)), Vec::new())
            }
        };
        let ended = from.is_none();
        let shared = InputState { kept_input, is_dropped: false, ended, from };
        Ok(Self { shared: Arc::new(Mutex::new(shared)), _reader: reader })
    }

    /// Sends all input to a machine as frames, from the beginning. The last frame is empty.
    pub async fn feed(&self, mut port: impl AsyncWrite + Unpin) -> io::Result<()> {
        let mut shared = self.shared.lock().await;
        for piece in shared.kept_input.chunks(PIECE) {
            port.write_all(&frame(piece)).await?;
        }
        while let Some(piece) = shared.next().await {
            port.write_all(&frame(&piece)).await?;
        }
        port.write_all(&frame(b"")).await
    }

    /// Whether all consumed input is kept for another session. Not to be called during `feed`.
    pub async fn can_repeat(&self) -> bool {
        !self.shared.lock().await.is_dropped
    }
}

impl InputState {
    async fn next(&mut self) -> Option<Vec<u8>> {
        if self.ended {
            return None;
        }
        // No await between taking a piece and keeping it, because this future can be dropped.
        let piece = self.from.as_mut()?.recv().await;
        match &piece {
            None => self.ended = true,
            Some(piece) if self.is_dropped || self.kept_input.len() + piece.len() > MAX_KEPT => {
                self.is_dropped = true;
                self.kept_input = Vec::new();
            }
            Some(piece) => self.kept_input.extend(piece),
        }
        piece
    }
}

/// Filters the keys that are handled here.
struct KeyFilter {
    filter: EscapeFilter,
    sent: PassedOutput,
}

impl KeyFilter {
    fn new(sent: PassedOutput) -> Self {
        Self { filter: EscapeFilter::default(), sent }
    }

    /// Returns the bytes for the guest. Until output has been passed on, Ctrl-C ends the machine.
    fn filter_keys(&mut self, bytes: &[u8]) -> Vec<u8> {
        let keys = self.filter.feed(bytes, self.sent.any());
        if keys.quit {
            // A process may always signal itself.
            let _ = kill_process(getpid(), Signal::INT);
        }
        keys.forward
    }
}

/// Reads stdin until its end, or until the other end of `closed` closes.
fn read_until_closed(closed: &OwnedFd, to: &mpsc::Sender<Vec<u8>>, mut keys: Option<KeyFilter>) {
    let stdin = io::stdin();
    loop {
        // While another job has the terminal, keys are meant for that job.
        let is_ours = terminal::may_read_input();
        let events = if is_ours { PollFlags::IN } else { PollFlags::empty() };
        let mut fds =
            [PollFd::new(&stdin, events), PollFd::from_borrowed_fd(closed.as_fd(), PollFlags::IN)];
        match poll(&mut fds, (!is_ours).then_some(&TERMINAL_CHECK)) {
            Ok(_) if !fds[1].revents().is_empty() => return,
            Ok(_) if !is_ours => continue,
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return streams::input_failed(error.into()),
        }
        // Bypasses std's buffered Stdin, because bytes in that buffer would be lost to later
        // readers of stdin.
        let mut piece = vec![0; PIECE];
        match rustix::io::read(&stdin, &mut piece) {
            Ok(0) => return,
            Ok(count) => piece.truncate(count),
            Err(Errno::INTR | Errno::AGAIN) => continue,
            // Another job has just got the terminal.
            Err(Errno::IO) if !terminal::may_read_input() => continue,
            Err(error) => return streams::input_failed(error.into()),
        }
        if let Some(keys) = &mut keys {
            piece = keys.filter_keys(&piece);
            // An empty frame would signal the end of the input.
            if piece.is_empty() {
                continue;
            }
        }
        if to.blocking_send(piece).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Decoder;

    fn fed_frames(input: &Input) -> Vec<Vec<u8>> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut bytes = Vec::new();
        runtime.block_on(input.feed(&mut bytes)).unwrap();
        let mut decoder = Decoder::default();
        decoder.push(&bytes);
        std::iter::from_fn(|| decoder.next_frame().unwrap()).collect()
    }

    #[test]
    fn input_is_sent_completely_and_repeatedly() {
        let input =
            Input::open(&StdinMode::Bytes(vec![7; PIECE + 1]), &PassedOutput::default()).unwrap();
        for _ in 0..2 {
            assert_eq!(fed_frames(&input), [vec![7u8; PIECE], vec![7], vec![]]);
        }
        assert_eq!(
            fed_frames(&Input::open(&StdinMode::Null, &PassedOutput::default()).unwrap()),
            [Vec::<u8>::new()]
        );
    }

    #[test]
    fn oversized_input_cannot_be_repeated() {
        let (to, from) = mpsc::channel(4);
        let kept_input = vec![1; MAX_KEPT];
        let shared = InputState { kept_input, is_dropped: false, ended: false, from: Some(from) };
        let input = Input { shared: Arc::new(Mutex::new(shared)), _reader: None };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        to.blocking_send(vec![2]).unwrap();
        drop(to);
        assert!(runtime.block_on(input.can_repeat()));
        assert_eq!(fed_frames(&input).len(), MAX_KEPT / PIECE + 2);
        assert!(!runtime.block_on(input.can_repeat()));
    }
}
