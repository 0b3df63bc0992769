//! Messages on standard error.

use core::fmt::{self, Write};

use rustix::io::Errno;

/// Standard error: the console, or a pipe in a child before exec.
struct StandardError;

impl Write for StandardError {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut remaining = text.as_bytes();
        while !remaining.is_empty() {
            // If the kernel could not open a console, messages are lost.
            let count = write_some(remaining)?;
            remaining = &remaining[count..];
        }
        Ok(())
    }
}

fn write_some(bytes: &[u8]) -> Result<usize, fmt::Error> {
    // SAFETY: stderr is never closed.
    let stderr = unsafe { rustix::stdio::stderr() };
    match rustix::io::write(stderr, bytes) {
        Ok(count) => Ok(count),
        Err(Errno::INTR) => Ok(0),
        Err(_) => Err(fmt::Error),
    }
}

/// Prints an error in one line. A failure to print is ignored.
pub fn error(message: fmt::Arguments<'_>) {
    let _ = writeln!(StandardError, "pvticket: {message}");
}
