//! Background jobs of a terminal: they leave it alone, are not stopped by it, and end when signalled.

use crate::{host::tiny, prelude::*};

kvm::tests![a_job_in_the_background_ends, typed_input_is_left_to_the_foreground];

/// Runs a shell that controls the terminal, and below it timeout(1), which makes itself a background job.
/// timeout sends the signal after three seconds, then SIGCONT, and waits for the end.
fn in_background(program: Program, signal: &str, setting: &str) -> Program {
    let job = format!("timeout -s {signal} 3 \\\"\\$0\\\" \\\"\\$@\\\"");
    program.after(&format!("exec setsid -w -c sh -c \"stty {setting}; {job}\" \"$0\" \"$@\""))
}

/// Status of timeout(1) for a program that it had to end.
const TIMED_OUT: i32 = 124;

/// Skips a test without GNU timeout; busybox's stays in the foreground.
fn need_timeout() -> anyhow::Result<()> {
    let ran = Program::new("timeout").args(["--version"]).run();
    if ran.is_ok_and(|ran| String::from_utf8_lossy(&ran.stdout).contains("coreutils")) {
        Ok(())
    } else {
        skip("there is no timeout of the GNU coreutils here")
    }
}

/// With typed keys, output, and `stty tostop`: for each, the kernel stops a job again after SIGCONT.
fn a_job_in_the_background_ends() -> anyhow::Result<()> {
    need_timeout()?;
    for signal in ["TERM", "INT", "HUP"] {
        let folder = files::scratch()?;
        let subjects = [
            ("raw", tiny::boot(&folder, code::SPIN)?, "-tostop"),
            ("output", tiny::boot(&folder, code::FLOOD)?, "tostop"),
            (
                "input",
                Boot::on("emulated").with("--cpus 1").command(["head", "-n", "1"]).program(),
                "tostop",
            ),
        ];
        let ends = &|(name, program, setting): (&str, Program, &str)| {
            ends_in_background(program, signal, setting)
                .with_context(|| format!("{name}, SIG{signal}"))
        };
        thread::scope(|scope| {
            let threads: Vec<_> = subjects.map(|subject| scope.spawn(move || ends(subject))).into();
            threads.into_iter().try_for_each(|thread| match thread.join() {
                Ok(ended) => ended,
                Err(_) => anyhow::bail!("a test's thread panicked"),
            })
        })?;
    }
    Ok(())
}

fn ends_in_background(program: Program, signal: &str, setting: &str) -> anyhow::Result<()> {
    let terminal = Terminal::open()?;
    let mut running = terminal.start(in_background(program, signal, setting).limit(60))?;
    // The command may not be reading yet; typed text stays in the terminal.
    thread::sleep(Duration::from_secs(1));
    terminal.press(b"typed\r")?;
    thread::sleep(Duration::from_secs(1));
    ensure!(!running.has_ended()?, "it ended early: {}", terminal.text());
    ensure!(!terminal.is_raw()?, "it changed the terminal of another job");
    running.wait()?.exits(TIMED_OUT).map(drop)
}

/// The shell reads a line while its job runs.
fn typed_input_is_left_to_the_foreground() -> anyhow::Result<()> {
    let (folder, terminal) = (files::scratch()?, Terminal::open()?);
    let script = "set -m; \\\"\\$0\\\" \\\"\\$@\\\" & read -r line; echo shell got \\$line; kill -TERM %1; wait; exit 5";
    let session = format!("exec setsid -w -c sh -c \"{script}\" \"$0\" \"$@\"");
    let mut running = terminal.start(tiny::boot(&folder, code::SPIN)?.after(&session).limit(60))?;
    thread::sleep(Duration::from_secs(1));
    terminal.press(b"typed\r")?;
    terminal.wait_for(&mut running, "shell got typed").or_else(|error| {
        // The shell may end just after it has printed that.
        if terminal.has_shown("shell got typed") { Ok(()) } else { Err(error) }
    })?;
    running.wait()?.exits(5).map(drop)
}
