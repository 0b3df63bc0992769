//! The lines of the lock sources that make requests: accesses to atomics, and calls of the machine.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// The calls that make requests.
const CALLS: &str = ".load( .store( .swap( .fetch_add( .fetch_sub( .fetch_or( .fetch_and( .compare_exchange( .until( \
    spins.spin( pv.spin_hint( pv.unlock_kick( pv.lock_spinning( pv.kick_and_halt( pv.is_off( pv.socket( pv.yield_to( \
    pv.slice_left( pv.is_critical_off( pv.predecessor_is_off(";
/// Wrappers, whose callers count, and files of tests.
const EXCLUDED: [&str; 2] = ["width.rs", "test_stage.rs"];

/// Rust rows with the name of each source in `folder` below `sources`, and its lines with a request.
pub fn rows(sources: &Path, folder: &Path) -> Result<String, Box<dyn Error>> {
    let mut rows = String::new();
    for entry in fs::read_dir(sources.join(folder))? {
        let entry = entry?;
        let inside = folder.join(entry.file_name());
        let name = inside.to_string_lossy();
        if entry.path().is_dir() {
            rows += &self::rows(sources, &inside)?;
        } else if !EXCLUDED.contains(&&*name) && !name.ends_with("tests.rs") {
            let lines = lines(&fs::read_to_string(entry.path())?);
            write!(rows, "({name:?}, &{lines:?}),")?;
        }
    }
    Ok(rows)
}

fn lines(text: &str) -> Vec<usize> {
    let product = text.lines().take_while(|line| *line != "#[cfg(test)]");
    let is_request = |line: &str| {
        !line.trim_start().starts_with("//") && CALLS.split(' ').any(|call| line.contains(call))
    };
    product.zip(1..).filter(|(line, _)| is_request(line)).map(|(_, number)| number).collect()
}
