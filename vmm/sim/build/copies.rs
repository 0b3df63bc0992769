//! Copies of the lock sources, one per mutant with its edits applied, as modules of this crate.

use std::error::Error;
use std::fs;
use std::path::Path;

use super::Mutant;

/// Replaces the library's `sync` in a copy.
const SYNC: &str = "pub(crate) use sim_cell::atomic::*;\npub const MAX_CPUS: usize = 128;\n";

/// The module name of a mutant.
pub fn module_name(name: &str) -> String {
    name.replace(|c: char| !c.is_ascii_alphanumeric(), "_")
}

/// Copies the sources in `folder` below `sources` to the same folder below `to`, and applies the edits of
/// `mutant`. Replaces `crate::` in them by `root`, the path of their new module with a trailing `::`.
pub fn copy(
    sources: &Path,
    folder: &Path,
    to: &Path,
    mutant: &Mutant,
    root: &str,
) -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={}", sources.join(folder).display());
    fs::create_dir_all(to.join(folder))?;
    for entry in fs::read_dir(sources.join(folder))? {
        let entry = entry?;
        let inside = folder.join(entry.file_name());
        let path = entry.path();
        if path.is_dir() {
            copy(sources, &inside, to, mutant, root)?;
            continue;
        }
        println!("cargo:rerun-if-changed={}", path.display());
        let text = match inside.to_string_lossy().as_ref() {
            "sync.rs" => SYNC.to_owned(),
            file => module_of(&edited(file, &fs::read_to_string(&path)?, mutant)?, root),
        };
        fs::write(to.join(inside), text)?;
    }
    Ok(())
}

fn edited(file: &str, text: &str, mutant: &Mutant) -> Result<String, String> {
    let mut edits =
        mutant.edits.iter().filter(|edit| file.strip_suffix(".rs") == Some(edit.file.as_str()));
    edits.try_fold(text.to_owned(), |text, edit| edit.apply(&mutant.name, &text))
}

/// Turns a source file of the crate into one of the module `root`.
fn module_of(text: &str, root: &str) -> String {
    // Tests are at the end of every source file.
    let product = text.find("#[cfg(test)]\nmod tests").map_or(text, |tests| &text[..tests]);
    product
        .lines()
        .filter(|line| !line.starts_with("#![") && !line.starts_with("//!"))
        .filter(|line| line.trim() != "#[macro_export]")
        .map(|line| line.replace("crate::", root) + "\n")
        .collect()
}
