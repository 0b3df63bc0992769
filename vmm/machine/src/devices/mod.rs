//! The devices of a machine: two serial ports, the power ports, the hypercall ports and the channel
//! of the guest's command.

pub mod bench;
pub mod channel;
pub mod console_monitor;
pub mod hypercall;
pub mod output;
pub mod power;
pub mod serial;

use std::{
    io,
    sync::{Arc, OnceLock, atomic::AtomicU32},
};

use vmm_sys_util::eventfd::EventFd;

use bench::Bench;
use channel::{EndSignal, StdinChannel};
use console_monitor::ConsoleMonitor;
use output::{Output, WaitRunner};
use power::PowerRequest;
use serial::SerialPort;

use crate::clock::Moment;
use boot::layout;

/// The first invalid access to a hypercall port.
pub type FirstMisuse = OnceLock<hypercall::Misuse>;

/// The devices shared by all vCPU threads. Ports without a device read as zeros and ignore writes.
#[derive(Debug)]
pub struct Devices {
    /// The guest kernel's console.
    pub com1: SerialPort,
    /// Carries one wake byte for data or EOF on the command's stdin.
    pub com2: SerialPort,
    /// The command's stdin.
    pub stdin: StdinChannel,
    /// The command's stdout.
    pub stdout: Output,
    /// The command's stderr.
    pub stderr: Output,
    /// Notifies threads blocked on output that the machine ends, if there can be any.
    pub end_signal: Option<EndSignal>,
    /// Frame number of the page that the guest's output is read from.
    pub output_page: AtomicU32,
    /// The guest's first misuse of a hypercall port.
    pub misuse: FirstMisuse,
    /// The guest's lifecycle events.
    pub events: EventLog,
    /// The last console lines of the guest's kernel.
    pub monitor: Arc<ConsoleMonitor>,
    /// Receives the steps of the guest's benchmark, if measured from outside.
    pub bench: Option<Arc<dyn Bench>>,
}

impl Devices {
    /// Handles a write of `data` to a port outside the hypercall range. Errors come from the
    /// console. Blocks on the console's reader only within `run_wait`.
    pub fn write(
        &self,
        port: u16,
        data: &[u8],
        run_wait: WaitRunner<'_>,
    ) -> io::Result<Option<PowerRequest>> {
        if let Some(offset) = offset_in(port, layout::COM1_PORT) {
            self.com1.write(offset, data, run_wait)?;
        } else if let Some(offset) = offset_in(port, layout::COM2_PORT) {
            self.com2.write(offset, data, run_wait)?;
        } else {
            return Ok(power::write(port, data));
        }
        Ok(None)
    }

    /// Interrupts the guest's reader of stdin with one byte on COM2.
    pub fn wake_for_stdin(&self) {
        self.com2.send(&[0]);
    }

    /// Handles a read of a port outside the hypercall range.
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

/// Times of the lifecycle events that the guest reports.
#[derive(Debug)]
pub struct EventLog {
    init: OnceLock<Moment>,
    shell: EventFd,
}

impl EventLog {
    /// Creates a log that writes to `shell` when an interactive shell takes over the console.
    pub fn new(shell: EventFd) -> Self {
        Self { init: OnceLock::new(), shell }
    }

    /// Records the start of `/init`. Only the first call counts.
    pub fn init_reached(&self) {
        let _ = self.init.set(Moment::now());
    }

    /// Reports that a shell owns the console.
    pub fn shell_ready(&self) {
        // A full eventfd counter is already readable.
        let _ = self.shell.write(1);
    }

    /// The first start time of `/init`.
    pub fn init_time(&self) -> Option<Moment> {
        self.init.get().copied()
    }
}
