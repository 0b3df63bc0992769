//! Generates the variants: the sources of the locks, the latch, the VMM's halts, the mutexes, the counters
//! and the lockrefs, with the engine's atomics and the edits that `rewrite.rs` lists, for each engine; and
//! again with the edits of each mutant that is built.
//!
//! The checked code is generated from the product's own sources, not from a copy that could become outdated.

#[path = "build/choice.rs"]
mod choice;
#[path = "build/edit.rs"]
mod edit;
#[path = "build/locks.rs"]
mod locks;
#[path = "build/mutants.rs"]
mod mutants;
#[path = "build/rewrite.rs"]
mod rewrite;
#[path = "build/systems.rs"]
mod systems;

use std::{env, error::Error, fmt::Write as _, fs, path::Path};

use choice::Choice;
use locks::{LOCKS, Lock, PV_TICKET, needs};
use mutants::Mutant;
use systems::{SPINLOCK, System};

const ENGINES: [&str; 2] = ["loom", "shuttle"];

/// Checks that are known to fail for a counter, each with the engine that finds the failure.
const HOLES: [(&str, &str); 2] = [
    ("counter: the hole of the sequence", "loom"),
    ("counter: the hole of the sequence, by chance", "shuttle"),
];

/// A source file: the name that mutants use, and its text.
#[derive(Clone)]
struct SourceFile {
    name: String,
    text: String,
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=build");
    println!("cargo:rerun-if-changed=mutants");
    check_all_listed()?;
    let (choice, systems) = (Choice::new()?, systems::read_all()?);
    rewrite::check(systems.iter().flat_map(|system| &system.sources))?;
    let mut variants = Variants::default();
    for system in &systems {
        variants.add_plain(system)?;
        variants.add_mutants(system, &choice)?;
    }
    let Variants { mut code, table } = variants;
    writeln!(code, "pub const VARIANTS: &[Variant] = &[{table}];")?;
    fs::write(Path::new(&env::var("OUT_DIR")?).join("variants.rs"), code)?;
    Ok(())
}

