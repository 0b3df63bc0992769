//! The window of a benchmark. Our kernels read their counters at the window's beginning and end, and notify the VMM
//! of both. On other kernels this program does so, by the VMM's I/O ports.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    thread,
    time::Duration,
};

use hypercalls::ports::GuestEvent;

use crate::ports::Ports;

/// The file that takes the announcements; a read returns the counts within all windows.
pub const FILE: &str = "/sys/kernel/debug/pvticket/window";

/// Interval at which [`Step::Ready`] and [`Step::Leave`] look whether the other machines have arrived.
const POLL: Duration = Duration::from_micros(500);

/// A step of a benchmark.
#[derive(Debug, Clone, Copy)]
enum Step {
    Ready,
    Begins,
    Ends,
    Leave,
}

impl Step {
    const fn word(self) -> &'static [u8] {
        match self {
            Self::Ready => b"ready",
            Self::Begins => b"begins",
            Self::Ends => b"ends",
            Self::Leave => b"leave",
        }
    }

    const fn event(self) -> Option<GuestEvent> {
        match self {
            Self::Ready => Some(GuestEvent::BenchReady),
            Self::Begins => Some(GuestEvent::WindowBegins),
            Self::Ends => Some(GuestEvent::WindowEnds),
            Self::Leave => None,
        }
    }

    const fn waits_for_others(self) -> bool {
        matches!(self, Self::Ready | Self::Leave)
    }
}

/// Announces the steps of a benchmark.
#[derive(Debug)]
pub enum Window {
    /// To our kernel.
    Kernel(File),
    /// To the VMM, by its ports.
    Ports(Ports),
    /// To nobody.
    Silent,
}

impl Window {
    /// Opens [`FILE`] if the kernel has it, or else the ports if the VMM has given their base.
    pub fn open(ports: Option<u16>) -> io::Result<Self> {
        if let Ok(file) = OpenOptions::new().write(true).open(FILE) {
            return Ok(Self::Kernel(file));
        }
        ports.map_or(Ok(Self::Silent), |base| Ports::open(base).map(Self::Ports))
    }

    /// Announces that all workers are ready. Returns when the VMM's other machines are ready, too.
    pub fn ready(&mut self) -> io::Result<()> {
        self.announce(Step::Ready)
    }

    /// The window begins: earlier operations do not count.
    pub fn begins(&mut self) -> io::Result<()> {
        self.announce(Step::Begins)
    }

    /// The window ends: later operations do not count.
    pub fn ends(&mut self) -> io::Result<()> {
        self.announce(Step::Ends)
    }

    /// Returns when no other machine is being measured; until then the workers continue.
    pub fn leave(&mut self) -> io::Result<()> {
        self.announce(Step::Leave)
    }

    fn announce(&mut self, step: Step) -> io::Result<()> {
        match self {
            Self::Kernel(file) => file.write_all(step.word()),
            Self::Ports(ports) => {
                if let Some(event) = step.event() {
                    ports.report(event);
                }
                while step.waits_for_others() && !ports.is_gate_open() {
                    thread::sleep(POLL);
                }
                Ok(())
            }
            Self::Silent => Ok(()),
        }
    }
}
