//! What can go wrong with the emulated host. None of it is the errand's own failure.

use std::{fmt, io, path::PathBuf};

use thiserror::Error;

use super::{
    image::ImageError,
    machine::MachineError,
    pieces::PiecesError,
    watch::{Freeze, GiveUp},
    wire::WireError,
};
use crate::{runtime::RuntimeError, signals, units::ByteSize};

/// The least memory in which it boots, with some to spare (measured: 96 MiB, with no files).
pub const SMALLEST: ByteSize = ByteSize::mib(128);

/// The emulated host failed, or could not be had.
#[derive(Debug, Error)]
pub enum EmulatedError {
    /// A part is missing.
    #[error(transparent)]
    Pieces(#[from] PiecesError),
    /// The initramfs cannot be made.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// QEMU cannot be started.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// No runtime.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// Signals cannot be caught.
    #[error("cannot catch signals: {0}")]
    Signals(#[source] io::Error),
    /// Our own input, or its thread.
    #[error("cannot read the input: {0}")]
    Input(#[source] io::Error),
    /// An environment variable that says nothing sensible.
    #[error("{name}='{value}' makes no sense: unset it, or see the README")]
    Variable { name: &'static str, value: String },
    /// It froze, and there was no further restart.
    #[error("the emulated host froze: {freeze}. {}. This is a fault of the emulator, not of the guest{evidence}", advice(*.why, *.restarts))]
    Frozen { freeze: Freeze, why: GiveUp, restarts: u32, evidence: Kept },
    /// Its kernel panicked.
    #[error("the emulated host's own kernel died: {line}{evidence}")]
    Panic { line: String, evidence: Kept },
    /// It has no memory left.
    #[error(
        "the emulated host ran out of its {memory}, and its kernel killed the command: give it more, or the guest less"
    )]
    Memory { memory: ByteSize },
    /// It could not even boot.
    #[error("the emulated host needs at least {SMALLEST} of memory beside the guest's, not {0}")]
    TooSmall(ByteSize),
    /// The agent cannot work there.
    #[error("the emulated host cannot run commands: {error}{evidence}")]
    Agent { error: String, evidence: Kept },
    /// QEMU ended by itself.
    #[error("the emulator ended by itself ({status}): {complaint}{evidence}")]
    Ended { status: String, complaint: String, evidence: Kept },
    /// A process cannot be waited for.
    #[error("cannot wait for the emulator: {0}")]
    Wait(#[source] io::Error),
    /// Bytes that make no sense, or a port that fails.
    #[error("the connection to the emulated host failed: {0}")]
    Connection(#[source] io::Error),
    /// What the agent sent makes no sense.
    #[error("the agent in the emulated host makes no sense: {0}")]
    Wire(#[from] WireError),
    /// The command line is longer than a message.
    #[error(
        "the command line is too long for the emulated host: {0}; hand over what is long in a file"
    )]
    CommandLine(#[source] WireError),
    /// Two versions.
    #[error("the agent in the emulated host speaks version {0} of the protocol")]
    Version(u32),
    /// A result file cannot be written here.
    #[error("cannot write a result file: {0}")]
    Result(#[source] io::Error),
    /// Whoever reads our output has stopped.
    #[error("cannot write the output: {0}")]
    Output(#[source] io::Error),
    /// We were told to stop.
    #[error("stopped by {}", signal_name(*.0))]
    Interrupted(i32),
}

impl EmulatedError {
    /// The exit status that suits it: as the shell would report the signal, otherwise 1.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Interrupted(signal) => signals::status_of(*signal),
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => 128 + 13,
            _ => 1,
        }
    }
}

fn advice(why: GiveUp, restarts: u32) -> String {
    match (why, restarts) {
        (GiveUp::Exhausted, 0) => {
            "Run the command again, or set PVTICKET_EMULATED_RESTARTS to have it restarted".into()
        }
        (GiveUp::Exhausted, 1) => "It was restarted once already: run the command again".into(),
        (GiveUp::Exhausted, count) => {
            format!("It was restarted {count} times already: run the command again")
        }
        (GiveUp::OutputSeen, _) => {
            "Part of the output has been passed on, so the command was not repeated: run it again"
                .into()
        }
        (GiveUp::InputUsed, _) => {
            "More input was used than is kept, so the command was not repeated: run it again".into()
        }
    }
}

fn signal_name(signal: i32) -> String {
    match signal {
        1 => "SIGHUP".into(),
        2 => "SIGINT".into(),
        15 => "SIGTERM".into(),
        other => format!("signal {other}"),
    }
}

/// Where evidence is kept; shown as the end of a sentence.
#[derive(Debug, Default)]
pub struct Kept(pub Option<PathBuf>);

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(folder) => write!(f, "; evidence: {}", folder.display()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_freeze_says_whose_fault_it_is_and_what_to_do() {
        let freeze = Freeze::Cpu { cpu: 1, after: Duration::from_millis(20_250) };
        let evidence = Kept(Some("/e/1".into()));
        let error = EmulatedError::Frozen { freeze, why: GiveUp::Exhausted, restarts: 2, evidence };
        assert_eq!(
            error.to_string(),
            "the emulated host froze: its CPU 1 took no timer interrupt for 20.2 s. It was \
             restarted 2 times already: run the command again. This is a fault of the emulator, \
             not of the guest; evidence: /e/1"
        );
        assert_eq!(error.exit_status(), 1);
        assert_eq!(EmulatedError::Interrupted(2).exit_status(), 130);
        let closed = EmulatedError::Output(io::ErrorKind::BrokenPipe.into());
        assert_eq!(closed.exit_status(), 141);
    }
}
