//! One session of the emulated host, from the start of QEMU to its end.

mod evidence;
mod failure;
mod spare_warning;
pub(super) mod watch;

use std::{io, process::ExitStatus, time::Duration};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::AsyncWriteExt,
    net::UnixStream,
    process::{Child, ChildStderr},
    task::{JoinError, JoinSet},
    time::{Interval, MissedTickBehavior, interval},
};

use super::{
    Clock, EmulatedError, Errand, Finished, Freeze, Supervision,
    error::KeptEvidence,
    qemu::{MachineSize, Qemu, image::Initramfs, pieces::Parts},
    streams::{
        output::{self, PassedOutput, Stream, UserStream},
        results::ResultFiles,
        source::StreamReader,
        stdin::Input,
    },
    supervise::eprint_line,
    wire::{self, AgentJob, Beat, Decoder, ErrandEnd, FromAgent, Injection, ToAgent},
};
use base::units::ByteSize;
use evidence::LogTail;
use os::processes::ThreadAccounts;
use spare_warning::SpareWarning;
use watch::LivenessWatch;

/// Interval between checks of the watch.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub enum SessionEnd {
    /// The command has ended.
    Finished(Finished),
    Frozen(Freeze, KeptEvidence),
}

/// A running machine with its streams and its watch.
#[derive(Debug)]
pub struct Session<'a> {
    errand: &'a Errand,
    supervision: &'a Supervision,
    inject: Option<Injection>,
    cpus: u32,
    child: Child,
    exited: Option<ExitStatus>,
    control: StreamReader<UnixStream>,
    decoder: Decoder,
    console: StreamReader<UnixStream>,
    stderr: StreamReader<ChildStderr>,
    monitor: UnixStream,
    /// stdin, stdout and stderr until the command starts.
    streams: Option<[UnixStream; 3]>,
    tasks: JoinSet<StreamEnd>,
    /// Port of stdin, once all input has been sent.
    stdin_port: Option<UnixStream>,
    ticker: Interval,
    clock: Clock,
    watch: LivenessWatch,
    /// QEMU's threads.
    threads: ThreadAccounts,
    beat: Beat,
    console_log: LogTail,
    stderr_log: LogTail,
    results: ResultFiles,
    /// Number of the command's output streams that have ended.
    outputs_ended: usize,
    done: Option<ErrandEnd>,
    spare_warning: SpareWarning,
    agent_up: Duration,
    command_line: String,
}

/// The result of a stream's task.
#[derive(Debug)]
enum StreamEnd {
    /// All input has been sent, or the machine died, which is detected elsewhere. The port is returned to be
    /// kept open: QEMU drops unread data of a socket that closes (measured).
    Input(UnixStream),
    Output(io::Result<()>),
}

#[derive(Debug)]
enum SessionEvent {
    Control(io::Result<usize>),
    Console(io::Result<usize>),
    Stderr(io::Result<usize>),
    Task(Option<Result<StreamEnd, JoinError>>),
    Exited(io::Result<ExitStatus>),
    Check,
}

