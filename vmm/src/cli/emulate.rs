//! `pvticket emulate`: runs any program in the emulated host, where our binary is available, too.

use std::{
    ffi::OsString,
    io::ErrorKind,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};
use clap::Args;

use super::{Usage, confinement, host::HostKernelArgs};
use base::{program, units::ByteSize};
use emulated::StdinMode;
use experiment::inside::EmulatedCommand;
use os::artifacts::{self, ArtifactError};

/// Run a program in the emulated host: a static program that --in copies there, or this binary
/// (/init there). The built kernel and busybox are available there
#[derive(Debug, Args)]
pub struct EmulateArgs {
    /// Memory for guests and their files
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    mem: ByteSize,

    /// CPUs for guests, 1 to 128 [default: this host's CPUs, at most 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=128))]
    cpus: Option<u32>,

    /// File to copy in; may be repeated
    #[arg(long = "in", value_name = "HERE:THERE", value_parser = pair)]
    files_in: Vec<(PathBuf, PathBuf)>,

    /// File to copy out at the end; may be repeated
    #[arg(long = "out", value_name = "THERE:HERE", value_parser = pair)]
    files_out: Vec<(PathBuf, PathBuf)>,

    #[command(flatten)]
    host_kernel: HostKernelArgs,

    /// Do not read stdin; the program sees EOF (like ssh -n)
    #[arg(short = 'n', long)]
    no_stdin: bool,

    /// Program to run, and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

fn pair(text: &str) -> Result<(PathBuf, PathBuf), String> {
    let (first, second) = text.split_once(':').ok_or("must be two paths separated by a colon")?;
    Ok((first.into(), second.into()))
}

/// Runs the subcommand and returns the program's exit status.
pub fn run(args: EmulateArgs) -> anyhow::Result<u8> {
    check_program(&args)?;
    // The emulated host passes this mode on to the program in its environment.
    confinement::set_mode()?;
    let mut inside = EmulatedCommand::new(args.host_kernel.choice()?.kernel()?, args.mem);
    if !args.no_stdin {
        inside.errand().stdin = StdinMode::Inherit;
    }
    if let Some(cpus) = args.cpus {
        inside.errand().cpus = cpus;
    }
    // Files that are not built yet are left out; a program that needs them reports it.
    if let Some(kernel) = if_built(artifacts::default_kernel())? {
        inside.take_kernel(&kernel);
    }
    if let Some(busybox) = if_built(artifacts::busybox())? {
        inside.take_busybox(&busybox);
    }
    for (file, path_inside) in args.files_in {
        inside.take(&file, path_inside);
    }
    inside.errand().files_out.extend(args.files_out);
    inside.warn_of_memory();
    inside.run(["exec".into(), "--".into()].into_iter().chain(args.command))
}

/// Rejects a program without its interpreter: the dynamic loader, or the program after `#!`.
fn check_program(args: &EmulateArgs) -> Result<(), Usage> {
    let copied = |path_inside: &Path| args.files_in.iter().find(|(_, place)| place == path_inside);
    let program = args.command.first().map(Path::new);
    let Some((file, path_inside)) = program.and_then(copied) else { return Ok(()) };
    match program::interpreter(file).filter(|needed| copied(needed).is_none()) {
        Some(needed) => Err(Usage(format!(
            "{}: {} requires {}, which is missing; use a static program, or copy it with all required files (--in)",
            path_inside.display(),
            file.display(),
            needed.display()
        ))),
        None => Ok(()),
    }
}

/// Returns `None` if the file is not built yet. Fails if it cannot be looked up.
fn if_built(artifact: Result<PathBuf, ArtifactError>) -> Result<Option<PathBuf>, ArtifactError> {
    match artifact {
        Err(error @ ArtifactError::Unreadable(..)) => Err(error),
        artifact => Ok(artifact.ok()),
    }
}

/// Execute a program: for `emulate`, in the emulated host
#[derive(Debug, Args)]
pub struct ExecArgs {
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Replaces this process. Returns only on failure.
pub fn exec(args: ExecArgs) -> anyhow::Result<u8> {
    let mut words = args.command.into_iter();
    let program = words.next().unwrap_or_default();
    let error = Command::new(&program).args(words).exec();
    let program = Path::new(&program);
    let needed = program::interpreter(program).filter(|_| error.kind() == ErrorKind::NotFound);
    match needed {
        Some(needed) => bail!(
            "cannot run {}: it requires {}, which is missing",
            program.display(),
            needed.display()
        ),
        None => Err(error).with_context(|| format!("cannot run {}", program.display())),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use tempfile::TempDir;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: EmulateArgs,
    }

    fn check(words: &[&str]) -> Result<(), String> {
        let line = Line::try_parse_from(["emulate"].iter().chain(words)).unwrap();
        check_program(&line.args).map_err(|Usage(error)| error)
    }

    #[test]
    fn missing_interpreter_is_rejected() {
        let folder = TempDir::new().unwrap();
        let script = folder.path().join("script");
        std::fs::write(&script, "#!/bin/interpreter -x\n").unwrap();
        let pair = format!("{}:/script", script.display());
        let error = check(&["--in", &pair, "--", "/script"]).unwrap_err();
        assert!(
            error.starts_with("/script: ") && error.contains("requires /bin/interpreter, which"),
            "{error}"
        );
        let words = ["--in", &pair, "--in", "/bin/true:/bin/interpreter", "--", "/script"];
        assert_eq!(check(&words), Ok(()));
        assert_eq!(check(&["--in", &pair, "--", "/other"]), Ok(()));
    }
}
