//! Makes the mutants that the search has to find: copies of the lock sources with one edit each, those
//! of the stepper's tests. They are compiled for this crate's tests only.

#[path = "../../guest-kernel-config/locks/sim/build/copies.rs"]
mod copies;
// The stepper alone runs cases by name.
#[allow(dead_code)]
#[path = "../../guest-kernel-config/locks/sim/build/mutants.rs"]
mod mutants;

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use mutants::{MUTANTS, Mutant};

const SOURCES: &str = "../../guest-kernel-config/locks/src";
/// The module of this crate that has them.
const HERE: &str = "crate::search::mutants";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=../../guest-kernel-config/locks/sim/build");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let bind = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("src/guest/bind.rs");
    let (mut code, mut table) = (String::new(), String::new());
    for mutant in MUTANTS {
        let Mutant { name, lock, caught, .. } = mutant;
        let module = copies::module_name(name);
        let root = out.join(&module);
        copies::copy(Path::new(SOURCES), &root, mutant, &format!("{HERE}::{module}::locks::"))?;
        let system = lock.trim_end_matches("Lock");
        write!(code, "mutant!({module} {:?} {bind:?} {system} {lock});", root.join("lib.rs"))?;
        write!(
            table,
            "Mutant {{ name: {name:?}, system: System::{system}, caught: {caught:?}, make: {module}::make }},"
        )?;
    }
    write!(code, "pub(super) const MUTANTS: &[Mutant] = &[{table}];")?;
    fs::write(out.join("mutants.rs"), code)?;
    Ok(())
}
