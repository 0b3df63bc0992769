//! The kernel under test: a file, or a source tree that is built first.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{self, Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::Context;

use crate::check::{NoVerdict, process};
use base::sanitize;
use experiment::{Usage, kernel};
use os::{
    owners::{UntrustedUser, untrusted_within},
    signals::Interrupt,
    streams::eprint_line,
};

/// Path of a build's kernel in its output directory.
const BZIMAGE: &str = "arch/x86/boot/bzImage";
/// Path of the previous kernel during a build.
const PREVIOUS: &str = "arch/x86/boot/.bzImage.before";
/// Time limit of a build.
const BUILD_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
/// Lines of a failed build that are printed.
const SHOWN_LINES: usize = 10;
/// Bytes of its errors that are read.
const MAX_ERRORS: u64 = 1 << 20;

/// A kernel under test.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// The file that is booted.
    pub file: PathBuf,
    /// The user's path: links are not resolved, and it is not a path inside the emulated host.
    pub name: PathBuf,
}

impl Kernel {
    /// Replaces the file's path by the user's in `text`.
    pub fn replace_path(&self, text: &str) -> String {
        text.replace(&*self.file.to_string_lossy(), &self.name.to_string_lossy())
    }
}

/// Finds the kernel at `place`: a file, or the kernel of a source tree, by default the current directory. A
/// tree is built first, unless `as_built`. Errors name `option`.
pub fn find(
    place: Option<&Path>,
    option: &str,
    as_built: bool,
    stop: &Interrupt,
) -> anyhow::Result<Kernel> {
    let place = place.unwrap_or(Path::new("."));
    let absolute = |file: &Path| path::absolute(file).unwrap_or_else(|_| file.to_owned());
    if !place.is_dir() {
        // A failed build may have left no file, hence no verdict.
        let file = kernel::resolve(place, option).map_err(|Usage(reason)| NoVerdict(reason))?;
        return Ok(Kernel { file, name: absolute(place) });
    }
    if !is_tree(place) {
        let reason = format!(
            "{}: not a kernel source tree; change to a tree, or specify a kernel or tree with --kernel",
            fs::canonicalize(place).unwrap_or_else(|_| place.to_owned()).display()
        );
        return Err(Usage(reason).into());
    }
    let variables = MakeVariables::from_env();
    let output = variables.output(place);
    let file = if as_built { output.join(BZIMAGE) } else { build(place, &variables, stop)? };
    if !file.is_file() {
        return Err(
            NoVerdict(format!("there is no {}: build it (make bzImage)", file.display())).into()
        );
    }
    let real = fs::canonicalize(&file);
    let real = real.with_context(|| format!("cannot find {}", file.display()))?;
    Ok(Kernel { file: real, name: absolute(&file) })
}

/// Variables that a build gets from the environment, which determine kbuild's output directory.
#[derive(Debug, Default)]
struct MakeVariables {
    /// `NAME=VALUE` from `MAKEFLAGS`, which override makefiles.
    assignments: Vec<OsString>,
    /// The environment variable `KBUILD_OUTPUT`.
    output: Option<OsString>,
}

impl MakeVariables {
    /// Environment variables with flags of make.
    const FLAGS: [&str; 2] = ["GNUMAKEFLAGS", "MAKEFLAGS"];

    fn from_env() -> Self {
        let flags = Self::FLAGS.iter().filter_map(env::var_os);
        let assignments = flags.flat_map(|flags| variables_in(&flags)).collect();
        Self { assignments, output: env::var_os("KBUILD_OUTPUT") }
    }

    /// The value of a variable in `MAKEFLAGS`; the last assignment counts.
    fn value(&self, name: &str) -> Option<&OsStr> {
        let mut values = self.assignments.iter().filter_map(|word| {
            let value = word.as_bytes().strip_prefix(name.as_bytes())?;
            value.strip_prefix(b":=").or_else(|| value.strip_prefix(b"="))
        });
        values.next_back().map(OsStr::from_bytes)
    }

    /// The output directory (kbuild.rst; Linux's Makefile: KBUILD_OUTPUT of make takes precedence over O, and
    /// O over KBUILD_OUTPUT of the environment). Relative paths start at the tree.
    fn output(&self, tree: &Path) -> PathBuf {
        let dir = self.value("KBUILD_OUTPUT").or_else(|| self.value("O"));
        let dir = dir.or(self.output.as_deref()).filter(|folder| !folder.is_empty());
        dir.map_or_else(|| tree.to_owned(), |folder| tree.join(folder))
    }
}

