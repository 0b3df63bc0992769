//! The stdin of a command in the guest, and the signal that ends waits for readers of its output.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use hypercalls::ports::STDIN_EOF;
use rustix::event::{EventfdFlags, eventfd};
use vmm_sys_util::eventfd::EventFd;

/// Maximum number of stdin bytes held for the guest. Nothing more is read from the terminal or pipe
/// until the guest has taken some.
const CAPACITY: usize = 64 << 10;

/// Notifies vCPU threads blocked on output that the machine ends. Shared by its clones.
#[derive(Debug, Clone)]
pub struct EndSignal(Arc<OwnedFd>);

impl EndSignal {
    /// Creates the signal for a machine that has not ended. Fails if no descriptor is left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?)))
    }

    /// Makes the descriptor readable permanently, because the machine ends.
    pub fn signal(&self) {
        // A full counter is already readable and stays so.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

impl AsFd for EndSignal {
    /// Readable once the machine ends.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[derive(Debug, Default)]
struct PendingInput {
    bytes: VecDeque<u8>,
    ended: bool,
    wanted: bool,
}

/// Input on its way to the guest.
#[derive(Debug)]
pub struct StdinChannel {
    pending: Mutex<PendingInput>,
    /// Signalled when the guest has made room.
    drained: EventFd,
}

/// The action required after a change of the channel.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Wake {
    /// The guest waits: raise its interrupt.
    Guest,
    /// No wakeup is needed.
    None,
}

impl StdinChannel {
    /// Creates an empty channel that signals `drained` when it has room again.
    pub fn new(drained: EventFd) -> Self {
        Self { pending: Mutex::default(), drained }
    }

    fn lock(&self) -> MutexGuard<'_, PendingInput> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of bytes that the channel still accepts.
    pub fn room(&self) -> usize {
        CAPACITY - self.lock().bytes.len().min(CAPACITY)
    }

    /// Appends input for the guest.
    pub fn push(&self, bytes: &[u8]) -> Wake {
        let mut pending = self.lock();
        pending.bytes.extend(bytes);
        pending.wake()
    }

    /// Marks the end of the input.
    pub fn end(&self) -> Wake {
        let mut pending = self.lock();
        pending.ended = true;
        pending.wake()
    }

    /// Requests a wakeup of the guest when there is input.
    pub fn want(&self) -> Wake {
        let mut pending = self.lock();
        pending.wanted = true;
        pending.wake()
    }

    /// Returns the value of the port `stdin_avail` for the guest.
    pub fn available(&self) -> u32 {
        let pending = self.lock();
        match pending.bytes.len() {
            0 if pending.ended => STDIN_EOF,
            len => len as u32,
        }
    }

    /// Moves bytes to the guest, followed by zeros if too few are available.
    pub fn take(&self, data: &mut [u8]) {
        let mut pending = self.lock();
        let count = data.len().min(pending.bytes.len());
        data.fill(0);
        for (to, from) in data.iter_mut().zip(pending.bytes.drain(..count)) {
            *to = from;
        }
        // A full eventfd counter is already readable.
        let _ = self.drained.write(1);
    }
}

impl PendingInput {
    fn wake(&mut self) -> Wake {
        if self.wanted && (self.ended || !self.bytes.is_empty()) {
            self.wanted = false;
            Wake::Guest
        } else {
            Wake::None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel() -> StdinChannel {
        StdinChannel::new(EventFd::new(0).unwrap())
    }

    #[test]
    fn wakes_a_waiting_guest_once_for_input_and_eof() {
        let channel = channel();
        assert_eq!(channel.want(), Wake::None);
        assert_eq!(channel.push(b"ab"), Wake::Guest);
        assert_eq!(channel.push(b"c"), Wake::None);
        let mut data = [9; 4];
        channel.take(&mut data);
        assert_eq!(data, *b"abc\0");
        assert_eq!(channel.available(), 0);
        assert_eq!(channel.end(), Wake::None);
        assert_eq!(channel.want(), Wake::Guest);
        assert_eq!(channel.available(), STDIN_EOF);
    }

    #[test]
    fn wakes_at_once_if_input_is_pending() {
        let channel = channel();
        assert_eq!(channel.push(b"x"), Wake::None);
        assert_eq!(channel.available(), 1);
        assert_eq!(channel.want(), Wake::Guest);
    }

    #[test]
    fn eof_follows_the_last_byte() {
        let channel = channel();
        let _ = channel.push(b"x");
        let _ = channel.end();
        assert_eq!(channel.available(), 1);
        channel.take(&mut [0]);
        assert_eq!(channel.available(), STDIN_EOF);
    }
}
