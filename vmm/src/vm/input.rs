//! Subscribers of the event loop: the input pump, the machine's end, the interrupt.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    sync::Arc,
};

use event_manager::{EventOps, EventSet, Events, MutEventSubscriber};
use vmm_sys_util::eventfd::EventFd;

use super::{console::Input, console::InputTarget, escape::EscapeFilter};
use crate::{
    machine::channel::Wake,
    streams,
    vcpu::{Board, End},
};

/// Bytes read from the input at once.
const CHUNK: usize = 4096;

/// Everything the event loop listens to.
#[derive(Debug)]
pub(super) enum Subscriber {
    /// Input to the guest.
    Pump(Pump),
    /// The machine has ended. The loop checks that itself; this only wakes it.
    Ended(EventFd),
    /// The host wants the machine to end.
    Interrupt(OwnedFd, Arc<Board>),
}

impl MutEventSubscriber for Subscriber {
    fn process(&mut self, events: Events, ops: &mut EventOps) {
        match self {
            Subscriber::Pump(pump) => pump.process(&events, ops),
            Subscriber::Ended(event) => drop(event.read()),
            Subscriber::Interrupt(fd, board) => {
                board.life.finish(End::Stopped);
                // It stays readable: handling it once is enough.
                let _ = ops.remove(Events::empty_raw(fd.as_raw_fd()));
            }
        }
    }

    fn init(&mut self, ops: &mut EventOps) {
        // Adding these descriptors fails only if epoll does not support them; the pump handles that
        // itself.
        match self {
            Subscriber::Pump(pump) => pump.init(ops),
            Subscriber::Ended(event) => drop(ops.add(Events::new(event, EventSet::IN))),
            Subscriber::Interrupt(fd, _) => {
                drop(ops.add(Events::new_raw(fd.as_raw_fd(), EventSet::IN)));
            }
        }
    }
}

/// How the input is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watch {
    /// Not at all: not yet, or while the guest's side is full.
    Paused,
    /// Watched by epoll.
    Polled,
    /// Not pollable (a regular file): read whenever there is room.
    Always,
    /// Not any more: it is at its end.
    Ended,
}

/// Copies input to the guest as fast as the guest accepts it.
#[derive(Debug)]
pub(super) struct Pump {
    input: Input,
    target: InputTarget,
    keys: Option<EscapeFilter>,
    board: Arc<Board>,
    /// Signalled when the guest has made room.
    drained: EventFd,
    /// Signalled when the guest's shell is ready.
    shell: EventFd,
    shell_ready: bool,
    watch: Watch,
}

impl Pump {
    pub(super) fn new(
        input: Input,
        target: InputTarget,
        keys: Option<EscapeFilter>,
        board: Arc<Board>,
        drained: EventFd,
        shell: EventFd,
    ) -> Self {
        Self {
            input,
            target,
            keys,
            board,
            drained,
            shell,
            shell_ready: false,
            watch: Watch::Paused,
        }
    }

    fn init(&mut self, ops: &mut EventOps) {
        drop(ops.add(Events::new(&self.drained, EventSet::IN)));
        drop(ops.add(Events::new(&self.shell, EventSet::IN)));
        self.resume(ops);
    }

    fn process(&mut self, events: &Events, ops: &mut EventOps) {
        if events.fd() == self.drained.as_raw_fd() {
            let _ = self.drained.read();
            self.board.devices.com1.refill();
            self.board.devices.com2.refill();
        } else if events.fd() == self.shell.as_raw_fd() {
            let _ = self.shell.read();
            self.shell_ready = true;
        } else {
            self.transfer(ops);
        }
        self.resume(ops);
    }

    /// Bytes that the guest's side accepts now. A raw terminal is always read: the user's escape
    /// keys must not wait behind a busy guest.
    fn room(&self) -> usize {
        match self.target {
            InputTarget::Command => self.board.devices.stdin.room(),
            InputTarget::Shell if !self.shell_ready && self.keys.is_none() => 0,
            InputTarget::Shell | InputTarget::Console if self.keys.is_some() => CHUNK,
            InputTarget::Shell | InputTarget::Console => self.board.devices.com1.room(),
        }
    }

    /// Resumes watching a paused input, if there is room.
    fn resume(&mut self, ops: &mut EventOps) {
        if self.watch == Watch::Paused && self.room() > 0 {
            let added = ops.add(Events::new(&self.input, EventSet::IN));
            self.watch = if added.is_ok() { Watch::Polled } else { Watch::Always };
        }
        while self.watch == Watch::Always && self.room() > 0 {
            self.transfer(ops);
        }
    }

    fn unwatch(&mut self, ops: &mut EventOps, next: Watch) {
        if self.watch == Watch::Polled {
            let _ = ops.remove(Events::empty(&self.input));
        }
        self.watch = next;
    }

    fn transfer(&mut self, ops: &mut EventOps) {
        let room = self.room().min(CHUNK);
        if room == 0 {
            // Without this, a pipe's hang-up would wake the loop continuously.
            return self.unwatch(ops, Watch::Paused);
        }
        let mut buffer = [0; CHUNK];
        match self.input.read(&mut buffer[..room]) {
            Ok(0) => {
                self.unwatch(ops, Watch::Ended);
                self.end();
            }
            Ok(count) => self.deliver(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                streams::input_failed(error);
                self.unwatch(ops, Watch::Ended);
                self.end();
            }
        }
    }

    fn deliver(&mut self, bytes: &[u8]) {
        match (&mut self.keys, self.target) {
            (_, InputTarget::Command) => self.wake(self.board.devices.stdin.push(bytes)),
            (None, _) => self.board.devices.com1.send(bytes),
            (Some(filter), _) => {
                let keys = filter.feed(bytes, self.shell_ready);
                if keys.quit {
                    self.board.life.finish(End::Stopped);
                }
                let room = self.board.devices.com1.room().min(keys.forward.len());
                self.board.devices.com1.send(&keys.forward[..room]);
            }
        }
    }

    fn end(&self) {
        /// End of file as typed at a terminal: Ctrl-D.
        const EOT: u8 = 0x04;
        match self.target {
            InputTarget::Command => self.wake(self.board.devices.stdin.end()),
            InputTarget::Shell => self.board.devices.com1.send(&[EOT]),
            InputTarget::Console => {}
        }
    }

    fn wake(&self, wake: Wake) {
        if wake == Wake::Guest {
            self.board.devices.wake_for_stdin();
        }
    }
}
