//! A program of the user, whose life is the window.

use std::{
    env,
    ffi::OsStr,
    fs::File,
    io::{self, ErrorKind},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use rustix::fs::OFlags;

use super::Workload;
use crate::{options::WorkloadOptions, report::WorkloadPart, steal, window::Window};

pub const WORKLOAD: Workload = Workload {
    name: "program",
    about: "runs a program once: bench program -- COMMAND ARGS",
    run: |_, options| run(options, Window::open(options.ports)?).map(|part| vec![part]),
    each: None,
};

/// Bytes of the end of stdout in the report.
const OUTPUT: u64 = 64 << 10;
/// Bytes and lines of the end of stderr in an error.
const ERRORS: u64 = 200;
const ERROR_LINES: usize = 3;

fn run(options: &WorkloadOptions, mut window: Window) -> io::Result<WorkloadPart> {
    let [program, args @ ..] = options.command.as_slice() else {
        return Err(io::Error::other("program: requires a command after `--`"));
    };
    let [stdout, stderr] = [unnamed_file()?, unnamed_file()?];
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
    if let Some(dir) = Path::new(program).parent().filter(|dir| dir.is_dir()) {
        command.current_dir(dir);
    }
    window.ready()?;
    let (start, stolen) = (Instant::now(), steal::seconds());
    window.begins()?;
    let status = command.status();
    let seconds = start.elapsed().as_secs_f64();
    window.ends()?;
    let steal_seconds = steal::seconds().zip(stolen).map(|(after, before)| after - before);
    window.leave()?;
    let status = status.map_err(|error| not_started(program, &error))?;
    if !status.success() {
        let last = last_lines(&end(&stderr, ERRORS)?);
        return Err(io::Error::other(format!("{}: {status}: {last}", program.display())));
    }
    let output = Some(end(&stdout, OUTPUT)?);
    let operations = vec![1];
    Ok(WorkloadPart { seconds, operations, steal_seconds, output, ..WorkloadPart::default() })
}

/// The error for a program that did not start. The kernel reports a missing interpreter as a missing program.
fn not_started(program: &OsStr, error: &io::Error) -> io::Error {
    let name = program.display();
    let is_there = error.kind() == ErrorKind::NotFound && Path::new(program).exists();
    io::Error::new(
        ErrorKind::NotFound,
        if is_there {
            format!(
                "{name}: the guest lacks its interpreter (the loader of a dynamic program, or the program after #!): \
             link it statically, or name a --root that has it"
            )
        } else {
            format!("{name}: {error}")
        },
    )
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(ERROR_LINES)..].join(" | ")
}

/// A file for an output of the program: a pipe would stay open for its daemons.
fn unnamed_file() -> io::Result<File> {
    let flags = OFlags::TMPFILE.bits() as i32;
    File::options().read(true).append(true).custom_flags(flags).open(env::temp_dir())
}

/// The last `limit` bytes.
fn end(file: &File, limit: u64) -> io::Result<String> {
    let mut bytes = vec![0; limit as usize];
    let count = file.read_at(&mut bytes, file.metadata()?.len().saturating_sub(limit))?;
    Ok(String::from_utf8_lossy(&bytes[..count]).into_owned())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn ran(words: &[&str]) -> Result<WorkloadPart, String> {
        let command: Vec<OsString> = words.iter().map(OsString::from).collect();
        let options = WorkloadOptions { command, ..WorkloadOptions::default() };
        run(&options, Window::Silent).map_err(|error| error.to_string())
    }

    #[test]
    fn output_of_a_run_is_reported() {
        let part = ran(&["/bin/sh", "-c", "echo 5; echo x >&2"]).unwrap();
        assert_eq!((part.output.as_deref(), part.operations), (Some("5\n"), vec![1]));
        let part = ran(&["/bin/sh", "-c", "head -c 100000 /dev/zero; printf '\\377end'"]).unwrap();
        let output = part.output.unwrap();
        assert!(output.ends_with("\u{fffd}end") && output.len() < OUTPUT as usize + 3);
    }

    /// A daemon that keeps the output open does not delay the end.
    #[test]
    fn daemons_are_not_awaited() {
        assert!(ran(&["/bin/sh", "-c", "sleep 100 & echo $! >&2"]).unwrap().seconds < 50.0);
    }

    #[test]
    fn failures_have_the_last_lines_of_stderr() {
        let error = ran(&["/bin/sh", "-c", "seq 9 >&2; exit 3"]).unwrap_err();
        assert_eq!(error, "/bin/sh: exit status: 3: 7 | 8 | 9");
        let error = ran(&["/bin/sh", "-c", "kill -9 $$"]).unwrap_err();
        assert!(error.contains("signal: 9"), "{error}");
        assert!(ran(&["/no/such"]).unwrap_err().starts_with("/no/such: No such file"));
        assert!(ran(&[]).unwrap_err().contains("requires a command"));
    }

    #[test]
    fn missing_interpreters_are_named() {
        let missing = io::Error::from(ErrorKind::NotFound);
        let error = not_started(OsStr::new("/bin/sh"), &missing).to_string();
        assert!(error.contains("lacks its interpreter"), "{error}");
    }
}
