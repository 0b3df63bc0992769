//! A row of the table: an input, and how the product must end on it.

use std::os::unix::fs::FileTypeExt;

use crate::{
    prelude::*,
    process::{folder, status},
};

/// How the product ends on an input.
#[derive(Debug, Clone, Copy)]
pub enum End {
    /// Exits with this status; stderr is a single line of the product that contains all of these.
    OneLine(i32, &'static [&'static str]),
    /// Exits with this status; one line of the product contains all of these.
    Line(i32, &'static [&'static str]),
    /// Exits with this status and prints nothing on stderr.
    Silent(i32),
}

/// Prefixes of the product's own lines.
const PREFIXES: [&str; 2] = ["pvticket: ", "note: "];

/// Creates the input and returns the command.
pub type Feed = fn(&TempDir) -> anyhow::Result<Program>;

/// Checks the directory of the input and the command's outputs.
pub type Check = fn(&TempDir, &RunResult) -> anyhow::Result<()>;

/// A row of the table.
#[derive(Debug)]
pub struct Row {
    /// A description of the input.
    pub input: &'static str,
    pub end: End,
    /// Limit in MiB of the resident memory of the product and its children.
    pub memory: u64,
    /// Creates the input in a fresh directory and returns the command.
    pub feed: Feed,
    /// Checks for losses; the files must stay unchanged in any case.
    pub check: Check,
}

/// A row that checks only the end, the memory and the files.
pub const fn row(input: &'static str, end: End, memory: u64, feed: Feed) -> Row {
    Row { input, end, memory, feed, check: nothing_else }
}

/// An input that a command rejects at once as a usage error, with these words in one line.
pub const fn refused(input: &'static str, parts: &'static [&'static str], feed: Feed) -> Row {
    row(input, End::OneLine(2, parts), 64, feed)
}

/// The default check, which accepts any output.
pub fn nothing_else(_: &TempDir, _: &RunResult) -> anyhow::Result<()> {
    Ok(())
}

impl Row {
    pub fn run(&self) -> anyhow::Result<()> {
        let scratch = files::scratch()?;
        let program = (self.feed)(&scratch)?;
        let before = contents(scratch.path())?;
        let mut peak = 0;
        let ran = program.start()?.wait_watching(|pid| {
            peak = peak.max(resident(pid));
            ensure!(peak <= self.memory << 10, "{peak} KiB are more than {} MiB", self.memory);
            Ok(())
        })?;
        let ran = self.check_end(ran)?;
        let after = contents(scratch.path())?;
        for (name, bytes) in &before {
            ensure!(after.get(name) == Some(bytes), "{name} is not as it was\n{}", ran.show());
        }
        ensure!(!after.keys().any(|name| name.contains(".partial")), "left behind: {after:?}");
        (self.check)(&scratch, &ran)
    }

    fn check_end(&self, ran: RunResult) -> anyhow::Result<RunResult> {
        let (status, parts) = match self.end {
            End::OneLine(status, parts) => return ran.fails(status, parts),
            End::Silent(status) => return ran.exits(status)?.no_stderr(),
            End::Line(status, parts) => (status, parts),
        };
        let ran = ran.exits(status)?.stderr_has(&[])?;
        let errors = ran.errors();
        let mut lines =
            errors.lines().filter(|line| PREFIXES.iter().any(|prefix| line.starts_with(prefix)));
        let has_line = lines.any(|line| parts.iter().all(|part| line.contains(part)));
        ensure!(has_line, "no line with {parts:?}\n{}", ran.show());
        Ok(ran)
    }
}

/// Returns the peak resident memory of a process and its descendants so far, in KiB.
fn resident(pid: Pid) -> u64 {
    let peak = status(&folder(pid), "VmHWM:");
    let vmm = peak.and_then(|peak| peak.trim_end_matches(" kB").parse().ok()).unwrap_or(0);
    vmm + children(pid).into_iter().map(resident).sum::<u64>()
}

/// Returns the files below a directory by name, with the contents of regular files.
fn contents(folder: &Path) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let mut by_name = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if kind.is_dir() {
            for (below, bytes) in contents(&entry.path())? {
                by_name.insert(format!("{name}/{below}"), bytes);
            }
        } else {
            let is_special = kind.is_fifo() || kind.is_socket();
            by_name.insert(name, if is_special { Vec::new() } else { fs::read(entry.path())? });
        }
    }
    Ok(by_name)
}
