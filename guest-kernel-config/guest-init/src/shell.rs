//! The interactive shell on the serial console.

use core::ffi::CStr;

use guest_init::errors::FailedStep;
use hypercalls::ports::GuestEvent;
use rustix::fs::{self, Access};

use crate::{child, console, machine::Platform};

/// Exists if the shell's input is not typed by a person.
const PLAIN_LINES: &CStr = c"/pvticket/plain-lines";

/// Runs a shell to its end; returns its exit status.
pub fn run(machine: &Platform) -> Result<i32, FailedStep> {
    let terminal = console::terminal()
        .map_err(FailedStep::when("neither /dev/ttyS0 nor /dev/console can be opened"))?;
    let shell: &[&CStr] = match fs::access(c"/bin/sh", Access::EXEC_OK) {
        Ok(()) => &[c"/bin/sh"],
        Err(_) => &[c"/bin/busybox", c"sh"],
    };
    if fs::access(PLAIN_LINES, Access::EXISTS).is_ok() {
        console::stop_echo(&terminal)
            .map_err(FailedStep::when("cannot change the settings of the terminal"))?;
    }
    machine.event(GuestEvent::ShellReady);
    // The shell stays in init's session, whose controlling terminal is the serial line: a shell
    // needs a controlling terminal for job control, and complains without one.
    child::run(shell, || {
        if let Platform::Pvticket(ports) = machine {
            ports.revoke();
        }
        child::set_standard(&terminal, &terminal, &terminal)
    })
}
