//! Generates the variants: the sources of the locks, the latch, the VMM's halts, the mutexes, the counters
//! and the lockrefs, with the engine's atomics and the edits that `rewrite.rs` lists, for each engine, and once
//! more with the edits of each mutant that is built.
//!
//! What is checked is generated from the product's own sources, not from a copy that could fall behind.

#[path = "build/choice.rs"]
mod choice;
#[path = "build/halt_mutants.rs"]
mod halt_mutants;
#[path = "build/halts.rs"]
mod halts;
#[path = "build/handoff_mutants.rs"]
mod handoff_mutants;
#[path = "build/literature_mutants.rs"]
mod literature_mutants;
#[path = "build/locks.rs"]
mod locks;
#[path = "build/mutants.rs"]
mod mutants;
#[path = "build/rewrite.rs"]
mod rewrite;
#[path = "build/schedule_mutants.rs"]
mod schedule_mutants;
#[path = "build/sleep.rs"]
mod sleep;
#[path = "build/sleep_mutants.rs"]
mod sleep_mutants;
#[path = "build/spin_mutants.rs"]
mod spin_mutants;

use std::{env, error::Error, fmt::Write as _, fs, path::Path};

use choice::Choice;
use handoff_mutants::HANDOFF_MUTANTS;
use literature_mutants::LITERATURE_MUTANTS;
use locks::{LOCKS, Lock, PV_TICKET, needs};
use mutants::{MUTANTS, Mutant};
use schedule_mutants::SCHEDULE_MUTANTS;
use spin_mutants::SPIN_MUTANTS;

const ENGINES: [&str; 2] = ["loom", "shuttle"];

/// A source file: the name that mutants use, and its text.
struct SourceFile {
    name: String,
    text: String,
}

fn main() -> Result<(), Box<dyn Error>> {
    check_that_all_are_listed()?;
    let choice = Choice::new()?;
    sleep::generate(&choice)?;
    halts::generate(&choice)?;
    let sources = read()?;
    let mut code = String::new();
    let mut table = String::new();
    let all: Vec<_> = LOCKS.iter().collect();
    for engine in ENGINES {
        module(&mut code, engine, "plain", &sources, &all, "")?;
    }
    let names: Vec<_> = LOCKS.iter().map(|lock| lock.name).collect();
    let plain =
        VariantRow { name: "plain", rule: "what the product runs", harmless: Some("the product") };
    row(&mut table, &plain, &ENGINES, &names)?;
    let pv_mutants = MUTANTS.iter().chain(HANDOFF_MUTANTS).map(|mutant| (PV_TICKET, mutant));
    let other_mutants = SPIN_MUTANTS.iter().chain(LITERATURE_MUTANTS).chain(SCHEDULE_MUTANTS);
    let other_mutants = other_mutants.map(|(lock, mutant)| (*lock, mutant));
    for (place, (lock, mutant)) in pv_mutants.chain(other_mutants).enumerate() {
        // Also for a mutant that is not built: its text must still be in the source.
        let changed = mutate(&sources, mutant)?;
        if !choice.has(place, mutant.name) {
            continue;
        }
        let own: Vec<_> = LOCKS.iter().filter(|other| other.name == lock).collect();
        module(&mut code, mutant.engine, mutant.name, &changed, &own, "")?;
        let Mutant { name, rule, harmless, .. } = *mutant;
        row(&mut table, &VariantRow { name, rule, harmless }, &[mutant.engine], &[lock])?;
    }
    writeln!(code, "pub const VARIANTS: &[Variant] = &[{table}];")?;
    fs::write(Path::new(&env::var("OUT_DIR")?).join("variants.rs"), code)?;
    Ok(())
}

/// Every spinlock of the library's list has to be in [`LOCKS`].
fn check_that_all_are_listed() -> Result<(), Box<dyn Error>> {
    const LIST: &str = "../src/systems.rs";
    println!("cargo:rerun-if-changed={LIST}");
    let list = fs::read_to_string(LIST)?;
    let rows = list.lines().filter(|line| line.trim_start().starts_with("Spinlock "));
    let types: Vec<_> = rows
        .filter_map(|row| row.split_once("$crate::")?.1.split_once(':'))
        .map(|(name, _)| name)
        .collect();
    if types.is_empty() {
        return Err(format!("{LIST}: no spinlocks found").into());
    }
    match types.iter().find(|name| LOCKS.iter().all(|lock| lock.name != **name)) {
        Some(name) => Err(format!("{name} is not checked: add it to build/locks.rs").into()),
        None => Ok(()),
    }
}

