//! Makes the variants: the lock's and the latch's own sources, once for each engine as they are
//! and once more for each mutant, with the engine's atomics in the place of the processor's.
//!
//! So the product's sources know nothing of being checked, and nothing that is checked is a copy
//! that could fall behind.

#[path = "build/mutants.rs"]
mod mutants;
#[path = "build/rewrite.rs"]
mod rewrite;
#[path = "build/sleep.rs"]
mod sleep;
#[path = "build/sleep_mutants.rs"]
mod sleep_mutants;

use std::{env, error::Error, fmt::Write as _, fs, path::Path};

use mutants::{MUTANTS, Mutant};

/// The modules of `locks`, but for `sync`, which is the engine's.
const LOCKS: [&str; 9] =
    ["handoff", "links", "native", "pv", "section", "ticket", "wait", "watch", "lib"];

const ENGINES: [&str; 2] = ["loom", "shuttle"];

/// A source file as a mutant names it, and its text.
struct Source {
    name: String,
    text: String,
}

fn main() -> Result<(), Box<dyn Error>> {
    let sources = read()?;
    let mut code = String::new();
    let mut table = String::new();
    sleep::generate()?;
    let plain = ("plain", "what the product runs", sources);
    for engine in ENGINES {
        module(&mut code, engine, plain.0, &plain.2, "")?;
    }
    row(&mut table, plain.0, plain.1, Some("the product"), &ENGINES)?;
    for mutant in MUTANTS {
        let changed = mutate(&plain.2, mutant)?;
        module(&mut code, mutant.engine, mutant.name, &changed, "")?;
        row(&mut table, mutant.name, mutant.rule, mutant.harmless, &[mutant.engine])?;
    }
    writeln!(code, "pub const VARIANTS: &[Variant] = &[{table}];")?;
    fs::write(Path::new(&env::var("OUT_DIR")?).join("variants.rs"), code)?;
    Ok(())
}

fn read() -> Result<Vec<Source>, Box<dyn Error>> {
    let locks = LOCKS.map(|name| (name, format!("../src/{name}.rs")));
    let others = [
        ("latch", "../../../hypercalls/src/latch.rs".to_owned()),
        ("machine", "src/machine.rs".to_owned()),
    ];
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=build");
    locks
        .into_iter()
        .chain(others)
        .map(|(name, path)| {
            println!("cargo:rerun-if-changed={path}");
            let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
            Ok(Source { name: name.to_owned(), text })
        })
        .collect()
}

/// The sources with one mutant's edits. A text that is not there exactly once is an error: the
/// source has moved on, and the mutant would be none.
fn mutate(sources: &[Source], mutant: &Mutant) -> Result<Vec<Source>, Box<dyn Error>> {
    let mut changed: Vec<_> = sources
        .iter()
        .map(|source| Source { name: source.name.clone(), text: source.text.clone() })
        .collect();
    for (file, from, to) in mutant.edits {
        let source = changed.iter_mut().find(|source| source.name == *file);
        let source = source.ok_or_else(|| format!("{}: no source {file}", mutant.name))?;
        let times = source.text.matches(from).count();
        if times != 1 {
            return Err(format!(
                "mutant {}: its text occurs {times} times in {file}.rs, not once:\n{from}",
                mutant.name
            )
            .into());
        }
        source.text = source.text.replacen(from, to, 1);
    }
    Ok(changed)
}

/// All of one variant for one engine.
///
/// `parent` is the module it is put into: nothing, or with its colons.
fn module(
    code: &mut String,
    engine: &str,
    variant: &str,
    sources: &[Source],
    parent: &str,
) -> std::fmt::Result {
    let name = rewrite::module_name(engine, variant);
    let path = format!("{parent}{name}");
    writeln!(code, "#[allow(warnings, clippy::all)]\nmod {name} {{")?;
    writeln!(code, "mod engine {{ pub(crate) use crate::engine::{engine}::*; }}")?;
    writeln!(code, "mod sync {{ pub use crate::engine::{engine}::atomics::*; }}")?;
    for source in sources {
        let text = rewrite::for_engine(&source.text, &path);
        match source.name.as_str() {
            "lib" => writeln!(code, "{}", rewrite::root(&text))?,
            "ticket" => writeln!(code, "mod ticket {{\n{}\n}}", rewrite::any_first_ticket(&text))?,
            "pv" => writeln!(code, "mod pv {{\n{text}\n{}\n}}", rewrite::STARTING_AT)?,
            "machine" => writeln!(code, "pub mod machine {{\n{text}\n}}")?,
            name if name.ends_with("_checks") => {
                writeln!(code, "pub mod {name} {{\n{text}\n}}")?;
            }
            name => writeln!(code, "mod {name} {{\n{text}\n}}")?,
        }
    }
    writeln!(code, "}}")
}

fn row(
    table: &mut String,
    name: &str,
    rule: &str,
    harmless: Option<&str>,
    engines: &[&str],
) -> std::fmt::Result {
    writeln!(
        table,
        "Variant {{ name: {name:?}, rule: {rule:?}, harmless: {harmless:?}, executions: &["
    )?;
    for engine in engines {
        let path = rewrite::module_name(engine, name);
        writeln!(table, "(Engine::{}, {path}::machine::run),", rewrite::capital(engine))?;
    }
    writeln!(table, "] }},")
}
