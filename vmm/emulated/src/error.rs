//! Failures of the emulated host, as opposed to failures of the command.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use thiserror::Error;

use super::{
    qemu::{QemuError, image::InitramfsError, pieces::PartsError},
    session::watch::{Freeze, GiveUp},
    wire::WireError,
};
use base::units::ByteSize;
use os::{memory::in_mib, runtime::RuntimeError, signals};

/// Minimum memory of the emulated host, with a reserve: it boots with 96 MiB (measured, without files).
pub const MIN_MEMORY: ByteSize = ByteSize::mib(128);

/// The emulated host failed or could not be started.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum EmulatedError {
    /// A part is missing.
    #[error(transparent)]
    Pieces(#[from] PartsError),
    /// The initramfs cannot be made.
    #[error(transparent)]
    Image(#[from] InitramfsError),
    /// QEMU cannot be started.
    #[error(transparent)]
    Machine(#[from] QemuError),
    /// The async runtime cannot be started.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// Signals cannot be caught.
    #[error("cannot catch signals")]
    Signals(#[source] io::Error),
    /// A pipe or thread for the input cannot be made.
    #[error("cannot read the input")]
    Input(#[source] io::Error),
    /// An environment variable has an invalid value.
    #[error("invalid value {name}='{value}': unset it, or see MANUAL.md")]
    Variable { name: &'static str, value: String },
    /// The emulated host froze, and no further restart was allowed or possible.
    #[error("the emulated host froze: {freeze}. {}. This is a fault of the emulator, not of the guest{evidence}", advice(*.cause, *.restarts))]
    Frozen { freeze: Freeze, cause: GiveUp, restarts: u32, evidence: KeptEvidence },
    /// The emulated host's kernel panicked.
    #[error("the emulated host's own kernel died: {line}{evidence}")]
    Panic { line: String, evidence: KeptEvidence },
    /// The emulated host ran out of memory.
    #[error(
        "the emulated host ran out of its {memory}, and its kernel killed the command: give it more memory, or the guest less"
    )]
    Memory { memory: ByteSize },
    /// The emulated host's kernel had no room for its RAM disk, which contains the forwarded files.
    #[error(
        "the emulated host's {memory} had no room for the forwarded files{largest}: give it more (--mem), or use a smaller file{evidence}"
    )]
    NoRoom { memory: ByteSize, largest: LargestFile, evidence: KeptEvidence },
    /// The emulated host has too little memory to boot.
    #[error("the emulated host needs at least {MIN_MEMORY} of memory besides the guest's, not {0}")]
    TooSmall(ByteSize),
    /// The agent cannot run commands.
    #[error("the emulated host cannot run commands: {error}{evidence}")]
    Agent { error: String, evidence: KeptEvidence },
    /// QEMU exited before the command ended.
    #[error("the emulator exited unexpectedly ({status}): {complaint}{evidence}")]
    Ended { status: String, complaint: String, evidence: KeptEvidence },
    #[error("cannot wait for the emulator")]
    Wait(#[source] io::Error),
    /// The control port or a stream's task failed.
    #[error("the connection to the emulated host failed")]
    Connection(#[source] io::Error),
    /// The agent sent an invalid message.
    #[error("the agent in the emulated host sent an invalid message")]
    Wire(#[from] WireError),
    /// The command line does not fit in a message.
    #[error("the command line is too long for the emulated host (pass long arguments in a file)")]
    CommandLine(#[source] WireError),
    /// The agent has another protocol version.
    #[error("the protocol version {0} of the emulated host's agent is not supported")]
    Version(u32),
    /// A result file cannot be written on this host.
    #[error("cannot write a result file")]
    Result(#[source] io::Error),
    /// This process's stdout or stderr cannot be written.
    #[error("cannot write the output")]
    Output(#[source] io::Error),
    /// The process was interrupted by a signal.
    #[error("stopped by {}", signal_name(*.0))]
    Interrupted(i32),
}

/// The largest forwarded file and its size, displayed as a part of a sentence; None if there are no files.
#[derive(Debug, PartialEq, Eq)]
pub struct LargestFile(pub Option<(PathBuf, ByteSize)>);

impl LargestFile {
    /// Returns the largest of these files.
    pub fn find<'a>(files: impl IntoIterator<Item = &'a Path>) -> Self {
        let size =
            |file: &'a Path| Some((file.to_owned(), ByteSize(fs::metadata(file).ok()?.len())));
        Self(files.into_iter().filter_map(size).max_by_key(|(_, size)| *size))
    }
}

impl fmt::Display for LargestFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some((file, size)) => write!(f, ", of which {} has {}", file.display(), in_mib(*size)),
            None => Ok(()),
        }
    }
}

impl EmulatedError {
    /// Returns the exit status: 128 plus the signal's number after a signal or a closed pipe (SIGPIPE),
    /// otherwise 1.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Interrupted(signal) => signals::status_of(*signal),
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => 128 + 13,
            _ => 1,
        }
    }
}

fn advice(cause: GiveUp, restarts: u32) -> String {
    match (cause, restarts) {
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
            "More input was consumed than is kept, so the command was not repeated: run it again"
                .into()
        }
    }
}

fn signal_name(signal: i32) -> String {
    match signal {
        1 => "SIGHUP".into(),
        2 => "SIGINT".into(),
        15 => "SIGTERM".into(),
        signal => format!("signal {signal}"),
    }
}

/// The folder of the evidence, if it was kept. Displays as the end of a sentence.
#[derive(Debug, Default)]
pub struct KeptEvidence(pub Option<PathBuf>);

impl fmt::Display for KeptEvidence {
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
    fn a_full_ram_disk_is_reported_with_the_large_file() {
        let folder = tempfile::TempDir::new().unwrap();
        let files = [("small", 10), ("large", 300 << 20)].map(|(name, size)| {
            let file = folder.path().join(name);
            fs::File::create(&file).unwrap().set_len(size).unwrap();
            file
        });
        let missing = Path::new("/no/such");
        let largest = LargestFile::find(files.iter().map(PathBuf::as_path).chain([missing]));
        let memory = ByteSize::mib(512);
        let error =
            EmulatedError::NoRoom { memory, largest, evidence: KeptEvidence(None) }.to_string();
        assert!(error.starts_with("the emulated host's 512 MiB had no room for"), "{error}");
        assert!(error.contains(&format!("{} has 300 MiB: ", files[1].display())), "{error}");
        assert_eq!(LargestFile::find([missing]).to_string(), "");
    }

    #[test]
    fn freezes_are_reported_with_advice() {
        let freeze = Freeze::Cpu { cpu: 1, after: Duration::from_millis(20_250) };
        let evidence = KeptEvidence(Some("/e/1".into()));
        let error =
            EmulatedError::Frozen { freeze, cause: GiveUp::Exhausted, restarts: 2, evidence };
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