/// The variables in `MAKEFLAGS` (make.info, Options/Recursion): words with an equals sign that are not
/// options. A backslash quotes the next character.
fn variables_in(flags: &OsStr) -> Vec<OsString> {
    let (mut words, mut is_quoted) = (vec![Vec::new()], false);
    for byte in flags.as_bytes() {
        match byte {
            b'\\' if !is_quoted => {
                is_quoted = true;
                continue;
            }
            b' ' | b'\t' if !is_quoted => words.push(Vec::new()),
            _ => words.last_mut().into_iter().for_each(|word| word.push(*byte)),
        }
        is_quoted = false;
    }
    words.retain(|word| word.contains(&b'=') && !word.starts_with(b"-"));
    words.into_iter().map(OsString::from_vec).collect()
}

fn is_tree(place: &Path) -> bool {
    place.join("Makefile").is_file() && place.join("arch/x86").is_dir()
}

/// Another user who can change files that a build executes, if any.
fn untrusted_in(folders: [&Path; 2]) -> Option<UntrustedUser> {
    let existing = folders.into_iter().filter(|folder| folder.is_dir());
    existing.map(Path::to_owned).find_map(|folder| untrusted_within(&folder))
}

/// Runs `make bzImage` and returns the new kernel, never the kernel of an earlier build.
fn build(tree: &Path, variables: &MakeVariables, stop: &Interrupt) -> anyhow::Result<PathBuf> {
    let output = variables.output(tree);
    if let Some(user) = untrusted_in([tree, &output]) {
        let reason = format!(
            "{} is not built, because others could change its commands: {user}; build it yourself and use --as-built",
            tree.display()
        );
        return Err(NoVerdict(reason).into());
    }
    let (file, previous) = (output.join(BZIMAGE), output.join(PREVIOUS));
    // make links an up-to-date kernel again within a second.
    let had_previous = fs::rename(&file, &previous).is_ok();
    let result = make(tree, variables, stop);
    let exists = file.is_file();
    if had_previous && exists {
        let _ = fs::remove_file(&previous);
    } else if had_previous {
        let _ = fs::rename(&previous, &file);
    }
    result?;
    if !exists {
        let reason = format!(
            "make did not create {}; if its output is elsewhere, specify the kernel with --kernel",
            file.display()
        );
        return Err(NoVerdict(reason).into());
    }
    Ok(file)
}

fn make(tree: &Path, variables: &MakeVariables, stop: &Interrupt) -> anyhow::Result<()> {
    let jobs = thread::available_parallelism().map_or(1, usize::from);
    eprint_line(format_args!("pvticket: building {} (make -j{jobs} bzImage)", tree.display()));
    let errors = tempfile::NamedTempFile::new().context("cannot create a temporary file")?;
    let mut make = Command::new("make");
    make.arg("-C").arg(tree).arg("-s").arg(format!("-j{jobs}")).args(&variables.assignments);
    make.arg("bzImage").stdin(Stdio::null()).stdout(Stdio::null());
    // If make started this program, its options and jobserver are not passed on.
    MakeVariables::FLAGS.iter().chain(&["MFLAGS", "MAKELEVEL"]).for_each(|name| {
        make.env_remove(name);
    });
    make.stderr(errors.reopen().context("cannot open a temporary file")?);
    let jobs = u32::try_from(jobs).unwrap_or(u32::MAX);
    let reason = match process::run(make, BUILD_TIMEOUT, jobs, stop)?.status {
        Some(status) if status.success() => return Ok(()),
        Some(status) => format!("make ended with {status}"),
        None => format!("make took more than {} hours", BUILD_TIMEOUT.as_secs() / 3600),
    };
    let errors = tail(errors.as_file()).unwrap_or_default();
    let errors = String::from_utf8_lossy(&errors);
    let lines: Vec<&str> = errors.lines().collect();
    for line in &lines[lines.len().saturating_sub(SHOWN_LINES)..] {
        eprint_line(format_args!("  {}", sanitize::line(sanitize::truncate(line, 500))));
    }
    Err(NoVerdict(format!("{} does not build: {reason}", tree.display())).into())
}

/// Reads the last [`MAX_ERRORS`] bytes of a file.
fn tail(mut file: &File) -> io::Result<Vec<u8>> {
    let start = file.metadata()?.len().saturating_sub(MAX_ERRORS);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(MAX_ERRORS).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
#[path = "kernel_source_tests.rs"]
mod tests;