/// Fails if a spinlock of the library's list is not in [`LOCKS`].
fn check_all_listed() -> Result<(), Box<dyn Error>> {
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

/// The sources with one mutant's edits.
fn mutate(sources: &[SourceFile], mutant: &Mutant) -> Result<Vec<SourceFile>, Box<dyn Error>> {
    let mut changed = sources.to_vec();
    for edit in &mutant.edits {
        let source = changed.iter_mut().find(|source| source.name == edit.file);
        let source = source.ok_or_else(|| format!("{}: no source {}", mutant.name, edit.file))?;
        source.text = edit.apply(&mutant.name, &source.text)?;
    }
    Ok(changed)
}

/// The generated code.
#[derive(Default)]
struct Variants {
    /// A module for each variant and engine.
    code: String,
    /// The rows of the table of variants.
    table: String,
}

impl Variants {
    /// Adds a system as it is, with the checks that it is known to fail.
    fn add_plain(&mut self, system: &System) -> std::fmt::Result {
        let plain = format!("{}: plain", system.name);
        let subjects: Vec<_> = match system.name {
            SPINLOCK => LOCKS.iter().map(|lock| lock.name).collect(),
            name => vec![name],
        };
        let mut executions = String::new();
        for engine in ENGINES {
            self.module(engine, &plain, &system.sources, &subjects)?;
            for subject in &subjects {
                executions += &execution(engine, &plain, subject, "CHECKS");
            }
        }
        self.row(&plain, "the product as it is", "Sound", &executions)?;
        for (name, engine) in HOLES.iter().filter(|_| system.name == "counter") {
            let rule = "the hole from the patch's review: a fold counts twice";
            self.row(name, rule, "Caught", &execution(engine, &plain, system.name, "HOLE"))?;
        }
        Ok(())
    }

    fn add_mutants(&mut self, system: &System, choice: &Choice) -> Result<(), Box<dyn Error>> {
        for (place, mutant) in system.mutants.iter().enumerate() {
            // Also for a mutant that is not built: its text must still be in the source.
            let changed = mutate(&system.sources, mutant)?;
            let Mutant { of, name, rule, harmless, engine, .. } = mutant;
            if choice.has(place, name) {
                let expected = harmless.as_ref().map(|why| format!("Harmless({why:?})"));
                let expected = expected.as_deref().unwrap_or("Caught");
                self.module(engine, name, &changed, &[of])?;
                self.row(name, rule, expected, &execution(engine, name, of, "CHECKS"))?;
            }
        }
        Ok(())
    }

    /// Writes the module of one variant for one engine. It contains only the submodules that its locks need,
    /// because every variant compiles its own.
    fn module(
        &mut self,
        engine: &str,
        variant: &str,
        sources: &[SourceFile],
        subjects: &[&str],
    ) -> std::fmt::Result {
        let (code, path) = (&mut self.code, rewrite::module_name(engine, variant));
        let checked: Vec<_> = subjects.iter().filter_map(|subject| lock(subject)).collect();
        // Systems that sleep use a PV ticketlock for their own word.
        let locks = if checked.is_empty() { vec![&LOCKS[0]] } else { checked.clone() };
        writeln!(code, "{}#[allow(warnings, clippy::all)]\nmod {path} {{", unless_linted(variant))?;
        writeln!(code, "mod engine {{ pub(crate) use crate::engine::{engine}::*; }}")?;
        writeln!(code, "mod sync {{ pub use crate::engine::{engine}::atomics::*; }}")?;
        for source in sources.iter().filter(|source| needs(&locks, &source.name)) {
            let name = &source.name;
            if name.contains('/') {
                continue;
            }
            let text = rewrite::for_engine(&rewrite::with_parts(source, sources), &path);
            match name.as_str() {
                "lib" => writeln!(code, "{}", rewrite::root(&text, |name| needs(&locks, name)))?,
                _ => writeln!(code, "pub mod {name} {{\n{text}\n}}")?,
            }
        }
        for Lock { name, has_tickets, .. } in checked {
            let make = if *has_tickets { "starting_at(first)" } else { "new()" };
            writeln!(
                code,
                "impl machine::Checked for {name} {{ fn starting_at(first: u16) -> Self {{ {name}::{make} }} }}"
            )?;
        }
        writeln!(code, "}}")
    }

    fn row(
        &mut self,
        name: &str,
        rule: &str,
        expected: &str,
        executions: &str,
    ) -> std::fmt::Result {
        writeln!(
            self.table,
            "{}Variant {{ name: {name:?}, rule: {rule:?}, expectation: Expectation::{expected}, \
             executions: &[{executions}] }},",
            unless_linted(name)
        )
    }
}

fn lock(name: &str) -> Option<&'static Lock> {
    LOCKS.iter().find(|lock| lock.name == name)
}

/// Excludes mutants from clippy's build: they are not linted, and take ten times as long as the rest.
fn unless_linted(variant: &str) -> &'static str {
    if variant.ends_with("plain") { "" } else { "#[cfg(not(clippy))] " }
}

/// The run of a lock's scenarios, or of the programs `checks` of another system.
fn execution(engine: &str, variant: &str, subject: &str, checks: &str) -> String {
    let path = rewrite::module_name(engine, variant);
    let checks = match lock(subject) {
        Some(_) => format!(
            "Scenarios {{ run: {path}::machine::run::<{path}::{subject}>, has_handoffs: {} }}",
            subject == PV_TICKET
        ),
        None => format!("Programs({path}::{subject}_checks::{checks})"),
    };
    let engine = rewrite::capitalize(engine);
    format!(
        "Execution {{ engine: Engine::{engine}, subject: {subject:?}, checks: Checks::{checks} }},"
    )
}
