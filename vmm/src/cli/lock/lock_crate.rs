//! A lock crate: its name, its description and its source. Its files are not trusted.

use std::path::{Path, PathBuf};

use base::{
    files::{self, FileError},
    units::ByteSize,
};
use locks::System;
use serde::Deserialize;
use thiserror::Error;

use super::c_code;

/// Limit of a file's size.
const MAX_FILE: ByteSize = ByteSize::mib(1);
/// Limit of a name, and of a description.
const MAX_NAME: usize = 32;
const MAX_ABOUT: usize = 100;

/// Calls of the machine, and the `Needs` of a lock that makes them. The first call found counts.
const NEEDS: [(&str, &str); 7] = [
    (".is_critical_off(", "CriticalOff"),
    (".is_off(", "OffAndYieldTo"),
    (".yield_to(", "YieldTo"),
    (".slice_left(", "SliceEnd"),
    (".lock_spinning(", "Halts"),
    (".kick_and_halt(", "Halts"),
    ("pvt_halt(", "Halts"),
];

/// A lock to graft into the library.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LockCrate {
    pub(super) name: String,
    /// Its description, one line.
    pub(super) about: String,
    /// The text of `src/lib.rs`.
    pub(super) source: String,
    /// The name of the `Needs` of its code.
    pub(super) needs: &'static str,
    /// Its code, if that is in C.
    pub(super) c_file: Option<PathBuf>,
}

/// A name or a crate cannot be used.
#[derive(Debug, Error)]
pub(super) enum LockCrateError {
    #[error("'{0}' is no name for a lock: 1 to {MAX_NAME} of a-z, 0-9 and -, and a letter first")]
    Name(String),
    #[error("'{0}' is a lock of pvticket (see pvticket locks): choose another name")]
    Taken(String),
    #[error("{0} is no lock crate (`pvticket lock new NAME` writes one)")]
    Unreadable(PathBuf, #[source] FileError),
    #[error("{0} is no manifest")]
    Manifest(PathBuf, #[source] toml::de::Error),
    #[error("{0}: {1}")]
    Source(PathBuf, &'static str),
}

#[derive(Deserialize)]
struct Manifest {
    package: Package,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    #[serde(default)]
    description: String,
}

/// Checks the name of a new lock. It becomes part of paths and of Rust names.
pub(super) fn check_name(name: &str) -> Result<(), LockCrateError> {
    let is_valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.len() > MAX_NAME
        || !name.starts_with(|c: char| c.is_ascii_lowercase())
        || !name.chars().all(is_valid)
    {
        return Err(LockCrateError::Name(
            name.chars().take(2 * MAX_NAME).flat_map(char::escape_default).collect(),
        ));
    }
    let is_taken = |system: &System| system.name() == name;
    if name == "all" || System::ALL.iter().any(is_taken) {
        return Err(LockCrateError::Taken(name.into()));
    }
    Ok(())
}

impl LockCrate {
    /// Reads the crate in `dir`.
    pub(super) fn read(dir: &Path) -> Result<Self, LockCrateError> {
        let read = |file: PathBuf| {
            files::read_text(&file, MAX_FILE)
                .map_err(|error| LockCrateError::Unreadable(dir.into(), error))
        };
        let manifest = dir.join("Cargo.toml");
        let text = read(manifest.clone())?;
        let Manifest { package } =
            toml::from_str(&text).map_err(|error| LockCrateError::Manifest(manifest, error))?;
        check_name(&package.name)?;
        let file = dir.join("src/lib.rs");
        let source = read(file.clone())?;
        if let Some(reason) = unsupported(&source) {
            return Err(LockCrateError::Source(file, reason));
        }
        let c_file = c_code::source(dir);
        let code = c_file.clone().map(read).transpose()?;
        let code = code.as_ref().unwrap_or(&source);
        let needs = NEEDS
            .iter()
            .find(|(call, _)| code.contains(call))
            .map_or("Nothing", |(_, needs)| needs);
        let about = package.description.chars().filter(|c| !c.is_control()).take(MAX_ABOUT);
        Ok(Self { name: package.name, about: about.collect(), needs, c_file, source })
    }
}

/// A reason why this source cannot be a module of the lock library.
fn unsupported(source: &str) -> Option<&'static str> {
    let has = |is_it: fn(&str) -> bool| source.lines().any(is_it);
    if !has(|line| line.starts_with("pub struct Lock")) {
        return Some("must define `pub struct Lock`, with `const fn new()`");
    }
    let is_module = |line: &str| line.starts_with("mod ") && line.ends_with(';');
    has(is_module).then_some("a lock crate is one file: move its modules into it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_paths_options_and_existing_locks_are_rejected() {
        for name in
            ["", "../x", "a/b", "-x", "9p", "Mine", "a_b", "\u{1b}[31m", "a b", &"x".repeat(33)]
        {
            let error = check_name(name).unwrap_err().to_string();
            assert!(
                error.contains("is no name for a lock") && !error.contains('\u{1b}'),
                "{error}"
            );
        }
        for name in ["ticket", "all", "mutex"] {
            assert!(
                check_name(name).unwrap_err().to_string().contains("choose another name"),
                "{name}"
            );
        }
        // Words of Rust are only parts of names.
        assert!(check_name("fn").is_ok() && check_name("half-fair-2").is_ok());
    }

    #[test]
    fn unusable_crates_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let read = || LockCrate::read(dir.path()).unwrap_err().to_string();
        let put = |file: &str, text: &str| std::fs::write(dir.path().join(file), text).unwrap();
        assert!(read().contains("is no lock crate"));
        put("Cargo.toml", "[package]\nname = 3");
        assert!(read().contains("is no manifest"));
        put("Cargo.toml", "[package]\nname = \"../../x\"");
        assert!(read().contains("is no name"));
        put("Cargo.toml", "[package]\nname = \"mine\"\ndescription = \"a\\nb\"");
        assert!(read().contains("is no lock crate"));
        std::fs::create_dir(dir.path().join("src")).unwrap();
        put("src/lib.rs", "struct Lock;");
        assert!(read().contains("must define `pub struct Lock`"));
        put("src/lib.rs", "pub struct Lock;\nmod part;");
        assert!(read().contains("is one file"));
        put("src/lib.rs", "pub struct Lock;\n");
        let (name, source) = ("mine".into(), "pub struct Lock;\n".into());
        let expected =
            LockCrate { name, about: "ab".into(), source, needs: "Nothing", c_file: None };
        assert_eq!(LockCrate::read(dir.path()).unwrap(), expected);
    }
}
