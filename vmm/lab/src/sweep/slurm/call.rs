//! Runs a command of Slurm, for a limited time.

use std::{
    ffi::OsStr,
    io::{self, ErrorKind, Read, Write},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    thread::{self, Builder, JoinHandle},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};

use super::EngineError;
use base::io_errors::of_start;

/// Interval between two looks whether the command has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Most bytes that are kept of an output: a line for each element of the largest array.
const MOST: u64 = 64 << 20;

/// Most characters of an output that an error repeats.
const QUOTED: usize = 300;

/// What a command printed.
#[derive(Debug)]
pub(super) struct CommandOutput {
    pub output: String,
    pub errors: String,
}

impl CommandOutput {
    /// All of it in one line.
    pub fn said(&self) -> String {
        one_line(&format!("{}\n{}", self.errors, self.output))
    }
}

/// Runs a command with this input, and expects it to succeed.
pub(super) fn call<W: AsRef<OsStr>>(
    command: &'static str,
    words: &[W],
    input: Option<&str>,
    patience: Duration,
) -> Result<CommandOutput, EngineError> {
    let mut child = Command::new(command);
    // A group of its own: Ctrl-C at the terminal is for us, not for a submission under way.
    child.args(words).process_group(0);
    child.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    let child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(of_start);
    let mut child = child.map_err(|error| match error.kind() {
        ErrorKind::NotFound => EngineError::Absent(command),
        _ => EngineError::Start { command, error },
    })?;
    let readers = attend(&mut child, input).inspect_err(|_| kill(&mut child));
    let [output, errors] = readers.map_err(|error| EngineError::Start { command, error })?;
    let deadline = Instant::now() + patience;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => thread::sleep(LOOK_EVERY),
            Ok(None) => {
                kill(&mut child);
                return Err(EngineError::Silent { command, seconds: patience.as_secs() });
            }
            Err(error) => return Err(EngineError::Start { command, error }),
        }
    };
    let text = |reader: JoinHandle<String>| reader.join().unwrap_or_default();
    let done = CommandOutput { output: text(output), errors: text(errors) };
    if status.success() {
        Ok(done)
    } else {
        Err(EngineError::Failed { command, status: status.to_string(), said: done.said() })
    }
}

/// Starts the threads that write its input and read its outputs.
fn attend(child: &mut Child, input: Option<&str>) -> io::Result<[JoinHandle<String>; 2]> {
    if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
        let input = input.to_owned();
        // The command may not read the input; then it says why.
        Builder::new().spawn(move || drop(stdin.write_all(input.as_bytes())))?;
    }
    Ok([read(child.stdout.take())?, read(child.stderr.take())?])
}

fn read(from: Option<impl Read + Send + 'static>) -> io::Result<JoinHandle<String>> {
    Builder::new().spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            let _: io::Result<usize> = (&mut from).take(MOST).read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Kills it with its group, which is its own, and waits for it.
fn kill(child: &mut Child) {
    if let Some(id) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // The child has not been waited for.
        let _ = kill_process_group(id, Signal::KILL);
    }
    let _ = child.wait();
}

pub(super) fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ").chars().take(QUOTED).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, patience: Duration) -> Result<CommandOutput, EngineError> {
        call("sh", &["-c", script], Some("input\n"), patience)
    }

    #[test]
    fn what_a_command_does_is_said_in_a_line() {
        let done = sh("cat; echo note >&2", Duration::from_secs(600)).unwrap();
        assert_eq!((done.output.as_str(), done.said().as_str()), ("input\n", "note; input"));
        let failed = sh("echo 'sbatch: error: no'; echo why >&2; exit 3", Duration::from_secs(600));
        let message = failed.unwrap_err().to_string();
        assert_eq!(message, "sh failed (exit status: 3): why; sbatch: error: no");
        let began = Instant::now();
        let silent = sh("sleep 600 & sleep 600", Duration::from_millis(100)).unwrap_err();
        assert!(matches!(silent, EngineError::Silent { .. }), "{silent}");
        assert!(began.elapsed() < Duration::from_secs(300), "it was waited for");
        let absent = call("pvticket-no-such", &[""; 0], None, Duration::from_secs(1));
        assert!(absent.unwrap_err().to_string().contains("there is no pvticket-no-such here"));
    }
}
