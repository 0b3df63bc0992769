//! A row of the table: an input, and how the product has to end on it.

use std::{collections::BTreeMap, fmt, fs, os::unix::fs::FileTypeExt, path::Path};

use anyhow::{Context, ensure};
use rustix::process::Pid;
use tempfile::TempDir;

use crate::{files, process::Program, ran::Ran};

/// How the product ends on an input.
#[derive(Debug, Clone, Copy)]
pub enum End {
    /// With this status, and nothing but one line of its own on stderr, which has all of these in it.
    OneLine(i32, &'static [&'static str]),
    /// With this status; among what it says is one line of its own, which has all of these in it.
    Says(i32, &'static [&'static str]),
    /// With this status, and without a word on stderr.
    Silent(i32),
}

/// How lines begin that the product says of itself.
const OWN: [&str; 2] = ["pvticket: ", "note: "];

/// What is fed.
pub type Feed = fn(&TempDir) -> anyhow::Result<Program>;

/// What else has to hold of the directory that it was fed from, and of what it left.
pub type Check = fn(&TempDir, &Ran) -> anyhow::Result<()>;

/// A row.
#[derive(Debug)]
pub struct Row {
    /// What is fed, in words.
    pub input: &'static str,
    /// The limit, in words.
    pub limit: &'static str,
    /// How it ends.
    pub end: End,
    /// Memory that the product may have resident, with its children, in MiB.
    pub memory: u64,
    /// Gives the program, in a directory of its own.
    pub feed: Feed,
    /// Looks for what may have been lost, beside the files, which have to stay as they were.
    pub check: Check,
}

/// What came of a row.
#[derive(Debug)]
pub struct Found {
    status: i32,
    /// KiB that were resident at most.
    peak: u64,
    line: String,
}

/// Nothing but files could be lost.
pub fn nothing_else(_: &TempDir, _: &Ran) -> anyhow::Result<()> {
    Ok(())
}

impl Row {
    /// Feeds it.
    pub fn try_it(&self) -> anyhow::Result<Found> {
        let folder = files::scratch()?;
        let program = (self.feed)(&folder)?;
        let before = contents(folder.path())?;
        let mut peak = 0;
        let ran = program.start()?.wait_watching(|pid| {
            peak = peak.max(resident(pid));
            ensure!(peak <= self.memory << 10, "{peak} KiB are more than {} MiB", self.memory);
            Ok(())
        })?;
        let (ran, line) = self.ended(ran)?;
        let after = contents(folder.path())?;
        for (name, bytes) in &before {
            ensure!(after.get(name) == Some(bytes), "{name} is not as it was\n{}", ran.show());
        }
        ensure!(!after.keys().any(|name| name.contains(".partial")), "left behind: {after:?}");
        (self.check)(&folder, &ran)?;
        Ok(Found { status: ran.status()?, peak, line })
    }

    fn ended(&self, ran: Ran) -> anyhow::Result<(Ran, String)> {
        let (status, parts) = match self.end {
            End::OneLine(status, parts) => {
                let ran = ran.fails(status, parts)?;
                let line = ran.errors().trim_end().to_owned();
                return Ok((ran, line));
            }
            End::Says(status, parts) => (status, parts),
            End::Silent(status) => {
                let ran = ran.exits(status)?;
                ensure!(ran.stderr.is_empty(), "it complains\n{}", ran.show());
                return Ok((ran, "-".into()));
            }
        };
        let ran = ran.exits(status)?.complains(&[])?;
        let errors = ran.errors();
        let mut own = errors.lines().filter(|line| OWN.iter().any(|own| line.starts_with(own)));
        let line = own.find(|line| parts.iter().all(|part| line.contains(part)));
        let line = line.with_context(|| format!("no line with {parts:?}\n{}", ran.show()))?;
        Ok((ran, line.to_owned()))
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.line.strip_prefix("pvticket: ").unwrap_or(&self.line);
        let cut = line.char_indices().nth(140).map_or(line.len(), |(end, _)| end);
        let more = if cut < line.len() { "..." } else { "" };
        let mib = self.peak as f64 / 1024.0;
        write!(f, "{:>6} {mib:>4.0} MiB  {}{more}", self.status, &line[..cut])
    }
}

/// KiB that a process and its descendants had resident at most so far.
fn resident(pid: Pid) -> u64 {
    let of = format!("/proc/{}", pid.as_raw_nonzero());
    let status = fs::read_to_string(format!("{of}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let own = peak.and_then(|peak| peak.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0);
    let threads = fs::read_dir(format!("{of}/task")).into_iter().flatten().flatten();
    let children = threads.map(|thread| thread.path().join("children"));
    let children = children.map(|file| fs::read_to_string(file).unwrap_or_default());
    let children: String = children.collect::<Vec<_>>().join(" ");
    let ids = children.split_whitespace().filter_map(|word| Pid::from_raw(word.parse().ok()?));
    own + ids.map(resident).sum::<u64>()
}

/// The files in a directory, by name, and what is in those that are no devices or pipes.
fn contents(folder: &Path) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if kind.is_dir() {
            for (below, bytes) in contents(&entry.path())? {
                all.insert(format!("{name}/{below}"), bytes);
            }
        } else {
            let is_special = kind.is_fifo() || kind.is_socket();
            all.insert(name, if is_special { Vec::new() } else { fs::read(entry.path())? });
        }
    }
    Ok(all)
}
