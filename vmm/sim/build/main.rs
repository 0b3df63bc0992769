//! Builds the broken locks that the cases and the search have to find: copies of the lock sources with one or
//! two edits each. They are compiled only for this crate's tests. Also lists the lines of the lock sources that make
//! requests, for the coverage of a search.

mod copies;
#[path = "../../../guest-kernel-config/locks/model/build/edit.rs"]
mod edit;
mod requests;

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use edit::Edit;
use serde::Deserialize;

const SOURCES: &str = "../../guest-kernel-config/locks/src";
/// The module of this crate that includes the copies.
const HERE: &str = "crate::search::test_mutants";

/// A lock that breaks a guarantee, from a file in `mutants/`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mutant {
    /// Name of the lock and of its module.
    name: String,
    /// The broken lock type.
    lock: String,
    /// Its name in the list of systems, if it differs from the type's.
    system: Option<String>,
    /// The kind of finding that reports it.
    caught: String,
    edits: Vec<Edit>,
}

#[derive(Deserialize)]
struct Mutants {
    mutants: Vec<Mutant>,
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build");
    println!("cargo:rerun-if-changed=mutants");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let bind = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("src/guest/bind.rs");
    let mut code = String::new();
    let mut add = |table: &str, file: &str| -> Result<(), Box<dyn Error>> {
        let Mutants { mutants } = toml::from_str(&fs::read_to_string(file)?)?;
        let mut rows = String::new();
        for mutant in &mutants {
            let Mutant { name, lock, caught, .. } = mutant;
            let module = copies::module_name(name);
            let root = out.join(&module);
            let prefix = format!("{HERE}::{module}::locks::");
            copies::copy(Path::new(SOURCES), Path::new(""), &root, mutant, &prefix)?;
            let system = mutant.system.as_deref().unwrap_or(lock.trim_end_matches("Lock"));
            write!(code, "mutant!({module} {:?} {bind:?} {system} {lock});", root.join("lib.rs"))?;
            write!(
                rows,
                "Mutant {{ name: {name:?}, system: System::{system}, caught: {caught:?}, make: {module}::make }},"
            )?;
        }
        write!(code, "pub(super) const {table}: &[Mutant] = &[{rows}];")?;
        Ok(())
    };
    add("MUTANTS", "mutants/broken.toml")?;
    add("WRONG_LOCKS", "mutants/rarely_wrong.toml")?;
    add("OUT_OF_SIGHT", "mutants/out_of_sight.toml")?;
    fs::write(out.join("mutants.rs"), code)?;
    let rows = requests::rows(Path::new(SOURCES), Path::new(""))?;
    fs::write(out.join("requests.rs"), format!("&[{rows}]"))?;
    Ok(())
}
