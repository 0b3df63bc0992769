//! One cell of the table: a command, an output, a signal.

use super::{
    outputs::{Disk, Output},
    subjects::{Subject, World},
};
use crate::{
    prelude::*,
    process::{folder, status},
};

/// Time after which a command counts as hung, on a busy machine, too.
const HUNG: Duration = Duration::from_secs(120);

/// Time between two signals, and time for which a command is watched for a wrong reaction.
const PAUSE: Duration = Duration::from_millis(300);

/// Signals sent to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Int,
    Term,
    Hup,
    /// SIGHUP, ignored since the command's start, and then SIGTERM.
    Nohup,
    /// SIGTSTP, SIGCONT and then SIGINT.
    StopAndContinue,
    /// SIGINT twice.
    SecondInt,
}

impl Event {
    pub const ALL: [Self; 6] =
        [Self::Int, Self::Term, Self::Hup, Self::Nohup, Self::StopAndContinue, Self::SecondInt];

    /// The signal that ends the command.
    const fn last(self) -> Signal {
        match self {
            Self::Int | Self::StopAndContinue | Self::SecondInt => Signal::INT,
            Self::Term | Self::Nohup => Signal::TERM,
            Self::Hup => Signal::HUP,
        }
    }

    const fn status(self) -> i32 {
        128 + self.last().as_raw()
    }

    /// Sends the signals; returns a stopwatch started before the last.
    fn send(
        self,
        running: &mut Running,
        terminal: Option<&Terminal>,
        is_raw: bool,
    ) -> anyhow::Result<Stopwatch> {
        let pid = running.pid();
        match self {
            Self::Int | Self::Term | Self::Hup => {}
            Self::Nohup => {
                running.signal(Signal::HUP)?;
                thread::sleep(PAUSE);
                ensure!(!running.has_ended()?, "an ignored signal ended it");
            }
            Self::StopAndContinue => {
                running.signal(Signal::TSTP)?;
                let is_stopped = || {
                    Ok(status(&folder(pid), "State:").is_some_and(|state| state.starts_with('T')))
                };
                wait_until("stop", HUNG, is_stopped)?;
                if let Some(terminal) = terminal {
                    terminal.is_restored().context("stopped")?;
                }
                running.signal(Signal::CONT)?;
                if let Some(terminal) = terminal.filter(|_| is_raw) {
                    wait_until("raw mode again", HUNG, || terminal.is_raw())?;
                }
            }
            Self::SecondInt => {
                running.signal(Signal::INT)?;
                thread::sleep(PAUSE);
            }
        }
        let watch = Stopwatch::start(pid);
        if !running.has_ended()? {
            running.signal(self.last())?;
        }
        Ok(watch)
    }
}

/// A cell of the table.
#[derive(Debug)]
pub struct Cell {
    subject: Subject,
    event: Event,
    output: Output,
    ending: anyhow::Result<Ending>,
}

/// How a command ended.
#[derive(Debug)]
struct Ending {
    status: Option<i32>,
    /// Time from the signal to the command's end, excluding waits for a CPU.
    took: Duration,
    stderr: String,
}

impl Cell {
    pub fn run(world: &World, subject: Subject, event: Event, output: Output) -> Self {
        let ending = Self::try_run(world, subject, event, output);
        Self { subject, event, output, ending }
    }

    fn try_run(
        world: &World,
        subject: Subject,
        event: Event,
        output: Output,
    ) -> anyhow::Result<Ending> {
        let folder = files::scratch_in_memory()?;
        let mut program = subject.program(world, &folder, output)?;
        if event == Event::Nohup {
            program = program.ignoring("HUP");
        }
        let terminal = (output == Output::Tty).then(Terminal::open).transpose()?;
        let (mut running, _reader) = match &terminal {
            Some(terminal) => (terminal.start(program)?, None),
            None => start(program, world, output, folder.path())?,
        };
        let is_raw = subject.is_raw() && terminal.is_some();
        if let (true, Some(terminal)) = (is_raw, &terminal) {
            terminal.wait_for_raw(&mut running)?;
        }
        let lives = subject.settle(&mut running, output)?;
        let mut watch = if lives {
            event.send(&mut running, terminal.as_ref(), is_raw)?
        } else {
            Stopwatch::start(running.pid())
        };
        running.wait_by(&mut watch, HUNG)?;
        let took = watch.net();
        let ran = running.wait()?;
        if let Some(terminal) = &terminal {
            terminal.is_restored()?;
        }
        ensure!(!ran.errors().contains("panicked"), "it panicked: {}", ran.errors());
        let old = fs::read_to_string(world.disk.old())?;
        let is_old = output != Output::FullDisk || old == Disk::OLD;
        ensure!(is_old, "the file on the full disk has changed: {old:?}");
        Ok(Ending { status: ran.shell_status(), took, stderr: ran.errors() })
    }

    /// Returns the fault of the result, if any.
    pub fn problem(&self) -> Option<String> {
        let Self { subject, event, output, ending } = self;
        let cell = format!("{subject:?}, {event:?}, {output:?}");
        let ending = match ending {
            Ok(ending) => ending,
            Err(error) => return Some(format!("{cell}: {error:#}")),
        };
        let due = subject.own_status(*output).unwrap_or(event.status());
        // The second signal ends a command at once, on a busy host before it has tried to write to
        // an output without room.
        let is_cut_short = *event == Event::SecondInt && ending.status == Some(event.status());
        if ending.status != Some(due) && !is_cut_short {
            let status = ending.status;
            return Some(format!("{cell}: status {status:?}, not {due}; {}", ending.stderr.trim()));
        }
        // Progress lines are not complaints; the complaint comes last.
        let complaints = ending.stderr.lines().filter(|line| line.contains(": cannot ")).count();
        let last = ending.stderr.lines().last().unwrap_or_default();
        let says_why = complaints == 1 && last.contains("No space left");
        let is_missing = due == 1 && !says_why && !is_cut_short;
        is_missing.then(|| format!("{cell}: not one line: {}", ending.stderr.trim()))
    }

    /// Describes the cell if it took longer than `limit`.
    pub fn later_than(&self, limit: Duration) -> Option<String> {
        let Self { subject, event, output, ending } = self;
        let took = ending.as_ref().ok()?.took;
        let seconds = took.as_secs_f64();
        (took > limit).then(|| format!("{subject:?}, {event:?}, {output:?} ({seconds:.1} s)"))
    }
}

fn start(
    program: Program,
    world: &World,
    output: Output,
    folder: &std::path::Path,
) -> anyhow::Result<(Running, Option<std::os::fd::OwnedFd>)> {
    let (writer, reader) = output.open(folder, &world.disk)?;
    let program = match output {
        Output::StalledPipe => program.output(writer),
        _ => program.stdout(writer),
    };
    Ok((program.start()?, reader))
}
