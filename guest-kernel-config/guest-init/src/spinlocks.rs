//! Finds what a kernel reports about its spinlocks. The caller does the reading.

use alloc::{format, string::String, vec};

/// The kernel's messages: each read returns one.
pub const LOG: &str = "/dev/kmsg";

/// A buffer size that fits every message (CONSOLE_EXT_LOG_MAX of the kernel).
const LOG_RECORD: usize = 8192;

/// The folder of a queued-spinlock kernel's counters, one file per counter, if it was built with
/// `CONFIG_LOCK_EVENT_COUNTS`.
const EVENTS: &str = "/sys/kernel/debug/lock_event_counts";

/// The relevant counters; those of PV exist only while PV is on.
const EVENT_NAMES: [&str; 6] = [
    "lock_pending",
    "lock_slowpath",
    "pv_kick_unlock",
    "pv_lock_stealing",
    "pv_wait_head",
    "pv_wait_node",
];

/// The beginnings of the messages that tell which spinlocks were chosen: our kernel's, and those of
/// mainline's KVM guests.
const BEGINNINGS: [&str; 3] =
    ["pvticket: PV ticketlocks ", "pvticket: native ticketlocks", "kvm-guest: PV spinlocks "];

/// The counters of a kernel with queued spinlocks, in the format of [`KernelStats`](crate::stats::KernelStats);
/// None if it has none. `read` returns the contents of a file, if it exists.
pub fn events(read: impl Fn(&str) -> Option<String>) -> Option<String> {
    let mut lines = String::new();
    for name in EVENT_NAMES {
        if let Some(count) = read(&format!("{EVENTS}/{name}")) {
            lines += &format!("{name} {}\n", count.trim());
        }
    }
    Some(lines).filter(|lines| !lines.is_empty())
}

/// The result of a read of [`LOG`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogRead {
    /// A record of this many bytes.
    Record(usize),
    /// Read again: a signal came, or messages were overwritten; the next read returns the first
    /// that is left.
    Again,
    /// There are no more messages, or they cannot be read.
    End,
}

/// The kernel's message about the spinlocks that it chose. `read` reads [`LOG`], opened as
/// non-blocking.
pub fn chosen_in_log(mut read: impl FnMut(&mut [u8]) -> LogRead) -> Option<String> {
    let mut record = vec![0; LOG_RECORD];
    loop {
        match read(&mut record) {
            LogRead::Record(count) => {
                // The kernel escapes all non-ASCII characters.
                let text = core::str::from_utf8(&record[..count]).unwrap_or_default();
                if let Some(chosen) = chosen(text) {
                    return Some(chosen.into());
                }
            }
            LogRead::Again => {}
            LogRead::End => return None,
        }
    }
}

/// The message in a record of [`LOG`], if it tells which spinlocks were chosen.
///
/// A record is `PREFIX;MESSAGE`, followed by lines with further properties.
fn chosen(record: &str) -> Option<&str> {
    let (_, message) = record.lines().next()?.split_once(';')?;
    BEGINNINGS.iter().any(|beginning| message.starts_with(beginning)).then_some(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_about_spinlocks_is_known_among_others() {
        for message in [
            "pvticket: PV ticketlocks on, backend vmm",
            "pvticket: native ticketlocks (PV off: asked for)",
            "kvm-guest: PV spinlocks disabled, forced by \"nopvspin\" parameter",
            "kvm-guest: PV spinlocks enabled",
        ] {
            let record = alloc::format!("6,305,94483,-;{message}\n SUBSYSTEM=none\n");
            assert_eq!(chosen(&record), Some(message));
        }
        for other in ["6,1,0,-;pvticket: telemetry on\n", "4,1,0,-;PV spinlocks\n", "", "no prefix"]
        {
            assert_eq!(chosen(other), None);
        }
    }

    #[test]
    fn the_log_is_read_until_it_is_found_or_ends() {
        let reads = |records: &[Result<&str, LogRead>]| {
            let mut records = records.iter();
            chosen_in_log(|buffer| match records.next() {
                Some(Ok(record)) => {
                    buffer[..record.len()].copy_from_slice(record.as_bytes());
                    LogRead::Record(record.len())
                }
                Some(Err(other)) => *other,
                None => LogRead::End,
            })
        };
        let (other, enabled) =
            (Ok("6,1,0,-;hello\n"), Ok("6,2,0,-;kvm-guest: PV spinlocks enabled\n"));
        let found = reads(&[other, Err(LogRead::Again), enabled, other]);
        assert_eq!(found.as_deref(), Some("kvm-guest: PV spinlocks enabled"));
        assert_eq!(reads(&[other, Err(LogRead::End), enabled]), None);
    }

    #[test]
    fn counts_are_those_of_the_files_that_are_there() {
        let count = |path: &str| path.ends_with("/pv_wait_head").then(|| "7\n".into());
        assert_eq!(events(count).as_deref(), Some("pv_wait_head 7\n"));
        assert_eq!(events(|_| None), None);
    }
}
