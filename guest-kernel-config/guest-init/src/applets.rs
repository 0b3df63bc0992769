//! The workloads `lockbench` and `lockstats`, selected by the program's name or by its first word.

use alloc::{ffi::CString, format, string::String, vec::Vec};
use core::ffi::CStr;

use guest_init::{
    errors::ErrnoText,
    lockbench::{RunParams, RunResult, USAGE},
    spinlocks::{self, LogRead},
    stats::KernelStats,
};
use rustix::{
    fd::OwnedFd,
    fs::{self, Mode, OFlags},
    io::Errno,
};

use crate::{filesystems, report};

const STATS: &CStr = c"/sys/kernel/debug/pvticket/stats";
const WINDOW: &CStr = c"/sys/kernel/debug/pvticket/window";
const LOCKBENCH: &CStr = c"/sys/kernel/debug/pvticket/lockbench";

/// Why an applet ended early: a message and the exit status.
struct Stop(String, i32);

impl Stop {
    fn failure(line: String) -> Self {
        Self(line, 1)
    }
}

/// Runs the applet that `words` (argv) names, if they name one.
pub fn run(words: &[&CStr]) -> Option<i32> {
    let mut words = words.iter().map(|word| word.to_str().unwrap_or("(not UTF-8)"));
    let name = words.next()?.rsplit('/').next()?;
    let outcome = applet(name, words.clone()).or_else(|| {
        let name = words.next()?;
        applet(name, words)
    })?;
    Some(match outcome.and_then(|text| print(&text)) {
        Ok(()) => 0,
        Err(Stop(line, status)) => {
            report::error(format_args!("{line}"));
            status
        }
    })
}

fn applet<'a>(name: &str, words: impl Iterator<Item = &'a str>) -> Option<Result<String, Stop>> {
    match name {
        "lockbench" => Some(lockbench(words)),
        "lockstats" => Some(lockstats(words)),
        _ => None,
    }
}

fn lockstats<'a>(mut words: impl Iterator<Item = &'a str>) -> Result<String, Stop> {
    if words.next().is_some() {
        return Err(Stop("usage: lockstats".into(), 2));
    }
    let attach = || filesystems::attach(c"debugfs", filesystems::DEBUGFS);
    let text = stats().or_else(|| attach().then(stats).flatten());
    // Read for the error, which names the missing file.
    let text = text.map_or_else(|| read(STATS), Ok)?;
    let mut json = String::new();
    KernelStats::parse(&text).write_json(&mut json);
    json.push('\n');
    Ok(json)
}

fn lockbench<'a>(words: impl Iterator<Item = &'a str>) -> Result<String, Stop> {
    let run = RunParams::parse(words).map_err(|error| Stop(format!("{error}\n{USAGE}"), 2))?;
    // Before the counters are read: mounts debugfs if necessary.
    let file = open(LOCKBENCH, OFlags::WRONLY)?;
    let before = window();
    start(&file, &run)?;
    let outcome = read(LOCKBENCH)?;
    let after = window();
    let outcome = RunResult::parse(&outcome)
        .ok_or_else(|| Stop::failure(format!("lockbench: cannot read its result:\n{outcome}")))?;
    let counted = after.as_deref().zip(before.as_deref());
    let counted =
        counted.map(|(after, before)| KernelStats::parse(after).since(&KernelStats::parse(before)));
    Ok(outcome.to_json(counted.as_ref(), chosen_spinlocks().as_deref()))
}

/// The kernel's lock counts within the windows of benchmarks.
fn window() -> Option<String> {
    String::from_utf8(filesystems::read(WINDOW)?).ok()
}

/// The kernel's lock counts: our kernel's, or those of queued spinlocks.
fn stats() -> Option<String> {
    let text = |path: &CStr| String::from_utf8(filesystems::read(path)?).ok();
    text(STATS).or_else(|| spinlocks::events(|path| text(&CString::new(path).ok()?)))
}

/// The kernel's message about the spinlocks that it chose.
fn chosen_spinlocks() -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let log = fs::open(spinlocks::LOG, flags, Mode::empty()).ok()?;
    spinlocks::chosen_in_log(|record| match rustix::io::read(&log, record) {
        Ok(0) => LogRead::End,
        Ok(count) => LogRead::Record(count),
        Err(Errno::PIPE | Errno::INTR) => LogRead::Again,
        Err(_) => LogRead::End,
    })
}

/// Writes the kernel's command line for a run; the write returns when the run is over.
fn start(file: &OwnedFd, run: &RunParams) -> Result<(), Stop> {
    loop {
        let line = run.command();
        return match rustix::io::write(file, line.as_bytes()) {
            Ok(_) => Ok(()),
            Err(Errno::INTR) => continue,
            Err(Errno::INVAL) => {
                Err(Stop::failure(format!("lockbench: the kernel refuses '{line}'")))
            }
            Err(error) => {
                Err(Stop::failure(format!("lockbench: the run failed: {}", ErrnoText(error))))
            }
        };
    }
}

fn read(path: &CStr) -> Result<String, Stop> {
    // Opened first for its error, which is more precise than a missing file's name.
    drop(open(path, OFlags::RDONLY)?);
    let bytes: Vec<u8> = filesystems::read(path).unwrap_or_default();
    String::from_utf8(bytes)
        .map_err(|_| Stop::failure(format!("{} is not text", path.to_string_lossy())))
}

/// Opens one of the kernel's files; mounts debugfs if it is not mounted yet.
fn open(path: &CStr, flags: OFlags) -> Result<OwnedFd, Stop> {
    let attempt = || fs::open(path, flags | OFlags::CLOEXEC, Mode::empty());
    attempt()
        .or_else(|error| {
            if error == Errno::NOENT && filesystems::attach(c"debugfs", filesystems::DEBUGFS) {
                attempt()
            } else {
                Err(error)
            }
        })
        .map_err(|error| {
            let path = path.to_string_lossy();
            Stop::failure(match error {
                Errno::NOENT => format!("no {path}: only the kernels of `pvticket setup` have it"),
                Errno::ACCESS | Errno::PERM => format!("{path}: only root may open it"),
                other => format!("cannot open {path}: {}", ErrnoText(other)),
            })
        })
}

fn print(text: &str) -> Result<(), Stop> {
    // SAFETY: stdout is never closed.
    let stdout = unsafe { rustix::stdio::stdout() };
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        match rustix::io::write(stdout, rest) {
            Ok(count) => rest = &rest[count..],
            Err(Errno::INTR) => {}
            Err(_) => return Err(Stop::failure("cannot write the result".into())),
        }
    }
    Ok(())
}
