//! The kernel's lock counters, and its description of its spinlocks.

use std::{
    fs::{self, OpenOptions},
    io::{ErrorKind, Read},
    os::unix::fs::OpenOptionsExt,
};

use guest_init::{
    spinlocks::{self, LogRead},
    stats::KernelStats,
};
use rustix::fs::OFlags;
use serde_json::Value;

const FILE: &str = "/sys/kernel/debug/pvticket/stats";

/// The counters now: our kernel's, or those of queued spinlocks; None on kernels without either.
pub fn read() -> Option<String> {
    let text = |path: &str| fs::read_to_string(path).ok();
    text(FILE).or_else(|| spinlocks::events(text))
}

/// On kernels with our benchmark, the counts within the windows of benchmarks; on others all
/// counts.
pub fn read_windows() -> Option<String> {
    fs::read_to_string(crate::window::FILE).ok().or_else(read)
}

/// The kernel's message about the spinlocks that it chose.
pub fn chosen_spinlocks() -> Option<String> {
    let flags = OFlags::NONBLOCK.bits() as i32;
    let mut log = OpenOptions::new().read(true).custom_flags(flags).open(spinlocks::LOG).ok()?;
    spinlocks::chosen_in_log(|record| match log.read(record) {
        Ok(0) => LogRead::End,
        Ok(count) => LogRead::Record(count),
        Err(error) => match error.kind() {
            ErrorKind::BrokenPipe | ErrorKind::Interrupted => LogRead::Again,
            _ => LogRead::End,
        },
    })
}

/// The counts from `before` to `after`.
pub fn between(before: &str, after: &str) -> Option<Value> {
    let mut json = String::new();
    KernelStats::parse(after).since(&KernelStats::parse(before)).write_json(&mut json);
    serde_json::from_str(&json).ok()
}
