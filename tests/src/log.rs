//! The log of a failed test: all output of its children.

use std::{cell::RefCell, fs, path::PathBuf};

use anyhow::Context;

use crate::product;

/// Limit of a log in bytes; only the end of longer output is kept.
const MAX_BYTES: usize = 4 << 20;

thread_local! {
    static LOG: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Adds to the log of the test that this thread runs.
pub fn add(text: &str) {
    LOG.with_borrow_mut(|log| {
        log.push_str(text);
        log.push('\n');
        if let Some(excess) = log.len().checked_sub(MAX_BYTES) {
            let from = (excess..=log.len()).find(|at| log.is_char_boundary(*at));
            log.drain(..from.unwrap_or(0));
        }
    });
}

/// Ends and returns the log of this thread's test.
pub fn take() -> String {
    LOG.take()
}

/// Writes the log of a failed test; returns the file.
pub fn save(name: &str, log: &str) -> anyhow::Result<PathBuf> {
    let folder = product::profile_folder()?.join("pvticket-tests");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let file = folder.join(format!("{}.log", name.replace("::", ".")));
    fs::write(&file, log).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}
