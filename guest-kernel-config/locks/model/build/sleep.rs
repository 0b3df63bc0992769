//! The variants of mutexes, counters and lockrefs: for each the sources of one system and of the
//! spinlocks that it uses.

use std::{env, error::Error, fmt::Write as _, fs, path::Path};

use crate::choice::Choice;
use crate::sleep_mutants::{HOLES, MUTANTS};
use crate::{
    ENGINES, LOCKS, PV_TICKET, SourceFile, module,
    mutants::Mutant,
    mutate,
    rewrite::{self, Edit},
    unless_linted,
};

/// A system: its module, its submodules, and its checks in `src/sleep`.
struct SystemSources {
    name: &'static str,
    parts: &'static [&'static str],
    edits: &'static [Edit],
}

const SYSTEMS: [SystemSources; 3] = [
    SystemSources {
        name: "mutex",
        parts: &["baseline", "one_spinner", "queued", "read_first", "sleepers"],
        edits: rewrite::MUTEX_EDITS,
    },
    SystemSources {
        name: "counter",
        parts: &["gated", "locals", "locked", "sequence"],
        edits: rewrite::COUNTER_EDITS,
    },
    SystemSources { name: "lockref", parts: &["word"], edits: &[] },
];

/// Writes `sleep_variants.rs`: the modules, and a table of them.
pub fn generate(choice: &Choice) -> Result<(), Box<dyn Error>> {
    let mut code = String::new();
    let mut table = String::new();
    for system in &SYSTEMS {
        let sources = read(system)?;
        let plain = format!("{}: plain", system.name);
        for engine in ENGINES {
            variant(&mut code, engine, &plain, &sources, system)?;
            plain_row(&mut table, system.name, &plain, engine)?;
        }
        for hole in HOLES.iter().filter(|hole| is_of(hole.name, system)) {
            let named = (hole.name, hole.rule);
            row(
                &mut table,
                system.name,
                &plain,
                named,
                hole.engine,
                "Expectation::Caught",
                hole.checks,
            )?;
        }
        let of_system = MUTANTS.iter().filter(|mutant| is_of(mutant.name, system));
        for (place, mutant) in of_system.enumerate() {
            let changed = mutate(&sources, mutant)?;
            if choice.has(place, mutant.name) {
                variant(&mut code, mutant.engine, mutant.name, &changed, system)?;
                mutant_row(&mut table, system.name, mutant)?;
            }
        }
    }
    writeln!(code, "pub const VARIANTS: &[Variant] = &[{table}];")?;
    fs::write(Path::new(&env::var("OUT_DIR")?).join("sleep_variants.rs"), code)?;
    Ok(())
}

fn is_of(name: &str, system: &SystemSources) -> bool {
    name.split(':').next() == Some(system.name)
}

/// The row of `system` as it is.
pub fn plain_row(table: &mut String, system: &str, plain: &str, engine: &str) -> std::fmt::Result {
    row(table, system, plain, (plain, ""), engine, "Expectation::Sound", "CHECKS")
}

/// The row of a mutant of `system`.
pub fn mutant_row(table: &mut String, system: &str, mutant: &Mutant) -> std::fmt::Result {
    let verdict = match mutant.harmless {
        Some(why) => format!("Expectation::Harmless({why:?})"),
        None => "Expectation::Caught".to_owned(),
    };
    let named = (mutant.name, mutant.rule);
    row(table, system, mutant.name, named, mutant.engine, &verdict, "CHECKS")
}

/// Reads a system's sources. A mutant names the parts of its system by their path, `mutex/queued`.
fn read(system: &SystemSources) -> Result<Vec<SourceFile>, Box<dyn Error>> {
    let root = fs::read_to_string("../src/lib.rs")?;
    let file = |name: &str| (name.to_owned(), format!("../src/{name}.rs"));
    let checks = format!("{}_checks", system.name);
    let own = |name: &str| (name.to_owned(), format!("src/sleep/{name}.rs"));
    let sources: Result<Vec<_>, Box<dyn Error>> = rewrite::modules(&root)
        .chain(["lib", system.name])
        .map(file)
        .chain(system.parts.iter().map(|part| file(&format!("{}/{part}", system.name))))
        .chain([own("machine"), own(&checks)])
        .map(|(name, path)| {
            println!("cargo:rerun-if-changed={path}");
            let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
            Ok(SourceFile { name, text: text.replace("#[cfg(test)]\nmod tests;", "") })
        })
        .collect();
    let sources = sources?;
    rewrite::check(&sources, system.edits)?;
    Ok(sources)
}

/// As [`module`], including the parts of the system.
fn variant(
    code: &mut String,
    engine: &str,
    name: &str,
    sources: &[SourceFile],
    system: &SystemSources,
) -> std::fmt::Result {
    let prefix = format!("{}/", system.name);
    let mut parts = String::new();
    for part in sources {
        if let Some(name) = part.name.strip_prefix(&prefix) {
            let text =
                rewrite::edited(&part.name, rewrite::without_tests(&part.text), system.edits);
            writeln!(parts, "mod {name} {{\n{text}\n}}")?;
        }
    }
    let whole: Vec<_> = sources
        .iter()
        .filter(|source| !source.name.contains('/'))
        .map(|source| {
            let mut text = source.text.clone();
            if source.name == system.name {
                let own = rewrite::edited(system.name, rewrite::without_tests(&text), system.edits);
                text = rewrite::root(&own, |_| true) + &parts;
            }
            SourceFile { name: source.name.clone(), text }
        })
        .collect();
    // What sleeps takes a PV ticketlock for its own word.
    let locks: Vec<_> = LOCKS.iter().filter(|lock| lock.name == PV_TICKET).collect();
    module(code, engine, name, &whole, &locks, "sleep::")
}

/// The row of `variant` in the table, with its name and its rule.
fn row(
    table: &mut String,
    system: &str,
    variant: &str,
    (name, rule): (&str, &str),
    engine: &str,
    verdict: &str,
    checks: &str,
) -> std::fmt::Result {
    let path = rewrite::module_name(engine, variant);
    let (of, engine) = (format!("{system}_checks"), rewrite::capital(engine));
    writeln!(
        table,
        "{}Variant {{ name: {name:?}, rule: {rule:?}, engine: Engine::{engine}, \
         verdict: {verdict}, checks: {path}::{of}::{checks} }},",
        unless_linted(variant)
    )
}
