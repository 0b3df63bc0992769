//! What the children of the running test printed, whole: the log of a test that failed.

use std::{cell::RefCell, fs, path::PathBuf};

use anyhow::Context;

use crate::product;

/// Bytes of a log; a test that prints more keeps its end.
const MOST: usize = 4 << 20;

thread_local! {
    static LOG: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Adds to the log of the test that this thread runs.
pub fn add(text: &str) {
    LOG.with_borrow_mut(|log| {
        log.push_str(text);
        log.push('\n');
        if let Some(over) = log.len().checked_sub(MOST) {
            let from = (over..=log.len()).find(|at| log.is_char_boundary(*at));
            log.drain(..from.unwrap_or(0));
        }
    });
}

/// Ends the log of this thread's test and returns it.
pub fn take() -> String {
    LOG.take()
}

/// Writes the log of a test that failed; returns the file.
pub fn keep(name: &str, log: &str) -> anyhow::Result<PathBuf> {
    let folder = product::profile_folder()?.join("pvticket-tests");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let file = folder.join(format!("{}.log", name.replace("::", ".")));
    fs::write(&file, log).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}
