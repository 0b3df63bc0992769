//! The console, and the serial line that is the controlling terminal of init's session.

use core::ffi::CStr;

use rustix::{
    fd::OwnedFd,
    fs::{self, Mode, OFlags},
    io::Errno,
    termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr},
};

const SERIAL_LINE: &CStr = c"/dev/ttyS0";
const CONSOLE: &CStr = c"/dev/console";

/// Makes the first serial line, if there is one, the controlling terminal of init's session.
///
/// When a session leader exits, the kernel hangs up its controlling terminal, which discards the output
/// that has not been sent yet (`disassociate_ctty` in drivers/tty/tty_jobctrl.c, `uart_hangup` in
/// drivers/tty/serial/serial_core.c). Init never exits, and no other session can take the line. The line
/// stays the controlling terminal while the returned file descriptor is open.
pub fn keep_serial_line() -> Option<OwnedFd> {
    let line = open(SERIAL_LINE).ok()?;
    rustix::process::setsid().ok()?;
    rustix::process::ioctl_tiocsctty(&line).ok()?;
    Some(line)
}

/// Opens the first serial line, which is a shell's controlling terminal, or else the console.
pub fn terminal() -> Result<OwnedFd, Errno> {
    open(SERIAL_LINE).and_then(|line| tcgetattr(&line).map(|_| line)).or_else(|_| open(CONSOLE))
}

/// Turns off the terminal's echo, and with it the shell's line editor: without echo, busybox leaves the
/// terminal in canonical mode (`read_line_input` in libbb/lineedit.c). Each program then gets its lines
/// and the end of input from the line discipline. A line editor would make the terminal raw: an end of
/// input typed at that time would reach the next program as text.
pub fn stop_echo(terminal: &OwnedFd) -> Result<(), Errno> {
    let mut settings = tcgetattr(terminal)?;
    settings.local_modes.remove(LocalModes::ECHO);
    tcsetattr(terminal, OptionalActions::Now, &settings)
}

pub fn open_console() -> Result<OwnedFd, Errno> {
    open(CONSOLE)
}

/// Waits until all console output has been sent.
pub fn drain() {
    if let Ok(console) = open_console() {
        let _ = rustix::termios::tcdrain(console);
    }
}

fn open(path: &CStr) -> Result<OwnedFd, Errno> {
    fs::open(path, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())
}