fn read() -> Result<Vec<SourceFile>, Box<dyn Error>> {
    let root = fs::read_to_string("../src/lib.rs")?;
    let locks = rewrite::modules(&root).map(|name| (name, format!("../src/{name}.rs")));
    let others = [
        ("lib", "../src/lib.rs".to_owned()),
        ("latch", "../../../hypercalls/src/latch.rs".to_owned()),
        ("machine", "src/machine.rs".to_owned()),
    ];
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=build");
    let sources: Result<Vec<_>, Box<dyn Error>> = locks
        .into_iter()
        .chain(others)
        .map(|(name, path)| {
            println!("cargo:rerun-if-changed={path}");
            let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
            Ok(SourceFile { name: name.to_owned(), text })
        })
        .collect();
    let sources = sources?;
    rewrite::check(&sources, rewrite::LOCK_EDITS)?;
    Ok(sources)
}

/// The sources with one mutant's edits. A text that does not occur exactly once is an error: the
/// source has changed, and the mutant would have no effect.
fn mutate(sources: &[SourceFile], mutant: &Mutant) -> Result<Vec<SourceFile>, Box<dyn Error>> {
    let mut changed: Vec<_> = sources
        .iter()
        .map(|source| SourceFile { name: source.name.clone(), text: source.text.clone() })
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

/// Writes the module of one variant for one engine, with only the submodules that its locks need, since every
/// variant compiles its own.
///
/// `parent` is the enclosing module's path with a trailing `::`, or empty.
fn module(
    code: &mut String,
    engine: &str,
    variant: &str,
    sources: &[SourceFile],
    locks: &[&Lock],
    parent: &str,
) -> std::fmt::Result {
    let name = rewrite::module_name(engine, variant);
    let path = format!("{parent}{name}");
    writeln!(code, "{}#[allow(warnings, clippy::all)]\nmod {name} {{", unless_linted(variant))?;
    writeln!(code, "mod engine {{ pub(crate) use crate::engine::{engine}::*; }}")?;
    writeln!(code, "mod sync {{ pub use crate::engine::{engine}::atomics::*; }}")?;
    for source in sources.iter().filter(|source| needs(locks, &source.name)) {
        let text = rewrite::for_engine(&source.name, &source.text, &path);
        match source.name.as_str() {
            "lib" => writeln!(code, "{}", rewrite::root(&text, |module| needs(locks, module)))?,
            "machine" => writeln!(code, "pub mod machine {{\n{text}\n}}")?,
            name if name.ends_with("_checks") => {
                writeln!(code, "pub mod {name} {{\n{text}\n}}")?;
            }
            name => writeln!(code, "mod {name} {{\n{text}\n}}")?,
        }
    }
    for lock in locks.iter().filter(|_| parent.is_empty()) {
        let make = if lock.has_tickets { "starting_at(first)" } else { "new()" };
        let name = lock.name;
        writeln!(
            code,
            "impl machine::Checked for {name} {{ fn begin(first: u16) -> Self {{ {name}::{make} }} }}"
        )?;
    }
    writeln!(code, "}}")
}

/// Leaves mutants out of clippy's build: nothing in them is linted, and they take ten times as long as the rest.
pub fn unless_linted(variant: &str) -> &'static str {
    if variant.ends_with("plain") { "" } else { "#[cfg(not(clippy))] " }
}

/// A variant's row in the table.
struct VariantRow<'a> {
    name: &'a str,
    rule: &'a str,
    harmless: Option<&'a str>,
}

fn row(
    table: &mut String,
    row: &VariantRow<'_>,
    engines: &[&str],
    locks: &[&str],
) -> std::fmt::Result {
    let VariantRow { name, rule, harmless } = row;
    writeln!(
        table,
        "{}Variant {{ name: {name:?}, rule: {rule:?}, harmless: {harmless:?}, executions: &[",
        unless_linted(name)
    )?;
    for engine in engines {
        let path = rewrite::module_name(engine, name);
        let engine = rewrite::capital(engine);
        for lock in locks {
            writeln!(
                table,
                "Execution {{ engine: Engine::{engine}, lock: {lock:?}, \
                 has_handoffs: {}, run: {path}::machine::run::<{path}::{lock}> }},",
                *lock == PV_TICKET
            )?;
        }
    }
    writeln!(table, "] }},")
}
