//! The commands that receive signals.

use super::{
    cell::Event,
    children,
    outputs::{Disk, Output},
};
use crate::{
    host::{run::run_in, tiny},
    prelude::*,
    process::{folder, status, thread_named},
};

/// Timeout for the start of a command.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Time between the start of a command and the signal.
const SETTLE_TIME: Duration = Duration::from_millis(200);

/// A command under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// `boot` on this host's KVM, with a guest that floods its console.
    Direct,
    /// `boot` in the emulated host, while the host is starting.
    Emulated,
    /// A program in the emulated host that floods its output.
    EmulatedAtWork,
    Run,
    Compare,
}

/// State that all cells share.
#[derive(Debug)]
pub struct World {
    /// A full disk.
    pub disk: Disk,
    busybox: PathBuf,
}

impl World {
    pub fn new(disk: Disk) -> anyhow::Result<Self> {
        Ok(Self { disk, busybox: files::cached("busybox/busybox")? })
    }
}

impl Subject {
    pub const ALL: [Self; 5] =
        [Self::EmulatedAtWork, Self::Direct, Self::Emulated, Self::Run, Self::Compare];

    /// Whether this cell is tested. [`Self::EmulatedAtWork`] takes seconds to start, so it is tested with few
    /// pairs of signal and output.
    pub fn is_tried(self, event: Event, output: Output) -> bool {
        match self {
            Self::EmulatedAtWork => match output {
                Output::File => matches!(event, Event::Nohup | Event::Term),
                Output::StalledPipe => matches!(event, Event::Int | Event::SecondInt),
                Output::FullDisk | Output::ClosedPipe => event == Event::Int,
                Output::Tty => event == Event::StopAndContinue,
            },
            _ => true,
        }
    }

    /// Whether the command sets the terminal to raw mode.
    pub const fn is_raw(self) -> bool {
        matches!(self, Self::Direct | Self::Emulated)
    }

    /// The exit status that its output causes, regardless of the signal; None if the signal determines it.
    pub fn own_status(self, output: Output) -> Option<i32> {
        match (self, output) {
            // They write results at their end, and have no room for them.
            (Self::Direct | Self::EmulatedAtWork | Self::Compare, Output::FullDisk) => Some(1),
            (Self::Direct | Self::EmulatedAtWork, Output::ClosedPipe) => Some(141),
            _ => None,
        }
    }

    /// Returns the command.
    pub fn program(
        self,
        world: &World,
        folder: &TempDir,
        output: Output,
    ) -> anyhow::Result<Program> {
        let path = |name: &str| match output {
            Output::FullDisk => world.disk.old(),
            _ => folder.path().join(name),
        };
        Ok(match self {
            Self::Direct => tiny::boot(folder, code::FLOOD)?
                .args(["--stats".as_ref(), path("stats").as_os_str()]),
            Self::Emulated => {
                let boot = Boot::on("emulated").with("--cpus 1").option("--stats", path("stats"));
                // On a terminal it runs a shell, which reads keys.
                let command: &[&str] = if output == Output::Tty { &[] } else { &["true"] };
                boot.command(command).program()
            }
            Self::EmulatedAtWork => {
                let busybox = format!("{}:/in/busybox", world.busybox.display());
                pvticket(["emulate", "--in", &busybox, "--", "/in/busybox", "yes"])
            }
            Self::Run => run_in(folder, super::LONG, &["--host", "direct"])?.0,
            Self::Compare => {
                let program = pvticket(["compare", "--host", "direct", "--vcpus", "1"]);
                program.args(["--seconds", "600", "--json"]).args([path("json")])
            }
        }
        .limit(TIMEOUT.as_secs())
        .input(Input::Silence))
    }

    /// Waits until the command is up; returns false if it has ended before.
    pub fn settle(self, running: &mut Running, output: Output) -> anyhow::Result<bool> {
        let pid = running.pid();
        // Waits for the end if the output causes it.
        let timeout = match (self, output) {
            (Self::Compare, _) | (_, Output::Tty) => None,
            _ => self.own_status(output).map(|_| TIMEOUT),
        };
        if let Some(timeout) = timeout {
            return Ok(wait_until("end", timeout, || running.has_ended()).is_err());
        }
        wait_until("command at work", TIMEOUT, || {
            Ok(running.has_ended()?
                || match self {
                    Self::Emulated => !children(pid).is_empty(),
                    // The command writes once it is up, and keeps writing on a thread that the first write
                    // starts.
                    Self::EmulatedAtWork => thread_named(pid, "output").is_some(),
                    Self::Run => children(pid).iter().any(|worker| catches(*worker, Signal::TERM)),
                    _ => catches(pid, Signal::TERM),
                })
        })?;
        thread::sleep(SETTLE_TIME);
        Ok(!running.has_ended()?)
    }
}

/// Whether the process catches this signal.
pub fn catches(pid: Pid, signal: Signal) -> bool {
    let mask = status(&folder(pid), "SigCgt:").and_then(|mask| u64::from_str_radix(&mask, 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal.as_raw() - 1)) != 0)
}
