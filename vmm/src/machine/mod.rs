//! The devices of a machine: two serial ports, the ways to end it, the
//! hypercall ports and the channel of the guest's command.

pub mod bench;
pub mod channel;
pub mod counters;
pub mod hypercall;
pub mod power;
pub mod serial;

use std::{
    io,
    sync::{Arc, OnceLock, atomic::AtomicU32},
};

use vmm_sys_util::eventfd::EventFd;

use bench::Bench;
use channel::{Closing, Output, StdinChannel};
use power::PowerRequest;
use serial::SerialPort;

use crate::{boot::layout, clock::Moment};

/// The first access to a hypercall port that was no call, for the report.
pub type FirstMisuse = OnceLock<hypercall::Misuse>;

/// What every vCPU thread shares. Ports nobody claims read as zeros, and writes
/// to them are dropped.
#[derive(Debug)]
pub struct Devices {
    /// The guest kernel's console.
    pub com1: SerialPort,
    /// Carries one wake byte when the command's stdin has something.
    pub com2: SerialPort,
    /// The command's stdin.
    pub stdin: StdinChannel,
    /// The command's stdout.
    pub stdout: Output,
    /// The command's stderr.
    pub stderr: Output,
    /// Says to whoever waits for a reader of the output that the machine ends, where there are such.
    pub closing: Option<Closing>,
    /// Frame number of the page that the guest's output is taken from.
    pub output_page: AtomicU32,
    /// The guest's first misuse of a port.
    pub misuse: FirstMisuse,
    /// The guest's life events.
    pub events: EventLog,
    /// Takes note of the guest's benchmark, if it is measured from outside.
    pub bench: Option<Arc<dyn Bench>>,
}

impl Devices {
    /// A write of `data` to a port outside the hypercall range. An error is the console's.
    pub fn write(&self, port: u16, data: &[u8]) -> io::Result<Option<PowerRequest>> {
        if let Some(offset) = offset_in(port, layout::COM1_PORT) {
            self.com1.write(offset, data)?;
        } else if let Some(offset) = offset_in(port, layout::COM2_PORT) {
            self.com2.write(offset, data)?;
        } else {
            return Ok(power::write(port, data));
        }
        Ok(None)
    }

    /// Interrupts the guest's reader of stdin with one byte on COM2.
    pub fn wake_for_stdin(&self) {
        self.com2.send(&[0]);
    }

    /// A read of a port outside the hypercall range.
    pub fn read(&self, port: u16, data: &mut [u8]) {
        if let Some(offset) = offset_in(port, layout::COM1_PORT) {
            self.com1.read(offset, data);
        } else if let Some(offset) = offset_in(port, layout::COM2_PORT) {
            self.com2.read(offset, data);
        } else {
            data.fill(0);
        }
    }
}

fn offset_in(port: u16, first: u16) -> Option<u8> {
    u8::try_from(port.wrapping_sub(first)).ok().filter(|offset| *offset < layout::COM_SPAN)
}

/// When the guest reached the points of its life that it announces.
#[derive(Debug)]
pub struct EventLog {
    init: OnceLock<Moment>,
    shell: EventFd,
}

impl EventLog {
    /// A log that writes to `shell` when an interactive shell takes the console.
    pub fn new(shell: EventFd) -> Self {
        Self { init: OnceLock::new(), shell }
    }

    /// `/init` runs. The first time counts.
    pub fn init_reached(&self) {
        let _ = self.init.set(Moment::now());
    }

    /// A shell owns the console.
    pub fn shell_ready(&self) {
        // A full eventfd counter means that the signal is already up.
        let _ = self.shell.write(1);
    }

    /// When `/init` ran first.
    pub fn init_time(&self) -> Option<Moment> {
        self.init.get().copied()
    }
}