impl<'a> Session<'a> {
    /// Starts QEMU.
    pub fn start(
        errand: &'a Errand,
        supervision: &'a Supervision,
        pieces: &Parts,
        image: &Initramfs,
        inject: Option<Injection>,
    ) -> Result<Self, EmulatedError> {
        let clock = Clock::start();
        let cpus = errand.cpus.saturating_add(supervision.spare.into());
        let size = MachineSize { cpus, memory: errand.memory, tsc_khz: pieces.tsc.khz() };
        let machine = Qemu::start(pieces, image, size)?;
        let [control, stdin, stdout, stderr] = machine.ports;
        let mut ticker = interval(CHECK_INTERVAL);
        ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self {
            errand,
            supervision,
            inject,
            cpus,
            child: machine.child,
            exited: None,
            control: StreamReader::new(control),
            decoder: Decoder::default(),
            console: StreamReader::new(machine.console),
            stderr: StreamReader::new(machine.stderr),
            monitor: machine.monitor,
            streams: Some([stdin, stdout, stderr]),
            tasks: JoinSet::new(),
            stdin_port: None,
            ticker,
            clock,
            watch: LivenessWatch::new(supervision.limits, clock.now()),
            threads: ThreadAccounts::default(),
            beat: Beat::default(),
            console_log: LogTail::default(),
            stderr_log: LogTail::default(),
            results: ResultFiles::expect(
                errand.files_out.iter().map(|(_, host)| host.as_path()),
                errand.memory,
            ),
            outputs_ended: 0,
            done: None,
            spare_warning: SpareWarning::default(),
            agent_up: Duration::ZERO,
            command_line: format!("{}\n{}", pieces.release, machine.command_line),
        })
    }

    /// Serves the session until the command has ended, or the machine has frozen or failed.
    pub async fn run(
        &mut self,
        input: &Input,
        sent: &PassedOutput,
    ) -> Result<SessionEnd, EmulatedError> {
        loop {
            match self.event().await {
                SessionEvent::Control(read) => self.handle_control(read, input, sent).await?,
                SessionEvent::Console(read) => self.console_log.push(self.console.chunk(read)),
                SessionEvent::Stderr(read) => self.stderr_log.push(self.stderr.chunk(read)),
                SessionEvent::Task(task) => self.task_ended(task)?,
                SessionEvent::Exited(status) => {
                    return self.exit_report(status, input, sent).await;
                }
                SessionEvent::Check => {
                    let starved = self.starved();
                    if let Some(freeze) = self.watch.check(self.clock.now(), starved) {
                        return Ok(self.frozen(freeze).await);
                    }
                }
            }
            if let Some(finished) = self.finished()? {
                return Ok(SessionEnd::Finished(finished));
            }
        }
    }

    /// Ends the session, and waits until QEMU has exited.
    pub async fn end(mut self) -> Result<(), EmulatedError> {
        self.tasks.shutdown().await;
        if self.exited.is_none() {
            self.child.kill().await.map_err(EmulatedError::Wait)?;
        }
        Ok(())
    }

    async fn event(&mut self) -> SessionEvent {
        tokio::select! {
            read = self.control.read() => SessionEvent::Control(read),
            read = self.console.read() => SessionEvent::Console(read),
            read = self.stderr.read() => SessionEvent::Stderr(read),
            task = self.tasks.join_next(), if !self.tasks.is_empty() => SessionEvent::Task(task),
            status = self.child.wait(), if self.exited.is_none() => SessionEvent::Exited(status),
            _ = self.ticker.tick() => SessionEvent::Check,
        }
    }

    async fn handle_control(
        &mut self,
        read: io::Result<usize>,
        input: &Input,
        sent: &PassedOutput,
    ) -> Result<(), EmulatedError> {
        self.decoder.push(self.control.chunk(read));
        while let Some(body) = self.decoder.next_frame()? {
            match wire::decode(&body)? {
                FromAgent::Hello { version, .. } if version != wire::VERSION => {
                    return Err(EmulatedError::Version(version));
                }
                FromAgent::Hello { .. } => self.begin(input, sent).await?,
                FromAgent::Beat(beat) => {
                    self.watch.beat(&beat, self.clock.now());
                    self.beat = beat;
                }
                FromAgent::Piece { index, bytes } => {
                    self.results.piece(index, &bytes).map_err(EmulatedError::Result)?;
                }
                FromAgent::FileEnd { index } => {
                    self.results.end(index).map_err(EmulatedError::Result)?;
                }
                FromAgent::FileFailed { index, error } => {
                    self.results.failed(index, error).map_err(EmulatedError::Result)?;
                }
                FromAgent::Done(done) => self.done = Some(done),
                FromAgent::NoneSpared { online, wanted } => {
                    if let Some(warning) = self.spare_warning.warn_once(online, wanted) {
                        eprint_line(&warning, self.errand.interactive);
                    }
                }
                FromAgent::Failed { error } => {
                    let evidence = self.save_evidence(&error, b"");
                    return Err(EmulatedError::Agent { error, evidence });
                }
            }
        }
        Ok(())
    }

    /// Sends the command to the agent, which is up.
    async fn begin(&mut self, input: &Input, sent: &PassedOutput) -> Result<(), EmulatedError> {
        self.agent_up = self.clock.now();
        self.watch.hello(self.agent_up);
        let Some([mut stdin, stdout, stderr]) = self.streams.take() else { return Ok(()) };
        let message = wire::encode_to_agent(&ToAgent::Start(self.job()));
        let message = message.map_err(EmulatedError::CommandLine)?;
        self.control.stream.write_all(&message).await.map_err(EmulatedError::Connection)?;
        let input = input.clone();
        self.tasks.spawn(async move {
            let _ = input.feed(&mut stdin).await;
            StreamEnd::Input(stdin)
        });
        let outputs = [
            (Stream::Stdout, self.errand.stdout, stdout),
            (Stream::Stderr, self.errand.stderr, stderr),
        ];
        for (stream, mode, port) in outputs {
            let sent = sent.clone();
            self.tasks.spawn(async move {
                StreamEnd::Output(output::forward(port, stream, mode, sent).await)
            });
        }
        self.inject_fault();
        Ok(())
    }

    fn job(&self) -> AgentJob {
        use std::os::unix::ffi::OsStrExt;
        let bytes = |text: &std::ffi::OsStr| text.as_bytes().to_vec();
        AgentJob {
            args: self.errand.args.iter().map(|arg| bytes(arg)).collect(),
            env: self.errand.env.iter().map(|(name, value)| (bytes(name), bytes(value))).collect(),
            files_out: self.errand.files_out.iter().map(|(path, _)| bytes(path.as_ref())).collect(),
            cpus: self.errand.cpus,
            inject: self.inject,
        }
    }

    /// Returns the longest time that a thread of the machine was runnable without a CPU since the last call.
    fn starved(&mut self) -> Duration {
        let times = self.child.id().map(|process| self.threads.refresh(process));
        let delays = times.iter().flatten().map(|times| times.waited.0);
        Duration::from_nanos(delays.max().unwrap_or(0))
    }

    fn inject_fault(&self) {
        let signal = match self.inject {
            Some(Injection::Stop) => Signal::STOP,
            Some(Injection::Kill) => Signal::KILL,
            _ => return,
        };
        let pid = self.child.id().and_then(|id| Pid::from_raw(id as i32));
        if let Some(pid) = pid {
            let _ = kill_process(pid, signal);
        }
    }

    fn task_ended(
        &mut self,
        task: Option<Result<StreamEnd, JoinError>>,
    ) -> Result<(), EmulatedError> {
        match task {
            Some(Ok(StreamEnd::Output(Ok(())))) => self.outputs_ended += 1,
            Some(Ok(StreamEnd::Output(Err(error)))) if is_user_stream_error(&error) => {
                return Err(EmulatedError::Output(error));
            }
            // A port fails when the machine dies, which is detected elsewhere.
            Some(Ok(StreamEnd::Output(Err(_)))) => {}
            Some(Err(error)) => return Err(EmulatedError::Connection(io::Error::other(error))),
            Some(Ok(StreamEnd::Input(port))) => self.stdin_port = Some(port),
            None => {}
        }
        Ok(())
    }

    fn finished(&mut self) -> Result<Option<Finished>, EmulatedError> {
        let Some(done) = self.done.filter(|_| self.outputs_ended == 2) else { return Ok(None) };
        if done.oom_kills > 0 && done.status == 128 + 9 {
            return Err(EmulatedError::Memory { memory: self.errand.memory });
        }
        let results = std::mem::replace(
            &mut self.results,
            ResultFiles::expect(std::iter::empty(), ByteSize(0)),
        );
        Ok(Some(Finished {
            status: done.status,
            missing: results.commit().map_err(EmulatedError::Result)?,
        }))
    }
}

/// Whether a stream of this process failed, rather than a port.
fn is_user_stream_error(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<UserStream>())
}
