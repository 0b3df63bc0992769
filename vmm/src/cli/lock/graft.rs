//! Grafts lock crates into a copy of the lock library, as CONTRIBUTING.md does for a new lock: a source, its `mod`
//! and `pub use` lines, a line in the list of systems, and one for the model checkers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::lock_crate::LockCrate;

/// The files of a checkout, by path.
pub(super) type Files = BTreeMap<PathBuf, Vec<u8>>;

pub(super) const LIBRARY: &str = "guest-kernel-config/locks";

/// A file and the line in it before which a lock's line is inserted.
const ROOT: (&str, &str) = ("src/lib.rs", "mod acquire;\n");
const LIST: (&str, &str) = ("src/systems.rs", "            Mutex BaselineMutex ");
const MODEL: (&str, &str) = ("model/build/locks.rs", "];\n\n/// Whether a variant ");

/// Specs that name each lock.
const LEAGUES: [&str; 4] = ["league", "league-quick", "league-sim", "league-sim-quick"];

/// Sources of another version of this program.
#[derive(Debug, Error)]
#[error("{0} does not fit this pvticket: no {1:?} in it")]
pub(super) struct GraftError(String, String);

/// Adds `lock` to the files of a checkout.
pub(super) fn graft(lock: &LockCrate, files: &mut Files) -> Result<(), GraftError> {
    let (module, name) = (module(lock), format!("Crate{}", camel(&lock.name)));
    insert(files, ROOT, &format!("mod {module};\npub use {module}::Lock as {name};\n"))?;
    let about = if lock.about.is_empty() { "a lock crate" } else { &lock.about };
    let row = format!(
        "            Spinlock {name} {:?} $crate::{name}: {},\n                {about:?}, LockCrate;\n",
        lock.name, lock.needs
    );
    insert(files, LIST, &row)?;
    let kind = if lock.source.contains("fn starting_at(") { "tickets" } else { "word" };
    insert(files, MODEL, &format!("    {kind}({name:?}, &[{module:?}]),\n"))?;
    // Leagues leave out combinations for locks that do not halt.
    let similar = if lock.needs == "Halts" { "\"pv-queued\"," } else { "\"test-and-set\"," };
    for league in LEAGUES {
        let path = Path::new("vmm/specs").join(league).with_extension("toml");
        if let Some(spec) = files.get_mut(&path) {
            let text = String::from_utf8_lossy(spec);
            *spec = text.replace(similar, &format!("{similar} {:?},", lock.name)).into();
        }
    }
    files.insert(
        Path::new(LIBRARY).join(format!("src/{module}.rs")),
        as_module(&lock.source).into(),
    );
    Ok(())
}

/// Makes the model checkers check lock crates only, without mutants.
pub(super) fn check_only_crates(files: &mut Files) -> Result<(), GraftError> {
    const NAMES: &str = "SPINLOCK => LOCKS.iter().map(|lock| lock.name)";
    let crates = format!("{NAMES}.filter(|name| name.starts_with(\"Crate\"))");
    let mutants = Path::new(LIBRARY).join("model/mutants");
    let mutants = files.iter_mut().filter(|(path, _)| path.starts_with(&mutants));
    mutants.for_each(|(_, text)| *text = "mutants = []\n".into());
    edit(files, "model/build.rs", NAMES, &crates)
}

/// The lock's name in names of Rust and C.
pub(super) fn id(lock: &LockCrate) -> String {
    lock.name.replace('-', "_")
}

/// The lock's module in the library.
pub(super) fn module(lock: &LockCrate) -> String {
    format!("lock_crate_{}", id(lock))
}

fn insert(files: &mut Files, (file, place): (&str, &str), text: &str) -> Result<(), GraftError> {
    edit(files, file, place, &format!("{text}{place}"))
}

/// Replaces the first `from` in a file of the library.
pub(super) fn edit(files: &mut Files, file: &str, from: &str, to: &str) -> Result<(), GraftError> {
    let path = Path::new(LIBRARY).join(file);
    let error = || GraftError(path.display().to_string(), from.trim().to_owned());
    let old = files.get(&path).and_then(|bytes| str::from_utf8(bytes).ok()).ok_or_else(error)?;
    let (before, after) = old.split_once(from).ok_or_else(error)?;
    let new = [before, to, after].concat();
    files.insert(path, new.into());
    Ok(())
}

/// The crate's root as a module of the library. Lines keep their numbers, for the coverage of a search.
fn as_module(source: &str) -> String {
    let is_root = |line: &str| line.starts_with("#![") || line.starts_with("//!");
    let lines = source.lines().map(|line| if is_root(line) { "" } else { line });
    let text: String = lines.flat_map(|line| [line, "\n"]).collect();
    rename(&text, "locks::", "crate::").replace("core::sync::atomic::", "crate::sync::")
}

/// Replaces the path `from`, but not a longer name that ends with it.
fn rename(text: &str, from: &str, to: &str) -> String {
    let mut new = String::new();
    for (index, part) in text.split(from).enumerate() {
        if index > 0 {
            let is_longer = new.ends_with(|c: char| c.is_alphanumeric() || c == '_');
            new += if is_longer { from } else { to };
        }
        new += part;
    }
    new
}

/// `half-fair` as `HalfFair`.
fn camel(name: &str) -> String {
    let words = name.split('-').filter_map(|word| word.split_at_checked(1));
    words.map(|(first, rest)| first.to_uppercase() + rest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkout() -> Files {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        [ROOT.0, LIST.0, MODEL.0]
            .map(|file| Path::new(LIBRARY).join(file))
            .map(|path| (path.clone(), std::fs::read(root.join(path)).unwrap()))
            .into()
    }

    #[test]
    fn a_lock_is_added_to_the_checkouts_lists() {
        let source = "//! Mine.\n#![no_std]\nuse locks::Pv;\nuse core::sync::atomic::AtomicU32;\nmy_locks::x(); pv.lock_spinning(1)";
        let lock = LockCrate {
            name: "half-fair2".into(),
            about: "a \"b\"".into(),
            source: source.into(),
            needs: "Halts",
            c_file: None,
        };
        let mut files = checkout();
        graft(&lock, &mut files).unwrap();
        let text =
            |file: &str| String::from_utf8(files[&Path::new(LIBRARY).join(file)].clone()).unwrap();
        assert!(text(ROOT.0).contains(
            "\nmod lock_crate_half_fair2;\npub use lock_crate_half_fair2::Lock as CrateHalfFair2;\n"
        ));
        assert!(text(LIST.0).contains(
            "Spinlock CrateHalfFair2 \"half-fair2\" $crate::CrateHalfFair2: Halts,\n                \"a \\\"b\\\"\", LockCrate;\n"
        ));
        assert!(
            text(MODEL.0)
                .contains("    word(\"CrateHalfFair2\", &[\"lock_crate_half_fair2\"]),\n];")
        );
        let module = text("src/lock_crate_half_fair2.rs");
        assert_eq!(
            module,
            "\n\nuse crate::Pv;\nuse crate::sync::AtomicU32;\nmy_locks::x(); pv.lock_spinning(1)\n"
        );
        let error = graft(&lock, &mut Files::new()).unwrap_err().to_string();
        assert!(error.starts_with("guest-kernel-config/locks/src/lib.rs does not fit"), "{error}");
    }
}
