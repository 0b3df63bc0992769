//! `pvticket drill`, hidden: tests the confinement of a compromised thread.
//!
//! A thread with a vCPU's confinement tries an attacker's system calls. `PVTICKET_SECCOMP=off` tests the
//! layers below the system call filter.

use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    net::{Ipv4Addr, TcpStream},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{self, Command},
    thread,
};

use anyhow::Context;
use clap::{Args, ValueEnum};
use rustix::process::{Pid, Signal, getppid, kill_process};

use super::{FAILURE, confinement, eprint_line};
use confine::{Class, Files, Needs};
use kvm::sys::ptrace;
use os::terminal::RawTerminal;

/// Try an attacker's actions in a thread confined like a vCPU's, for tests
#[derive(Debug, Args)]
pub struct DrillArgs {
    /// Action to try
    #[arg(value_enum)]
    action: Action,

    /// File to read, write or execute
    #[arg(default_value = "/etc/passwd")]
    file: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Action {
    /// Reads a file.
    Read,
    /// Writes a file.
    Write,
    /// Connects to a TCP port of this host.
    Connect,
    /// Executes a program.
    Execute,
    /// Attaches to the parent as a debugger.
    Trace,
    /// Sends a signal to the parent.
    Signal,
    /// Changes the root directory.
    Root,
    /// Aborts while the terminal is in raw mode.
    Abort,
}

impl Action {
    fn run(self, file: &PathBuf, parent: Pid) -> io::Result<()> {
        match self {
            Self::Read => File::open(file).map(drop),
            Self::Write => fs::write(file, "written by an intruder\n"),
            Self::Connect => TcpStream::connect((Ipv4Addr::LOCALHOST, 9)).map(drop),
            Self::Execute => Err(Command::new(file).args(None::<OsString>).exec()),
            Self::Trace => ptrace::attach(parent),
            Self::Signal => Ok(kill_process(parent, Signal::CONT)?),
            Self::Root => Ok(rustix::process::chroot("/")?),
            Self::Abort => process::abort(),
        }
    }
}

/// Runs the subcommand and returns the exit status.
pub fn run(args: &DrillArgs) -> anyhow::Result<u8> {
    confinement::set_mode()?;
    // Confinement forbids getppid.
    let parent = getppid().context("no parent process")?;
    let _raw = match args.action {
        Action::Abort => RawTerminal::enter().context("cannot set raw mode")?,
        _ => None,
    };
    confinement::begin(Class::Main, &Files::for_guests(), Needs::default())?;
    let result = thread::scope(|scope| {
        let attack = || {
            confine::enter(Class::Vcpu);
            args.action.run(&args.file, parent)
        };
        thread::Builder::new().spawn_scoped(scope, attack).map(|thread| thread.join())
    });
    match result.context("cannot start a thread")? {
        Ok(Ok(())) => {
            eprint_line(format_args!("done"));
            Ok(0)
        }
        Ok(Err(error)) => {
            eprint_line(format_args!("refused: {error}"));
            Ok(FAILURE)
        }
        Err(_) => Ok(FAILURE),
    }
}
