//! What the kernel counts of its locks, and which it says that it chose.

use std::{
    fs::{self, OpenOptions},
    io::{ErrorKind, Read},
    os::unix::fs::OpenOptionsExt,
};

use guest_init::{spinlocks, stats::Stats};
use rustix::fs::OFlags;
use serde_json::Value;

const FILE: &str = "/sys/kernel/debug/pvticket/stats";

/// The counters now: our kernel's, or those of queued spinlocks; None on kernels with neither.
pub fn read() -> Option<String> {
    fs::read_to_string(FILE).ok().or_else(queued)
}

fn queued() -> Option<String> {
    let line = |name: &&str| {
        let count = fs::read_to_string(format!("{}/{name}", spinlocks::EVENTS)).ok()?;
        Some(format!("{name} {}\n", count.trim()))
    };
    let lines: String = spinlocks::EVENT_NAMES.iter().filter_map(line).collect();
    Some(lines).filter(|lines| !lines.is_empty())
}

/// The kernel's own word on which spinlocks it chose.
pub fn chosen_spinlocks() -> Option<String> {
    let flags = OFlags::NONBLOCK.bits() as i32;
    let mut log = OpenOptions::new().read(true).custom_flags(flags).open(spinlocks::LOG).ok()?;
    let mut record = vec![0; spinlocks::LOG_RECORD];
    loop {
        match log.read(&mut record) {
            Ok(0) => return None,
            Ok(count) => {
                let text = String::from_utf8_lossy(&record[..count]);
                if let Some(chosen) = spinlocks::chosen(&text) {
                    return Some(chosen.to_owned());
                }
            }
            // Messages were overwritten; the next read gives the first that is left.
            Err(error)
                if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::Interrupted) => {}
            Err(_) => return None,
        }
    }
}

/// What was counted since `before`.
pub fn since(before: &str) -> Option<Value> {
    let after = read()?;
    let mut json = String::new();
    Stats::parse(&after).since(&Stats::parse(before)).write_json(&mut json);
    serde_json::from_str(&json).ok()
}
