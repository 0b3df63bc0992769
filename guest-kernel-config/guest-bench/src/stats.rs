//! The kernel's lock counters, and its description of its spinlocks.

use std::{
    fs::{self, OpenOptions},
    io::{self, ErrorKind, Read},
    os::unix::fs::OpenOptionsExt,
};

use rustix::fs::OFlags;
use serde_json::{Map, Value};

use crate::window;

/// The counters of our kernel: lines `name value`.
const FILE: &str = "/sys/kernel/debug/pvticket/stats";
/// The directory of a queued-spinlock kernel's counters, one file per counter, if the kernel was
/// built with `CONFIG_LOCK_EVENT_COUNTS`.
const EVENTS: &str = "/sys/kernel/debug/lock_event_counts";
/// The relevant counters; the PV counters exist only while PV is on.
const EVENT_NAMES: [&str; 6] = [
    "lock_pending",
    "lock_slowpath",
    "pv_kick_unlock",
    "pv_lock_stealing",
    "pv_wait_head",
    "pv_wait_node",
];
/// The kernel's messages: each read returns one.
const LOG: &str = "/dev/kmsg";
/// A buffer size that fits every message (CONSOLE_EXT_LOG_MAX of the kernel).
const LOG_RECORD: usize = 8192;
/// Prefixes of the messages about the chosen spinlocks in our kernel and in mainline.
const PREFIXES: [&str; 3] =
    ["pvticket: PV ticketlocks ", "pvticket: native ticketlocks", "kvm-guest: PV spinlocks "];

/// Counters and texts, such as the backend's name.
type Stats = Map<String, Value>;

/// All counts since boot.
pub fn read_all() -> io::Result<Value> {
    let text = read().map_or_else(|| read_kernel_file(FILE), Ok)?;
    Ok(parse(&text).into())
}

/// The counts within the windows of benchmarks on kernels with our benchmark; all counts on other
/// kernels. `None` on kernels that count nothing.
pub fn read_windows() -> Option<String> {
    fs::read_to_string(window::FILE).ok().or_else(read)
}

/// Reads a file that only our kernels have.
pub fn read_kernel_file(path: &str) -> io::Result<String> {
    fs::read_to_string(path).map_err(|error| describe_error(path, error))
}

/// The error of opening a file that only our kernels have.
pub fn describe_error(path: &str, error: io::Error) -> io::Error {
    io::Error::other(match error.kind() {
        ErrorKind::NotFound => format!("no {path}: only the kernels of `pvticket setup` have it"),
        ErrorKind::PermissionDenied => format!("cannot open {path}: requires root"),
        _ => format!("cannot open {path}: {error}"),
    })
}

/// The counters now, of our kernel or of queued spinlocks.
fn read() -> Option<String> {
    fs::read_to_string(FILE).ok().or_else(|| events(|path| fs::read_to_string(path).ok()))
}

/// The counters of a kernel with queued spinlocks, in our kernel's format; `None` if it has none.
/// `read` returns the contents of a file, if it exists.
fn events(read: impl Fn(&str) -> Option<String>) -> Option<String> {
    let line = |name| Some(format!("{name} {}\n", read(&format!("{EVENTS}/{name}"))?.trim()));
    let lines: String = EVENT_NAMES.into_iter().filter_map(line).collect();
    (!lines.is_empty()).then_some(lines)
}

/// Parses counters. Lines without a value are skipped.
fn parse(text: &str) -> Stats {
    let entry = |line: &str| {
        let (name, value) = line.split_once(char::is_whitespace)?;
        let value = value.trim();
        let count = value.parse::<u64>().map(Value::from);
        Some((name.to_owned(), count.unwrap_or_else(|_| value.into())))
    };
    text.lines().filter_map(entry).collect()
}

/// The counts from `before` to `after`, and the texts in `after`.
pub fn between(before: &str, after: &str) -> Value {
    let (before, mut stats) = (parse(before), parse(after));
    for (name, value) in &mut stats {
        if let (Some(now), Some(then)) = (value.as_u64(), before.get(name).and_then(Value::as_u64))
        {
            *value = now.saturating_sub(then).into();
        }
    }
    stats.into()
}

