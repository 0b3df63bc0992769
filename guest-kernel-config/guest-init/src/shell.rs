//! The interactive shell on the serial console.

use core::ffi::CStr;

use hypercalls::ports::Event;
use rustix::{
    fd::OwnedFd,
    fs::{self, Access, Mode, OFlags},
    io::Errno,
};

use crate::{
    child::{self, Environment},
    machine::Machine,
    report,
};

/// Exit status if there is no console to run a shell on.
const FAILED: i32 = 255;

/// Runs a shell to its end; returns its exit status.
pub fn run(machine: &Machine) -> i32 {
    on_console(machine).unwrap_or_else(|error| {
        let number = error.raw_os_error();
        report::error(format_args!("cannot start a shell: error {number}"));
        FAILED
    })
}

fn on_console(machine: &Machine) -> Result<i32, Errno> {
    let console = open_console()?;
    let shell: &[&CStr] = match fs::access(c"/bin/sh", Access::EXEC_OK) {
        Ok(()) => &[c"/bin/sh"],
        Err(_) => &[c"/bin/busybox", c"sh"],
    };
    machine.event(Event::ShellReady);
    let pid = child::spawn(shell, &Environment::new(), || {
        if let Machine::Pvticket(ports) = machine {
            ports.give_up();
        }
        rustix::process::setsid()?;
        // Job control needs a controlling terminal; /dev/console cannot be one, and the shell then
        // says so.
        let _ = rustix::process::ioctl_tiocsctty(&console);
        child::set_standard(&console, &console, &console)
    })?;
    let status = child::reap(pid, true).ok_or(Errno::CHILD)?;
    // The end of the machine must not cut off the shell's last output.
    let _ = rustix::termios::tcdrain(&console);
    Ok(status)
}

/// The first serial line, which can be a controlling terminal, or else the console.
fn open_console() -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    fs::open(c"/dev/ttyS0", flags, Mode::empty())
        .and_then(|line| rustix::termios::tcgetattr(&line).map(|_| line))
        .or_else(|_| fs::open(c"/dev/console", flags, Mode::empty()))
}
