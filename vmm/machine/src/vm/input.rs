//! Event loop subscribers: the input pump, the end of the machine, the interrupt.

use std::{
    fs::File,
    io::{self, ErrorKind, Read},
    os::fd::{AsRawFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use event_manager::{EventOps, EventSet, Events, MutEventSubscriber};
use vmm_sys_util::{eventfd::EventFd, timerfd::TimerFd};

use super::{
    console::{InputOwner, InputSource, InputTarget},
    line_end::LineEnd,
};
use crate::{
    devices::channel::Wake,
    vcpu::{Board, End},
};
use base::escape::EscapeFilter;

/// Maximum number of bytes per read.
const CHUNK: usize = 4096;

/// Interval for checking whether the terminal has returned from another job. (A process that is resumed in
/// the foreground gets a signal, but a process that kept running gets none.)
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Interval at which the end of the input is typed again at the guest's console. Each program run by the
/// shell consumes one end, and programs in raw mode receive it only while they read.
const TYPE_AGAIN: Duration = Duration::from_millis(250);

/// The interval for guests that are not ours. Their console may have no reader for long, or one that restarts
/// at each end of file, such as login.
const TYPE_AGAIN_ELSEWHERE: Duration = Duration::from_secs(1);

/// The subscribers of the event loop.
#[derive(Debug)]
pub(super) enum Subscriber {
    /// Input to the guest.
    Pump(Pump),
    /// The machine has ended. Only wakes the loop, which checks for the end itself.
    Ended(EventFd),
    /// The host requests the end of the machine.
    Interrupt(OwnedFd, Arc<Board>),
}

impl MutEventSubscriber for Subscriber {
    fn process(&mut self, events: Events, ops: &mut EventOps) {
        match self {
            Subscriber::Pump(pump) => pump.process(&events, ops),
            Subscriber::Ended(event) => drop(event.read()),
            Subscriber::Interrupt(fd, board) => {
                board.life.finish(End::Stopped);
                // The descriptor stays readable; it needs to be handled only once.
                let _ = ops.remove(Events::empty_raw(fd.as_raw_fd()));
            }
        }
    }

    fn init(&mut self, ops: &mut EventOps) {
        // Adding these descriptors fails only if epoll does not support them. The pump handles that itself.
        match self {
            Subscriber::Pump(pump) => pump.init(ops),
            Subscriber::Ended(event) => drop(ops.add(Events::new(event, EventSet::IN))),
            Subscriber::Interrupt(fd, _) => {
                drop(ops.add(Events::new_raw(fd.as_raw_fd(), EventSet::IN)));
            }
        }
    }
}

/// The way in which the input is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PollMode {
    /// Unwatched: not started yet, or paused while the guest's side is full.
    Paused,
    /// Watched by epoll.
    Polled,
    /// Read whenever there is room, because it is not pollable (a regular file).
    Always,
    /// Unwatched while another job has the terminal. The timer triggers a check.
    Background,
    /// Unwatched: at end of file.
    Ended,
}

/// Copies input to the guest at the rate at which the guest accepts it.
#[derive(Debug)]
pub(super) struct Pump {
    input: Option<(File, Box<dyn InputOwner>)>,
    target: InputTarget,
    keys: Option<EscapeFilter>,
    board: Arc<Board>,
    /// Signalled when the guest has made room.
    drained: EventFd,
    /// Signalled when the guest's shell is ready.
    shell: EventFd,
    shell_ready: bool,
    watch: PollMode,
    /// Triggers the next check of the terminal, or the next typed end of input.
    timer: TimerFd,
    typed: LineEnd,
}

impl Pump {
    pub(super) fn new(
        input: InputSource,
        target: InputTarget,
        keys: Option<EscapeFilter>,
        board: Arc<Board>,
        drained: EventFd,
        shell: EventFd,
    ) -> io::Result<Self> {
        let input = match input {
            InputSource::File(file, owner) => Some((file, owner)),
            InputSource::AtEnd => None,
        };
        let timer = TimerFd::new()?;
        Ok(Self {
            input,
            target,
            keys,
            board,
            drained,
            shell,
            shell_ready: false,
            watch: PollMode::Paused,
            timer,
            typed: LineEnd::default(),
        })
    }

    fn init(&mut self, ops: &mut EventOps) {
        drop(ops.add(Events::new(&self.drained, EventSet::IN)));
        drop(ops.add(Events::new(&self.shell, EventSet::IN)));
        drop(ops.add(Events::new(&self.timer, EventSet::IN)));
        match self.input {
            Some(_) => self.resume(ops),
            None => self.end(ops),
        }
    }

    fn process(&mut self, events: &Events, ops: &mut EventOps) {
        if events.fd() == self.drained.as_raw_fd() {
            let _ = self.drained.read();
            self.board.devices.com1.refill();
            self.board.devices.com2.refill();
        } else if events.fd() == self.shell.as_raw_fd() {
            let _ = self.shell.read();
            self.shell_ready = true;
        } else if events.fd() == self.timer.as_raw_fd() {
            let _ = self.timer.wait();
            match self.watch {
                PollMode::Background => self.watch = PollMode::Paused,
                PollMode::Ended => self.type_end(),
                PollMode::Paused | PollMode::Polled | PollMode::Always => {}
            }
        } else {
            self.transfer(ops);
        }
        self.resume(ops);
    }

    /// Returns the number of bytes that the guest's side accepts now. A raw terminal is always read: the
    /// user's escape keys must not wait for a busy guest.
    fn room(&self) -> usize {
        match self.target {
            InputTarget::Command => self.board.devices.stdin.room(),
            InputTarget::Shell if !self.shell_ready && self.keys.is_none() => 0,
            InputTarget::Shell | InputTarget::Console if self.keys.is_some() => CHUNK,
            InputTarget::Shell | InputTarget::Console => self.board.devices.com1.room(),
        }
    }

    /// Resumes a paused input if there is room.
    fn resume(&mut self, ops: &mut EventOps) {
        if let Some((input, _)) = self.input.as_ref().filter(|_| self.watch == PollMode::Paused)
            && self.room() > 0
        {
            let added = ops.add(Events::new(input, EventSet::IN));
            self.watch = if added.is_ok() { PollMode::Polled } else { PollMode::Always };
        }
        while self.watch == PollMode::Always && self.room() > 0 {
            self.transfer(ops);
        }
    }

    fn unwatch(&mut self, ops: &mut EventOps, next: PollMode) {
        if let Some((input, _)) = self.input.as_ref().filter(|_| self.watch == PollMode::Polled) {
            let _ = ops.remove(Events::empty(input));
        }
        self.watch = next;
    }

    fn transfer(&mut self, ops: &mut EventOps) {
        let room = self.room().min(CHUNK);
        if room == 0 {
            // Otherwise a pipe's hang-up would wake the loop continuously.
            return self.unwatch(ops, PollMode::Paused);
        }
        let Some((input, owner)) = &mut self.input else { return };
        if !owner.is_ours() {
            return self.look_again(ops);
        }
        let mut buffer = [0; CHUNK];
        match input.read(&mut buffer[..room]) {
            Ok(0) => self.end(ops),
            Ok(count) => self.deliver(&buffer[..count]),
            Err(error)
                if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            // Another job has just taken the terminal.
            Err(_) if !owner.is_ours() => self.look_again(ops),
            Err(error) => {
                owner.failed(error);
                self.end(ops);
            }
        }
    }

    /// Stops reading while another job has the terminal.
    fn look_again(&mut self, ops: &mut EventOps) {
        self.unwatch(ops, PollMode::Background);
        self.wait(LOOK_AGAIN);
    }

    fn deliver(&mut self, bytes: &[u8]) {
        let mut filtered = Vec::new();
        let bytes = match &mut self.keys {
            None => bytes,
            Some(filter) => {
                let keys = filter.feed(bytes, self.shell_ready);
                if keys.quit {
                    self.board.life.finish(End::Stopped);
                }
                filtered.extend(keys.forward);
                &filtered
            }
        };
        match self.target {
            InputTarget::Command => self.wake(self.board.devices.stdin.push(bytes)),
            InputTarget::Shell | InputTarget::Console => {
                let room = self.board.devices.com1.room().min(bytes.len());
                self.typed.add(&bytes[..room]);
                self.board.devices.com1.send(&bytes[..room]);
            }
        }
    }

    /// Handles the end of the input.
    fn end(&mut self, ops: &mut EventOps) {
        self.unwatch(ops, PollMode::Ended);
        match self.target {
            InputTarget::Command => self.wake(self.board.devices.stdin.end()),
            InputTarget::Shell | InputTarget::Console => self.type_end(),
        }
    }

    /// Types the end of the input, and repeats it until the machine has ended because programs that the shell
    /// runs consume it as well.
    fn type_end(&mut self) {
        let com1 = &self.board.devices.com1;
        let is_heard = self.target != InputTarget::Shell || self.shell_ready;
        if is_heard && com1.room() >= LineEnd::LONGEST {
            com1.send(self.typed.end());
        }
        self.wait(match self.target {
            InputTarget::Console => TYPE_AGAIN_ELSEWHERE,
            InputTarget::Shell | InputTarget::Command => TYPE_AGAIN,
        });
    }

    fn wait(&mut self, time: Duration) {
        // The call fails only for a zero time.
        let _ = self.timer.reset(time, None);
    }

    fn wake(&self, wake: Wake) {
        if wake == Wake::Guest {
            self.board.devices.wake_for_stdin();
        }
    }
}
