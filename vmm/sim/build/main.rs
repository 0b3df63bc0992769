//! Makes the locks that the cases and the search have to find: copies of the lock sources with an edit or two each,
//! mutants, some of the model checkers' among them, and wrong locks. They are compiled for this crate's tests only.

mod broken;
mod copies;
// What only the model checkers ask of theirs.
#[allow(dead_code)]
#[path = "../../../guest-kernel-config/locks/model/build/handoff_mutants.rs"]
mod handoff_mutants;
#[allow(dead_code)]
#[path = "../../../guest-kernel-config/locks/model/build/mutants.rs"]
mod mutants;
mod wrong_locks;

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use broken::BROKEN;
use handoff_mutants::HANDOFF_MUTANTS;
use mutants::MUTANTS;
use wrong_locks::WRONG_LOCKS;

const SOURCES: &str = "../../guest-kernel-config/locks/src";
/// The module of this crate that has them.
const HERE: &str = "crate::search::mutants";

/// The model checkers' mutants that a search has to find, too: name, lock, and how it shows.
const OF_THE_MODEL: &[(&str, &str, &str)] =
    &[("commit looks, then marks", "PvTicketLock", "Stuck")];

/// A lock that breaks a guarantee.
#[derive(Clone, Copy)]
pub struct WrongLock {
    /// Name of the lock and of its module.
    pub name: &'static str,
    /// The type of the lock that is wrong.
    pub lock: &'static str,
    /// As what it is found; `Nested`: it is not, as no simulation has interrupt handlers.
    pub caught: &'static str,
    /// Edits: the file, a text that occurs there exactly once, and its replacement.
    pub edits: &'static [(&'static str, &'static str, &'static str)],
}

/// All mutants. An error: one that the model checkers do not have.
fn all_mutants() -> impl Iterator<Item = Result<WrongLock, String>> {
    BROKEN.iter().copied().map(Ok).chain(OF_THE_MODEL.iter().map(|&(name, lock, caught)| {
        let mutant = MUTANTS.iter().chain(HANDOFF_MUTANTS).find(|mutant| mutant.name == name);
        let mutant = mutant.ok_or_else(|| format!("the model checkers have no mutant {name}"))?;
        let named = mutant.edits.iter().map(|(file, from, to)| {
            let file: &str = Box::leak(format!("{file}.rs").into_boxed_str());
            (file, *from, *to)
        });
        Ok(WrongLock { name, lock, caught, edits: named.collect::<Vec<_>>().leak() })
    }))
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build");
    println!("cargo:rerun-if-changed=../../guest-kernel-config/locks/model/build");
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
            copies::copy(Path::new(SOURCES), &root, wrong, &prefix)?;
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
    add("MUTANTS", &all_mutants().collect::<Result<Vec<_>, _>>()?)?;
    add("WRONG_LOCKS", WRONG_LOCKS)?;
    fs::write(out.join("mutants.rs"), code)?;
    Ok(())
}
