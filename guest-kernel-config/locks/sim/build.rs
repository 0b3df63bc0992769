//! Makes the mutants of the tests: copies of the lock sources with one edit each.

#[path = "build/copies.rs"]
mod copies;
#[path = "build/mutants.rs"]
mod mutants;

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use mutants::{MUTANTS, Mutant};

const SOURCES: &str = "../src";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=build");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let bind = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("src/bind.rs");
    let mut code = String::new();
    let mut table = String::new();
    for mutant in MUTANTS {
        let Mutant { name, lock, word, caught, .. } = mutant;
        let module = copies::module_name(name);
        let root = out.join(&module);
        copies::copy(Path::new(SOURCES), &root, mutant, &format!("crate::{module}::locks::"))?;
        writeln!(code, "#[allow(warnings, clippy::all)]\nmod {module} {{")?;
        writeln!(code, "#[path = {:?}]\npub mod locks;", root.join("lib.rs"))?;
        writeln!(code, "pub mod bind {{ use stepper as stepper_crate; include!({bind:?}); }}")?;
        writeln!(code, "pub fn make() -> Option<std::rc::Rc<dyn stepper::SteppedLock>> {{")?;
        writeln!(
            code,
            "Some(std::rc::Rc::new(bind::SteppedSpinlock(\
             bind::BoundLocks::<locks::{lock}>::new())))\n}}\n}}"
        )?;
        writeln!(
            table,
            "Mutant {{ name: {name:?}, lock: {lock:?}, word: {word:?}, caught: Caught::{caught}, make: {module}::make }},"
        )?;
    }
    writeln!(code, "const MUTANTS: &[Mutant] = &[{table}];")?;
    fs::write(out.join("mutants.rs"), code)?;
    Ok(())
}
