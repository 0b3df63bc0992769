//! Makes the mutants of the tests: the lock sources with an edit each, as files of their own.

#[path = "build/mutants.rs"]
mod mutants;

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use mutants::{MUTANTS, Mutant};

const SOURCES: &str = "../src";

/// What a mutant has in the place of the library's `sync`.
const SYNC: &str = "pub(crate) use sim_cell::atomic::*;\npub const MAX_CPUS: usize = 128;\n";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=build");
    println!("cargo:rerun-if-changed={SOURCES}");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let bind = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("src/bind.rs");
    let mut code = String::new();
    let mut table = String::new();
    for mutant in MUTANTS {
        let Mutant { name, lock, word, caught, .. } = mutant;
        let module = name.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        let root = out.join(&module);
        copy(Path::new(SOURCES), &root, mutant, &module)?;
        writeln!(code, "#[allow(warnings, clippy::all)]\nmod {module} {{")?;
        writeln!(code, "#[path = {:?}]\npub mod locks;", root.join("lib.rs"))?;
        writeln!(code, "pub mod bind {{ use stepper as stepper_crate; include!({bind:?}); }}")?;
        writeln!(code, "pub fn make() -> Option<std::rc::Rc<dyn stepper::Subject>> {{")?;
        writeln!(
            code,
            "Some(std::rc::Rc::new(bind::Spinlock(bind::Bound::<locks::{lock}>::new())))\n}}\n}}"
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

/// Copies the sources in `from` with the edits of `mutant`, as the module `module::locks`.
fn copy(from: &Path, to: &Path, mutant: &Mutant, module: &str) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let name = path.file_name().ok_or("a source has no name")?;
        let target = to.join(name);
        if path.is_dir() {
            copy(&path, &target, mutant, module)?;
            continue;
        }
        println!("cargo:rerun-if-changed={}", path.display());
        let inside = path.strip_prefix(SOURCES)?.to_string_lossy().into_owned();
        let text = match inside.as_str() {
            "sync.rs" => SYNC.to_owned(),
            file => module_of(&edited(file, &fs::read_to_string(&path)?, mutant)?, module),
        };
        fs::write(target, text)?;
    }
    Ok(())
}

/// A text that is not there exactly once is an error: the source has moved on, and the mutant would
/// be none.
fn edited(file: &str, text: &str, mutant: &Mutant) -> Result<String, Box<dyn Error>> {
    let mut text = text.to_owned();
    for (_, from, to) in mutant.edits.iter().filter(|(name, ..)| *name == file) {
        let times = text.matches(from).count();
        if times != 1 {
            let name = mutant.name;
            return Err(
                format!("mutant {name}: its text occurs {times} times in {file}:\n{from}").into()
            );
        }
        text = text.replacen(from, to, 1);
    }
    Ok(text)
}

/// A source of a crate as one of the module `module::locks` of another.
fn module_of(text: &str, module: &str) -> String {
    // Tests are the last thing in every source.
    let product = text.find("#[cfg(test)]\nmod tests").map_or(text, |tests| &text[..tests]);
    product
        .lines()
        .filter(|line| !line.starts_with("#![") && !line.starts_with("//!"))
        .filter(|line| line.trim() != "#[macro_export]")
        .map(|line| line.replace("crate::", &format!("crate::{module}::locks::")) + "\n")
        .collect()
}
