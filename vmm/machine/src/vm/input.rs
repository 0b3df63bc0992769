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
    typed_eof::TypedEof,
};
use crate::{
    devices::channel::Wake,
    vcpu::{End, VcpuShared},
};
use base::escape::EscapeFilter;

/// Maximum number of bytes per read.
const CHUNK: usize = 4096;

/// Interval for checking whether the terminal has returned from another job. (A process that is resumed in
/// the foreground gets a signal, but a process that kept running gets none.)
const TERMINAL_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Interval at which end of file is typed again at the guest's console. Each program run by the
/// shell consumes one, and programs in raw mode receive it only while they read.
const EOF_INTERVAL: Duration = Duration::from_millis(250);

/// The interval for guests that are not ours. Their console may have no reader for long, or a reader that restarts
/// at each end of file, such as login.
const FOREIGN_EOF_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) enum Subscriber {
    /// Input to the guest.
    Pump(Pump),
    /// The machine has ended. Only wakes the loop, which checks for the end itself.
    Ended(EventFd),
    /// The host requests the end of the machine.
    Interrupt(OwnedFd, Arc<VcpuShared>),
}

impl MutEventSubscriber for Subscriber {
    fn process(&mut self, events: Events, ops: &mut EventOps) {
        match self {
            Subscriber::Pump(pump) => pump.process(&events, ops),
            Subscriber::Ended(event) => drop(event.read()),
            Subscriber::Interrupt(fd, shared) => {
                shared.life.finish(End::Stopped);
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
    shared: Arc<VcpuShared>,
    /// Signalled when the guest has made room.
    drained: EventFd,
    /// Signalled when the guest's shell is ready.
    shell_signal: EventFd,
    shell_ready: bool,
    polling: PollMode,
    /// Triggers the next check of the terminal, or the next typed end of input.
    timer: TimerFd,
    eof: TypedEof,
}

impl Pump {
    pub(super) fn new(
        input: InputSource,
        target: InputTarget,
        keys: Option<EscapeFilter>,
        shared: Arc<VcpuShared>,
        drained: EventFd,
        shell_signal: EventFd,
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
            shared,
            drained,
            shell_signal,
            shell_ready: false,
            polling: PollMode::Paused,
            timer,
            eof: TypedEof::default(),
        })
    }

    fn init(&mut self, ops: &mut EventOps) {
        drop(ops.add(Events::new(&self.drained, EventSet::IN)));
        drop(ops.add(Events::new(&self.shell_signal, EventSet::IN)));
        drop(ops.add(Events::new(&self.timer, EventSet::IN)));
        match self.input {
            Some(_) => self.resume(ops),
            None => self.end_input(ops),
        }
    }

    fn process(&mut self, events: &Events, ops: &mut EventOps) {
        if events.fd() == self.drained.as_raw_fd() {
            let _ = self.drained.read();
            self.shared.devices.com1.refill();
            self.shared.devices.com2.refill();
        } else if events.fd() == self.shell_signal.as_raw_fd() {
            let _ = self.shell_signal.read();
            self.shell_ready = true;
        } else if events.fd() == self.timer.as_raw_fd() {
            let _ = self.timer.wait();
            match self.polling {
                PollMode::Background => self.polling = PollMode::Paused,
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
            InputTarget::Command => self.shared.devices.stdin.room(),
            InputTarget::Shell if !self.shell_ready && self.keys.is_none() => 0,
            InputTarget::Shell | InputTarget::Console if self.keys.is_some() => CHUNK,
            InputTarget::Shell | InputTarget::Console => self.shared.devices.com1.room(),
        }
    }

    /// Resumes a paused input if there is room.
    fn resume(&mut self, ops: &mut EventOps) {
        if let Some((input, _)) = self.input.as_ref().filter(|_| self.polling == PollMode::Paused)
            && self.room() > 0
        {
            let added = ops.add(Events::new(input, EventSet::IN));
            self.polling = if added.is_ok() { PollMode::Polled } else { PollMode::Always };
        }
        while self.polling == PollMode::Always && self.room() > 0 {
            self.transfer(ops);
        }
    }

    fn unwatch(&mut self, ops: &mut EventOps, next: PollMode) {
        if let Some((input, _)) = self.input.as_ref().filter(|_| self.polling == PollMode::Polled) {
            let _ = ops.remove(Events::empty(input));
        }
        self.polling = next;
    }

    fn transfer(&mut self, ops: &mut EventOps) {
        let room = self.room().min(CHUNK);
        if room == 0 {
            // Otherwise a pipe's hang-up would wake the loop continuously.
            return self.unwatch(ops, PollMode::Paused);
        }
        let Some((input, owner)) = &mut self.input else { return };
        if !owner.is_readable() {
            return self.wait_for_terminal(ops);
        }
        let mut buffer = [0; CHUNK];
        match input.read(&mut buffer[..room]) {
            Ok(0) => self.end_input(ops),
            Ok(count) => self.deliver(&buffer[..count]),
            Err(error)
                if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            // Another job has just taken the terminal.
            Err(_) if !owner.is_readable() => self.wait_for_terminal(ops),
            Err(error) => {
                owner.failed(error);
                self.end_input(ops);
            }
        }
    }

    /// Stops reading while another job has the terminal.
    fn wait_for_terminal(&mut self, ops: &mut EventOps) {
        self.unwatch(ops, PollMode::Background);
        self.wait(TERMINAL_CHECK_INTERVAL);
    }

    fn deliver(&mut self, bytes: &[u8]) {
        let mut filtered = Vec::new();
        let bytes = match &mut self.keys {
            None => bytes,
            Some(filter) => {
                let keys = filter.feed(bytes, self.shell_ready);
                if keys.quit {
                    self.shared.life.finish(End::Stopped);
                }
                filtered.extend(keys.forward);
                &filtered
            }
        };
        match self.target {
            InputTarget::Command => self.wake(self.shared.devices.stdin.push(bytes)),
            InputTarget::Shell | InputTarget::Console => {
                let room = self.shared.devices.com1.room().min(bytes.len());
                self.eof.add(&bytes[..room]);
                self.shared.devices.com1.send(&bytes[..room]);
            }
        }
    }

    fn end_input(&mut self, ops: &mut EventOps) {
        self.unwatch(ops, PollMode::Ended);
        match self.target {
            InputTarget::Command => self.wake(self.shared.devices.stdin.end()),
            InputTarget::Shell | InputTarget::Console => self.type_end(),
        }
    }

    /// Types the end of the input, and repeats it until the machine has ended, because programs that the shell
    /// runs consume it as well.
    fn type_end(&mut self) {
        let com1 = &self.shared.devices.com1;
        let is_ready = self.target != InputTarget::Shell || self.shell_ready;
        if is_ready && com1.room() >= TypedEof::MAX_LEN {
            com1.send(self.eof.end());
        }
        self.wait(match self.target {
            InputTarget::Console => FOREIGN_EOF_INTERVAL,
            InputTarget::Shell | InputTarget::Command => EOF_INTERVAL,
        });
    }

    fn wait(&mut self, time: Duration) {
        // Cannot fail for a valid time.
        let _ = self.timer.reset(time, None);
    }

    fn wake(&self, wake: Wake) {
        if wake == Wake::Guest {
            self.shared.devices.wake_for_stdin();
        }
    }
}
