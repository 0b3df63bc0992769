//! The variants of the VMM's halts: the sources of `vmm/halts` and of the latch.

use std::{env, error::Error, fmt::Write as _, fs, path::Path};

use crate::{
    ENGINES, SourceFile, choice::Choice, halt_mutants::HALT_MUTANTS, module, mutate, rewrite, sleep,
};

/// As the table names it, before a colon.
const SYSTEM: &str = "halts";

/// Name and file of each source.
const FILES: [(&str, &str); 6] = [
    ("lib", "../../../vmm/halts/src/lib.rs"),
    ("protocol", "../../../vmm/halts/src/protocol.rs"),
    ("delayed", "../../../vmm/halts/src/delayed.rs"),
    ("latch", "../../../hypercalls/src/latch.rs"),
    ("machine", "src/halts/machine.rs"),
    ("halts_checks", "src/halts/halts_checks.rs"),
];

/// Writes `halt_variants.rs`: the modules, and a table of them.
pub fn generate(choice: &Choice) -> Result<(), Box<dyn Error>> {
    let (mut code, mut table) = (String::new(), String::new());
    let sources = read()?;
    let plain = format!("{SYSTEM}: plain");
    for engine in ENGINES {
        module(&mut code, engine, &plain, &sources, &[], "halts::")?;
        sleep::plain_row(&mut table, SYSTEM, &plain, engine)?;
    }
    for (place, mutant) in HALT_MUTANTS.iter().enumerate() {
        let changed = mutate(&sources, mutant)?;
        if choice.has(place, mutant.name) {
            module(&mut code, mutant.engine, mutant.name, &changed, &[], "halts::")?;
            sleep::mutant_row(&mut table, SYSTEM, mutant)?;
        }
    }
    writeln!(code, "pub const VARIANTS: &[Variant] = &[{table}];")?;
    fs::write(Path::new(&env::var("OUT_DIR")?).join("halt_variants.rs"), code)?;
    Ok(())
}

fn read() -> Result<Vec<SourceFile>, Box<dyn Error>> {
    let sources: Result<Vec<_>, Box<dyn Error>> = FILES
        .iter()
        .map(|(name, path)| {
            println!("cargo:rerun-if-changed={path}");
            let text = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
            Ok(SourceFile { name: (*name).to_owned(), text })
        })
        .collect();
    let sources = sources?;
    rewrite::check(&sources, rewrite::HALT_EDITS)?;
    Ok(sources)
}
