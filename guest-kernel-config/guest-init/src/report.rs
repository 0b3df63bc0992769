//! Lines for people.

use core::fmt::{self, Write};

use rustix::io::Errno;

/// Standard error, whatever it is: the console for process 1, a pipe for an applet.
struct StandardError;

impl Write for StandardError {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            // Not there at all when the kernel could not open a console: then nothing is said.
            let count = write_some(rest)?;
            rest = &rest[count..];
        }
        Ok(())
    }
}

fn write_some(bytes: &[u8]) -> Result<usize, fmt::Error> {
    // SAFETY: nobody closes it.
    let stderr = unsafe { rustix::stdio::stderr() };
    match rustix::io::write(stderr, bytes) {
        Ok(count) => Ok(count),
        Err(Errno::INTR) => Ok(0),
        Err(_) => Err(fmt::Error),
    }
}

/// Says one line about what went wrong. That it cannot be said is nothing to act on.
pub fn error(message: fmt::Arguments<'_>) {
    let _ = writeln!(StandardError, "pvticket: {message}");
}
