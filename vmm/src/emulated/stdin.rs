//! The errand's input: read once from the user, kept so that it can be given again.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    thread,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    pipe::{PipeFlags, pipe_with},
    process::{Signal, getpid, kill_process},
};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::{Mutex, mpsc},
};

use super::{output::Seen, wire::frame};
use crate::vm::escape::EscapeFilter;

/// Most bytes of input that are kept for a restart.
const KEPT: usize = 16 << 20;

/// Bytes read at once.
const PIECE: usize = 64 << 10;

/// Where the errand's input comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum StdinMode {
    /// None: it reads an end at once.
    #[default]
    Null,
    /// This process's own stdin.
    Inherit,
    /// The same, a terminal in raw mode: the keys that end the machine are acted upon here, as
    /// the signal that the terminal would have sent.
    Keys,
    /// These bytes.
    Bytes(Vec<u8>),
}

/// The errand's input, shared by all lives of the machine.
#[derive(Debug, Clone)]
pub struct Input {
    shared: Arc<Mutex<Shared>>,
    // When the last clone goes, the reading thread ends: its poll sees the pipe close.
    _reader: Option<Arc<OwnedFd>>,
}

#[derive(Debug)]
struct Shared {
    seen: Vec<u8>,
    forgotten: bool,
    ended: bool,
    from: Option<mpsc::Receiver<Vec<u8>>>,
}

impl Input {
    /// Opens it.
    pub fn open(mode: &StdinMode, seen: &Seen) -> io::Result<Self> {
        let (from, reader, seen) = match mode {
            StdinMode::Null => (None, None, Vec::new()),
            StdinMode::Bytes(bytes) => (None, None, bytes.clone()),
            StdinMode::Inherit | StdinMode::Keys => {
                let keys = (*mode == StdinMode::Keys).then(|| Keys::new(seen.clone()));
                let (pipe_read, pipe_write) = pipe_with(PipeFlags::CLOEXEC)?;
                let (to, from) = mpsc::channel(4);
                thread::Builder::new()
                    .name("stdin".into())
                    .spawn(move || read_until_closed(&pipe_read, &to, keys))?;
                (Some(from), Some(Arc::new(pipe_write)), Vec::new())
            }
        };
        let ended = from.is_none();
        let shared = Shared { seen, forgotten: false, ended, from };
        Ok(Self { shared: Arc::new(Mutex::new(shared)), _reader: reader })
    }

    /// Gives all of it to a machine, from the beginning, as frames; the last is empty.
    pub async fn feed(&self, mut port: impl AsyncWrite + Unpin) -> io::Result<()> {
        let mut shared = self.shared.lock().await;
        for piece in shared.seen.chunks(PIECE) {
            port.write_all(&frame(piece)).await?;
        }
        while let Some(piece) = shared.next().await {
            port.write_all(&frame(&piece)).await?;
        }
        port.write_all(&frame(b"")).await
    }

    /// Is all that was used still there to be given again? Only to be asked while nobody feeds.
    pub async fn can_repeat(&self) -> bool {
        !self.shared.lock().await.forgotten
    }
}

impl Shared {
    async fn next(&mut self) -> Option<Vec<u8>> {
        if self.ended {
            return None;
        }
        // Nothing between taking a piece and keeping it may wait: this future can be dropped.
        let piece = self.from.as_mut()?.recv().await;
        match &piece {
            None => self.ended = true,
            Some(piece) if self.forgotten || self.seen.len() + piece.len() > KEPT => {
                self.forgotten = true;
                self.seen = Vec::new();
            }
            Some(piece) => self.seen.extend(piece),
        }
        piece
    }
}

/// Sorts out the keys that are ours.
struct Keys {
    filter: EscapeFilter,
    seen: Seen,
}

impl Keys {
    fn new(seen: Seen) -> Self {
        Self { filter: EscapeFilter::default(), seen }
    }

    /// What the guest gets. Until it has said something nobody there can take a Ctrl-C.
    fn sort(&mut self, bytes: &[u8]) -> Vec<u8> {
        let keys = self.filter.feed(bytes, self.seen.any());
        if keys.quit {
            // We may always signal ourselves.
            let _ = kill_process(getpid(), Signal::INT);
        }
        keys.forward
    }
}

/// Reads stdin until its end, or until the other end of `closed` closes.
fn read_until_closed(closed: &OwnedFd, to: &mpsc::Sender<Vec<u8>>, mut keys: Option<Keys>) {
    let stdin = io::stdin();
    loop {
        let readable = PollFlags::IN;
        let mut fds =
            [PollFd::new(&stdin, readable), PollFd::from_borrowed_fd(closed.as_fd(), readable)];
        match poll(&mut fds, None) {
            Ok(_) if !fds[1].revents().is_empty() => return,
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
        }
        // Past the buffer of std's Stdin: bytes in it would be lost to whoever reads stdin later.
        let mut piece = vec![0; PIECE];
        match rustix::io::read(&stdin, &mut piece) {
            Ok(0) => return,
            Ok(count) => piece.truncate(count),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => continue,
            Err(_) => return,
        }
        if let Some(keys) = &mut keys {
            piece = keys.sort(&piece);
            // An empty frame would be the end of the input.
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
    use crate::emulated::wire::Decoder;

    fn given(input: &Input) -> Vec<Vec<u8>> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut bytes = Vec::new();
        runtime.block_on(input.feed(&mut bytes)).unwrap();
        let mut decoder = Decoder::default();
        decoder.push(&bytes);
        std::iter::from_fn(|| decoder.next_frame().unwrap()).collect()
    }

    #[test]
    fn input_is_given_whole_and_again() {
        let input = Input::open(&StdinMode::Bytes(vec![7; PIECE + 1]), &Seen::default()).unwrap();
        for _ in 0..2 {
            assert_eq!(given(&input), [vec![7u8; PIECE], vec![7], vec![]]);
        }
        assert_eq!(
            given(&Input::open(&StdinMode::Null, &Seen::default()).unwrap()),
            [Vec::<u8>::new()]
        );
    }

    #[test]
    fn what_is_too_much_to_keep_cannot_be_repeated() {
        let (to, from) = mpsc::channel(4);
        let seen = vec![1; KEPT];
        let shared = Shared { seen, forgotten: false, ended: false, from: Some(from) };
        let input = Input { shared: Arc::new(Mutex::new(shared)), _reader: None };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        to.blocking_send(vec![2]).unwrap();
        drop(to);
        assert!(runtime.block_on(input.can_repeat()));
        assert_eq!(given(&input).len(), KEPT / PIECE + 2);
        assert!(!runtime.block_on(input.can_repeat()));
    }
}
