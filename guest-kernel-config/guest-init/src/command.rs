//! Runs the command of `/pvticket/argv` with its standard streams connected to the VMM or the console.

use alloc::{vec, vec::Vec};
use core::ffi::CStr;

use guest_init::{errors::FailedStep, lists};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    fs::OFlags,
    io::Errno,
    pipe::{PipeFlags, pipe_with},
    process::Pid,
};

use crate::{
    child, console,
    machine::{OutputStream, Platform, Ports},
    output_page::{self, OutputPage},
    stdin::Stdin,
    syscall::{self, SignalSet},
};

/// Runs the command to its end; returns its exit status.
pub fn run(machine: &Platform, argv: &[u8]) -> Result<i32, FailedStep> {
    let words: Vec<&CStr> = lists::items(argv).collect();
    if words.is_empty() {
        return Err(FailedStep::when("/pvticket/argv contains no command")(Errno::INVAL));
    }
    match machine {
        Platform::Pvticket(ports) => run_forwarded(machine, ports, &words),
        Platform::Other => run_on_console(&words),
    }
}

/// Runs the command on the console, without the VMM.
fn run_on_console(words: &[&CStr]) -> Result<i32, FailedStep> {
    let console = console::open_console().map_err(FailedStep::when("cannot open /dev/console"))?;
    if let Ok(mut settings) = rustix::termios::tcgetattr(&console) {
        settings.make_raw();
        let now = rustix::termios::OptionalActions::Now;
        rustix::termios::tcsetattr(&console, now, &settings)
            .map_err(FailedStep::when("cannot change the settings of /dev/console"))?;
    }
    child::run(words, || {
        rustix::process::setsid()?;
        child::set_standard(&console, &console, &console)
    })
}

fn run_forwarded(machine: &Platform, ports: &Ports, words: &[&CStr]) -> Result<i32, FailedStep> {
    syscall::block_signals(SignalSet::CHILD);
    let sigchld = syscall::signalfd(SignalSet::CHILD)
        .map_err(FailedStep::when("cannot create a signalfd (requires CONFIG_SIGNALFD)"))?;

    let pipe =
        || pipe_with(PipeFlags::CLOEXEC).map_err(FailedStep::when("cannot create its pipes"));
    let (stdin_read, stdin_write) = pipe()?;
    let (stdout_read, stdout_write) = pipe()?;
    let (stderr_read, stderr_write) = pipe()?;
    let pid = child::spawn(words, || {
        ports.revoke();
        rustix::process::setsid()?;
        child::set_standard(&stdin_read, &stdout_write, &stderr_write)
    })?;
    drop((stdin_read, stdout_write, stderr_write));
    for fd in [&stdin_write, &stdout_read, &stderr_read] {
        rustix::fs::fcntl_setfl(fd, OFlags::NONBLOCK)
            .map_err(FailedStep::when("cannot create its pipes"))?;
    }
    let forwarder = Forwarder {
        machine,
        ports,
        sigchld,
        stdin: Stdin::new(stdin_write),
        stdout: OutputPipe { pipe: Some(stdout_read), stream: OutputStream::Stdout },
        stderr: OutputPipe { pipe: Some(stderr_read), stream: OutputStream::Stderr },
        buffer: Buffer::new(ports),
    };
    forwarder.run(pid).map_err(FailedStep::when(child::WAIT_FAILED))
}

/// A buffer for output between a pipe and the VMM.
enum Buffer {
    Page(OutputPage),
    Heap(Vec<u8>),
}

impl Buffer {
    fn new(ports: &Ports) -> Self {
        ports.output_page().map_or_else(|| Self::Heap(vec![0; output_page::SIZE]), Self::Page)
    }

    /// Moves at most one buffer from the pipe to the VMM; `false` at the end of the pipe.
    fn forward(
        &mut self,
        pipe: &OwnedFd,
        stream: OutputStream,
        ports: &Ports,
    ) -> Result<bool, Errno> {
        let bytes = match self {
            Self::Page(page) => page.bytes(),
            Self::Heap(bytes) => bytes,
        };
        let count = rustix::io::read(pipe, &mut *bytes)?;
        match self {
            _ if count == 0 => return Ok(false),
            Self::Page(_) => ports.write_output_page(stream, count as u32),
            Self::Heap(bytes) => ports.write_output(stream, &bytes[..count]),
        }
        Ok(true)
    }
}

/// One of the command's outputs; `pipe` is `None` after end or error.
struct OutputPipe {
    pipe: Option<OwnedFd>,
    stream: OutputStream,
}

impl OutputPipe {
    /// Moves all available output.
    fn pump(&mut self, buffer: &mut Buffer, ports: &Ports) {
        while let Some(pipe) = &self.pipe {
            match buffer.forward(pipe, self.stream, ports) {
                Ok(true) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Ok(false) | Err(_) => self.pipe = None,
            }
        }
    }
}

struct Forwarder<'a> {
    machine: &'a Platform,
    ports: &'a Ports,
    sigchld: OwnedFd,
    stdin: Stdin,
    stdout: OutputPipe,
    stderr: OutputPipe,
    buffer: Buffer,
}

impl Forwarder<'_> {
    /// Forwards until the command has ended; returns its exit status. By then all its output is in the
    /// pipes: its remaining children are not awaited.
    fn run(mut self, pid: Pid) -> Result<i32, Errno> {
        self.stdin.pump(self.machine, self.ports);
        loop {
            self.step()?;
            let ended = child::reap(pid, false);
            self.stdout.pump(&mut self.buffer, self.ports);
            self.stderr.pump(&mut self.buffer, self.ports);
            if let Some(status) = ended {
                return Ok(status);
            }
        }
    }

    /// Waits for an event and handles it.
    fn step(&mut self) -> Result<(), Errno> {
        // A placeholder without events replaces an absent file descriptor.
        let absent = PollFd::new(&self.sigchld, PollFlags::empty());
        let [stdout, stderr] = [&self.stdout, &self.stderr]
            .map(|output| output.pipe.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        let [pipe, wake] = self.stdin.poll_fds();
        let mut fds = [Some(PollFd::new(&self.sigchld, PollFlags::IN)), stdout, stderr, pipe, wake]
            .map(|fd| fd.unwrap_or_else(|| absent.clone()));
        let timeout =
            self.stdin.timeout_ms().map(|ms| Timespec { tv_sec: 0, tv_nsec: ms * 1_000_000 });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        let [sigchld, _, _, pipe, wake] = fds.map(|fd| fd.revents());
        if !sigchld.is_empty() {
            // Only consumes the signal; `reap` determines which process ended.
            let mut signal = [0; 128];
            let _ = rustix::io::read(&self.sigchld, &mut signal);
        }
        self.stdin.handle(pipe, wake, self.machine, self.ports);
        Ok(())
    }
}
