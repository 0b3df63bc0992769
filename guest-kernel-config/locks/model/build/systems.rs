//! The systems that are checked: their sources and their mutants.

use std::{error::Error, fs};

use crate::{
    SourceFile,
    mutants::{self, Mutant},
    rewrite,
};

/// Sources that are compiled and checked together. The name is the prefix of the module with their checks.
pub struct System {
    pub name: &'static str,
    pub sources: Vec<SourceFile>,
    pub mutants: Vec<Mutant>,
}

/// The system of all spinlocks and the latch.
pub const SPINLOCK: &str = "spinlock";

/// Name and file of a source.
type Named = (String, String);

/// Reads all systems.
pub fn read_all() -> Result<Vec<System>, Box<dyn Error>> {
    let root = fs::read_to_string("../src/lib.rs")?;
    let library: Vec<_> = rewrite::modules(&root).chain(["lib"]).map(in_library).collect();
    let (latch, halts) = ("../../../hypercalls/src/latch.rs", "../../../vmm/sched/src/halts");
    let latch = ("latch".to_owned(), latch.to_owned());
    let spin = ["ticket", "handoff", "spin", "literature", "schedule"];
    let root = ("lib".to_owned(), format!("{halts}/mod.rs"));
    let halts_sources = ["protocol", "delayed"].map(|name| file(name, halts));
    let checked = ["machine", "halts_checks"].map(|name| file(name, "src/halts"));
    Ok(vec![
        System {
            name: SPINLOCK,
            sources: read(library.iter().cloned().chain([latch.clone(), file("machine", "src")]))?,
            mutants: mutants::read(&spin)?,
        },
        sleeping("mutex", &library, &["one_spinner", "queued", "sleepers", "unlimited"])?,
        sleeping("counter", &library, &["gated", "locals", "locked", "sequence"])?,
        sleeping("lockref", &library, &["word"])?,
        System {
            name: "halts",
            sources: read([root].into_iter().chain(halts_sources).chain([latch]).chain(checked))?,
            mutants: mutants::read(&["halts"])?,
        },
    ])
}

/// Creates a system of the library with these submodules, and the spinlocks that it uses. A mutant refers to
/// a submodule by its path, `mutex/queued`.
fn sleeping(
    name: &'static str,
    library: &[Named],
    parts: &[&str],
) -> Result<System, Box<dyn Error>> {
    let parts = parts.iter().map(|part| in_library(&format!("{name}/{part}")));
    let checked = ["machine", &format!("{name}_checks")].map(|name| file(name, "src/sleep"));
    let sources = [in_library(name)].into_iter().chain(parts).chain(checked);
    let mut mutants = mutants::read(&["sleep"])?;
    mutants.retain(|mutant| mutant.of == name);
    Ok(System { name, sources: read(library.iter().cloned().chain(sources))?, mutants })
}

fn in_library(name: &str) -> Named {
    file(name, "../src")
}

fn file(name: &str, folder: &str) -> Named {
    (name.to_owned(), format!("{folder}/{name}.rs"))
}

fn read(files: impl Iterator<Item = Named>) -> Result<Vec<SourceFile>, Box<dyn Error>> {
    let read = |(name, path): Named| {
        println!("cargo:rerun-if-changed={path}");
        let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        Ok(SourceFile { name, text })
    };
    files.map(read).collect()
}
