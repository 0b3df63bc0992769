//! Makes the locks that the cases and the search have to find: copies of the lock sources with an edit or two each,
//! mutants and wrong locks. They are compiled for this crate's tests only.

mod broken;
mod copies;
mod wrong_locks;

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use broken::BROKEN;
use wrong_locks::WRONG_LOCKS;

const SOURCES: &str = "../../guest-kernel-config/locks/src";
/// The module of this crate that has them.
const HERE: &str = "crate::search::mutants";

/// A lock that breaks a guarantee.
pub struct WrongLock {
    /// Name of the lock and of its module.
    pub name: &'static str,
    /// The type of the lock that is wrong.
    pub lock: &'static str,
    /// The kind of finding.
    pub caught: &'static str,
    /// Edits: the file, a text that occurs there exactly once, and its replacement.
    pub edits: &'static [(&'static str, &'static str, &'static str)],
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let bind = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("src/guest/bind.rs");
    let mut code = String::new();
    let mut add = |table: &str, all: &[WrongLock]| -> Result<(), Box<dyn Error>> {
        let mut rows = String::new();
        for wrong in all {
            let WrongLock { name, lock, caught, .. } = wrong;
            let module = copies::module_name(name);
            let root = out.join(&module);
            let prefix = format!("{HERE}::{module}::locks::");
            copies::copy(Path::new(SOURCES), Path::new(""), &root, wrong, &prefix)?;
            let system = lock.trim_end_matches("Lock");
            write!(code, "mutant!({module} {:?} {bind:?} {system} {lock});", root.join("lib.rs"))?;
            write!(
                rows,
                "Mutant {{ name: {name:?}, system: System::{system}, caught: {caught:?}, make: {module}::make }},"
            )?;
        }
        write!(code, "pub(super) const {table}: &[Mutant] = &[{rows}];")?;
        Ok(())
    };
    add("MUTANTS", BROKEN)?;
    add("WRONG_LOCKS", WRONG_LOCKS)?;
    fs::write(out.join("mutants.rs"), code)?;
    Ok(())
}
