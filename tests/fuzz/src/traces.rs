//! Timelines.

use report::{perfetto, trace_text};

use crate::input::is_one_line;

/// A timeline is summarized, or rejected in one line.
pub fn trace(bytes: &[u8]) {
    match perfetto::digest(bytes, 3) {
        Ok(digest) => {
            assert!(digest.runs.iter().all(|run| run.worst_preemptions.len() <= 3));
            assert!(!trace_text::render(&digest).is_empty());
        }
        Err(error) => is_one_line(&error.to_string()),
    }
    for is_wanted in [true, false] {
        if let Ok(length) = perfetto::length_of_wanted(bytes, |_| is_wanted) {
            assert!(length <= bytes.len() as u64);
        }
    }
}
