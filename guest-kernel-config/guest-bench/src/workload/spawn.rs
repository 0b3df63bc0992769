//! fork, exec, pipe: the load that a build of many small files puts on a kernel.

use std::{
    io::{self, Read, Write},
    process::{Command, Stdio},
};

use super::Workload;
use crate::crew;

/// Bytes piped through each process.
const BYTES: usize = 16 << 10;

pub const WORKLOAD: Workload = Workload {
    name: "spawn",
    about: "one thread per CPU starts a process, pipes 16 KiB through it and awaits its end (like make)",
    run: |_, options| {
        let part = crew::repeat(options, || (), |()| run_child())?;
        Ok(vec![part])
    },
    each: None,
};

/// The option of this workload's children, which copy stdin to stdout.
pub const PASS_ON: &str = "--pass-on";

/// Copies stdin to stdout: see [`PASS_ON`].
pub fn pass_on() -> io::Result<()> {
    io::copy(&mut io::stdin().lock(), &mut io::stdout().lock()).map(drop)
}

fn run_child() -> io::Result<()> {
    let mut child = Command::new("/proc/self/exe")
        .arg(PASS_ON)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    // Less than a pipe's capacity, so there is no need to read at the same time.
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(&[b'x'; BYTES])?;
    }
    let mut output = Vec::with_capacity(BYTES);
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_end(&mut output)?;
    }
    let status = child.wait()?;
    if status.success() && output.len() == BYTES {
        Ok(())
    } else {
        Err(io::Error::other(format!("a process ended with {status}")))
    }
}
