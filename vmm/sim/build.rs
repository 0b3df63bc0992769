//! Makes the locks that the search has to find: copies of the lock sources with an edit or two each, the mutants
//! of the stepper's tests, some of the model checkers', and wrong locks of its own. They are compiled for this crate's
//! tests only.

#[path = "../../guest-kernel-config/locks/sim/build/copies.rs"]
mod copies;
// What only the model checkers ask of theirs.
#[allow(dead_code)]
#[path = "../../guest-kernel-config/locks/model/build/handoff_mutants.rs"]
mod handoff_mutants;
#[allow(dead_code)]
#[path = "../../guest-kernel-config/locks/model/build/mutants.rs"]
mod mutants;
// The stepper alone runs cases by name.
#[allow(dead_code)]
#[path = "../../guest-kernel-config/locks/sim/build/mutants.rs"]
mod stepper;
#[path = "../../guest-kernel-config/locks/sim/build/wrong_locks.rs"]
mod wrong_locks;

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use handoff_mutants::HANDOFF_MUTANTS;
use mutants::{MUTANTS, Mutant};
use wrong_locks::{WRONG_LOCKS, WrongLock};

const SOURCES: &str = "../../guest-kernel-config/locks/src";
/// The module of this crate that has them.
const HERE: &str = "crate::search::mutants";

/// The model checkers' mutants that a search has to find, too: name, lock, and how it shows.
const OF_THE_MODEL: &[(&str, &str, &str)] =
    &[("commit looks, then marks", "PvTicketLock", "Stuck")];

/// A mutant with the lock that it breaks, and how it shows.
struct Broken {
    mutant: Mutant,
    lock: &'static str,
    caught: &'static str,
}

/// One whose edits are of files by their whole names.
fn broken(name: &'static str, lock: &'static str, caught: &'static str, edits: Edits) -> Broken {
    let mutant = Mutant { name, rule: "", harmless: None, engine: "", edits };
    Broken { mutant, lock, caught }
}

type Edits = &'static [(&'static str, &'static str, &'static str)];

/// The wrong locks that are no mutants of others.
fn wrong() -> impl Iterator<Item = Broken> {
    WRONG_LOCKS
        .iter()
        .map(|WrongLock { name, lock, caught, edits }| broken(name, lock, caught, edits))
}

/// All mutants. An error: one that the model checkers do not have.
fn all() -> impl Iterator<Item = Result<Broken, String>> {
    let of_stepper = stepper::MUTANTS.iter().map(|mutant| {
        let stepper::Mutant { name, lock, caught, edits, .. } = mutant;
        Ok(broken(name, lock, caught, edits))
    });
    of_stepper.chain(OF_THE_MODEL.iter().map(|(name, lock, caught)| {
        let mutant = MUTANTS.iter().chain(HANDOFF_MUTANTS).find(|mutant| mutant.name == *name);
        let mutant = mutant.ok_or_else(|| format!("the model checkers have no mutant {name}"))?;
        let named = mutant.edits.iter().map(|(file, from, to)| {
            let file: &str = Box::leak(format!("{file}.rs").into_boxed_str());
            (file, *from, *to)
        });
        Ok(broken(name, lock, caught, named.collect::<Vec<_>>().leak()))
    }))
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=../../guest-kernel-config/locks/sim/build");
    println!("cargo:rerun-if-changed=../../guest-kernel-config/locks/model/build");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let bind = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("src/guest/bind.rs");
    let mut code = String::new();
    let mut add = |table: &str, all: &[Broken]| -> Result<(), Box<dyn Error>> {
        let mut rows = String::new();
        for Broken { mutant, lock, caught } in all {
            let name = mutant.name;
            let module = copies::module_name(name);
            let root = out.join(&module);
            let prefix = format!("{HERE}::{module}::locks::");
            copies::copy(Path::new(SOURCES), &root, mutant, &prefix)?;
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
    add("MUTANTS", &all().collect::<Result<Vec<_>, _>>()?)?;
    add("WRONG_LOCKS", &wrong().collect::<Vec<_>>())?;
    fs::write(out.join("mutants.rs"), code)?;
    Ok(())
}
