//! `pvticket emulated-test`, hidden: what the tests of the emulated host run, here or inside it.

use std::{ffi::OsString, path::PathBuf, time::Instant};

use clap::Args;

use super::{host::HostKernelArgs, say};
use base::{chain::chain, units::ByteSize};
use emulated::{self, Errand, OutputMode, StdinMode, Supervision, selftest};
use os::streams;

/// Does what the words say (see `emulated/selftest.rs`), here or in the emulated host.
#[derive(Debug, Args)]
pub struct EmulatedTestArgs {
    /// In the emulated host.
    #[arg(long)]
    inside: bool,
    /// Emulated CPUs.
    #[arg(long)]
    cpus: Option<u32>,
    /// Its memory.
    #[arg(long, default_value = "512M")]
    memory: ByteSize,
    #[command(flatten)]
    host_kernel: HostKernelArgs,
    /// Give it no input.
    #[arg(long)]
    no_stdin: bool,
    /// Keep its output until it has ended.
    #[arg(long)]
    capture: bool,
    /// Say on stderr how long things took.
    #[arg(long)]
    timing: bool,
    /// A file to take along, HERE:THERE.
    #[arg(long = "in", value_parser = pair)]
    files_in: Vec<(PathBuf, PathBuf)>,
    /// A file to bring back, THERE:HERE.
    #[arg(long = "out", value_parser = pair)]
    files_out: Vec<(PathBuf, PathBuf)>,
    /// What to do.
    #[arg(last = true)]
    words: Vec<OsString>,
}

fn pair(text: &str) -> Result<(PathBuf, PathBuf), String> {
    let (one, other) = text.split_once(':').ok_or("write PATH:PATH")?;
    Ok((one.into(), other.into()))
}

/// Runs the subcommand and returns the exit status.
pub(super) fn run(args: EmulatedTestArgs) -> anyhow::Result<u8> {
    if !args.inside {
        return selftest::main(args.words).map_err(anyhow::Error::msg);
    }
    let mut words: Vec<OsString> = vec!["emulated-test".into(), "--".into()];
    words.extend(args.words);
    let mut errand = Errand::new(words);
    errand.memory = args.memory;
    errand.kernel = args.host_kernel.choice().kernel()?;
    errand.cpus = args.cpus.unwrap_or(errand.cpus);
    errand.files_in = args.files_in;
    errand.files_out = args.files_out;
    errand.env = vec![("SELFTEST".into(), "passed on".into())];
    if args.no_stdin {
        errand.stdin = StdinMode::Null;
    }
    if args.capture {
        (errand.stdout, errand.stderr) = (OutputMode::Capture, OutputMode::Progress);
    }
    let begin = Instant::now();
    let finished = match emulated::run(&errand, &Supervision::from_env()?) {
        Ok(finished) => finished,
        Err(error) => {
            say(format_args!("pvticket: {}", chain(&error)));
            return Ok(error.exit_status());
        }
    };
    streams::print_raw(&finished.stdout);
    for missing in &finished.missing {
        say(format_args!("pvticket: no {}: {}", missing.host.display(), missing.why));
    }
    if args.timing {
        let timing = finished.timing;
        say(format_args!(
            "agent up {:.3} s, done {:.3} s, all {:.3} s, restarts {}",
            timing.agent_up.as_secs_f64(),
            timing.done.as_secs_f64(),
            begin.elapsed().as_secs_f64(),
            finished.restarts.len()
        ));
    }
    Ok(finished.status as u8)
}