/// The steal time among the counts, if our kernel has counted it.
pub fn steal_seconds(stats: &Option<Value>) -> Option<f64> {
    Some(stats.as_ref()?["steal_ns"].as_f64()? / 1e9)
}

/// The kernel's message about the spinlocks that it chose.
pub fn chosen_spinlocks() -> Option<String> {
    let flags = OFlags::NONBLOCK.bits() as i32;
    find_message(OpenOptions::new().read(true).custom_flags(flags).open(LOG).ok()?)
}

fn find_message(mut log: impl Read) -> Option<String> {
    let mut record = vec![0; LOG_RECORD];
    loop {
        match log.read(&mut record) {
            Ok(0) => return None,
            Ok(count) => {
                let text = String::from_utf8_lossy(&record[..count]);
                if let Some(message) = spinlock_message(&text) {
                    return Some(message.to_owned());
                }
            }
            // A signal arrived, or messages were overwritten: the next read returns the first
            // remaining one.
            Err(error)
                if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::Interrupted) => {}
            Err(_) => return None,
        }
    }
}

/// The message in a record of [`LOG`], if it is about the chosen spinlocks.
///
/// A record is `PREFIX;MESSAGE`, followed by lines with further properties.
fn spinlock_message(record: &str) -> Option<&str> {
    let (_, message) = record.lines().next()?.split_once(';')?;
    PREFIXES.iter().any(|prefix| message.starts_with(prefix)).then_some(message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn counters_are_subtracted_and_texts_retained() {
        let before = "backend vmm\ntaken_slow 3\nkicked 1\n";
        let after = "backend vmm\ntaken_slow 10\nkicked 1\nnew 2\nword\n";
        let stats = between(before, after);
        assert_eq!(stats, json!({"backend": "vmm", "taken_slow": 7, "kicked": 0, "new": 2}));
        assert_eq!(between("kicked 9", "kicked 4"), json!({"kicked": 0}));
        assert_eq!(steal_seconds(&Some(between("steal_ns 5", "steal_ns 500000005"))), Some(0.5));
        assert_eq!(steal_seconds(&Some(stats)), None);
    }

    #[test]
    fn the_spinlock_message_is_recognized() {
        for message in [
            "pvticket: PV ticketlocks on, backend vmm",
            "pvticket: native ticketlocks (PV off: asked for)",
            "kvm-guest: PV spinlocks disabled, forced by \"nopvspin\" parameter",
            "kvm-guest: PV spinlocks enabled",
        ] {
            let record = format!("6,305,94483,-;{message}\n SUBSYSTEM=none\n");
            assert_eq!(spinlock_message(&record), Some(message));
        }
        for line in ["6,1,0,-;pvticket: telemetry on\n", "4,1,0,-;PV spinlocks\n", "", "no prefix"]
        {
            assert_eq!(spinlock_message(line), None);
        }
    }

    /// Results of reading a log, last first: records or errors.
    struct Reads(Vec<Result<&'static str, ErrorKind>>);

    impl Read for Reads {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            match self.0.pop() {
                Some(Ok(record)) => record.as_bytes().read(into),
                Some(Err(kind)) => Err(kind.into()),
                None => Ok(0),
            }
        }
    }

    #[test]
    fn the_log_is_read_up_to_the_message() {
        let (hello, enabled) =
            (Ok("6,1,0,-;hello\n"), Ok("6,2,0,-;kvm-guest: PV spinlocks enabled\n"));
        let reads = Reads(vec![hello, enabled, Err(ErrorKind::BrokenPipe), hello]);
        assert_eq!(find_message(reads).as_deref(), Some("kvm-guest: PV spinlocks enabled"));
        assert_eq!(find_message(Reads(vec![enabled, Err(ErrorKind::WouldBlock), hello])), None);
        assert_eq!(find_message(Reads(vec![hello])), None);
    }

    #[test]
    fn missing_event_files_are_skipped() {
        let count = |path: &str| path.ends_with("/pv_wait_head").then(|| "7\n".into());
        assert_eq!(events(count).as_deref(), Some("pv_wait_head 7\n"));
        assert_eq!(events(|_| None), None);
    }
}
