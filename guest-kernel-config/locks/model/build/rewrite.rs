//! Transforms a source of the product so that an engine can run it.

use std::error::Error;

use crate::SourceFile;

/// A replacement in the model: (source, text in the product, text in the model).
type Edit = (&'static str, &'static str, &'static str);

/// All edits except those made to every source.
const EDITS: &[Edit] = &[
    // Paths that a few CPUs with a few acquisitions each would not reach.
    ("handoff", "const KICKS: u32 = 31;", "const KICKS: u32 = 2;"),
    ("preemptable", "const SPINS_PER_PLACE: u32 = 512;", "const SPINS_PER_PLACE: u32 = 1;"),
    ("handoff", "const LET_IN_EVERY: u16 = LET_IN;", "const LET_IN_EVERY: u16 = 2;"),
    ("unfair_queued", "const TRY_EVERY: u32 = 8;", "const TRY_EVERY: u32 = 1;"),
    ("pv_queued", "const CHECK_EVERY: u32 = 256;", "const CHECK_EVERY: u32 = 1;"),
    ("owner_confer", "const CONFER_EVERY: u32 = 1000;", "const CONFER_EVERY: u32 = 1;"),
    ("owner_yield", "const STEAL_SPINS: u32 = 32;", "const STEAL_SPINS: u32 = 1;"),
    ("owner_yield", "const REMOTE_STEAL_SPINS: u32 = 4;", "const REMOTE_STEAL_SPINS: u32 = 1;"),
    ("owner_yield", "const HEAD_SPINS: u32 = 256;", "const HEAD_SPINS: u32 = 1;"),
    ("owner_yield", "const SLEEPY_FACTOR: u32 = 256;", "const SLEEPY_FACTOR: u32 = 2;"),
    ("mcs_tp", "const STAMP_EVERY: u32 = 64;", "const STAMP_EVERY: u32 = 1;"),
    ("cna", "const MAX_LOCAL: u16 = 0xffff;", "const MAX_LOCAL: u16 = 1;"),
    ("shuffled", "const BATCH: u16 = 1024;", "const BATCH: u16 = 2;"),
    // With four CPUs, a queue is long enough to be shuffled only once the lock is free.
    ("shuffled", "shuffle(nodes, me, || !self.held.is_held());", "shuffle(nodes, me, || false);"),
    ("adaptive", "const LATE_TICKS: u64 = 25_000;", "const LATE_TICKS: u64 = 1;"),
    // The machine's clock ticks each time that it is read.
    ("mcs_tp", "const STALE_TICKS: u64 = 25_000;", "const STALE_TICKS: u64 = 1;"),
    ("mcs_tp", "const PATIENCE_TICKS: u64 = 125_000;", "const PATIENCE_TICKS: u64 = 1;"),
    ("mcs_tp", "const LONG_HOLD_TICKS: u64 = 25_000;", "const LONG_HOLD_TICKS: u64 = 1;"),
    // Each node costs every execution a few more atomics.
    ("node", "const NESTINGS: usize = 4;", "const NESTINGS: usize = 2;"),
    (
        "waiting_array",
        "const SLOTS: usize = (8 * MAX_CPUS).next_power_of_two();",
        "const SLOTS: usize = 2;",
    ),
    // A few CPUs never make a long queue: here every kick may be owed, regardless of the queue's length.
    ("pv", "cpu.handoff.queue == 0 && queued > SHORT_QUEUE", "true"),
    ("delayed", "const CAPACITY: u32 = 256;", "const CAPACITY: u32 = 2;"),
    // Stores among read-modify-writes, see `store` in the loom engine.
    ("mutex", "self.word.store(", "self.word.swap("),
    ("owned", "self.0.store(next, Ordering::Release)", "self.0.swap(next, Ordering::Release)"),
    // Loads that rely on a total order, which loom provides only for fences.
    ("counter/gated", "self.sums.load(Ordering::SeqCst)", "self.sums.load_in_total_order()"),
    ("counter/gated", "self.folds.load(Ordering::SeqCst)", "self.folds.load_in_total_order()"),
];

/// Checks that the text of each edit occurs in the product's part of its source.
///
/// # Errors
///
/// If it does not: the source has changed, and no checked execution would contain the edit.
pub fn check<'a>(
    sources: impl Iterator<Item = &'a SourceFile> + Clone,
) -> Result<(), Box<dyn Error>> {
    for (name, from, _) in EDITS {
        let source = sources.clone().find(|source| source.name == *name);
        let source = source.ok_or_else(|| format!("an edit of {name}.rs, which is no source"))?;
        if !without_tests(&source.text).contains(from) {
            return Err(format!("an edit's text is not in {name}.rs: {from}").into());
        }
    }
    Ok(())
}

/// The product's part of the source `name`, edited. A mutant may have changed the text of an edit.
fn edited(name: &str, text: &str) -> String {
    let edits = EDITS.iter().filter(|(source, ..)| *source == name);
    let text =
        edits.fold(without_tests(text).to_owned(), |text, (_, from, to)| text.replace(from, to));
    // The engines' atomics register themselves at construction. Checks have none in constants.
    if name.ends_with("_checks") { text } else { text.replace("const fn ", "fn ") }
}

/// The edited text of `source` and its submodules among `sources`.
pub fn with_parts(source: &SourceFile, sources: &[SourceFile]) -> String {
    let folder = format!("{}/", source.name);
    let parts: String = sources
        .iter()
        .filter_map(|part| Some((part.name.strip_prefix(&folder)?, edited(&part.name, &part.text))))
        .map(|(name, text)| format!("mod {name} {{\n{text}\n}}\n"))
        .collect();
    let text = edited(&source.name, &source.text);
    if parts.is_empty() { text } else { root(&text, |_| true) + &parts }
}

/// The module of `variant` for `engine`.
pub fn module_name(engine: &str, variant: &str) -> String {
    format!("{engine}_{}", variant.replace(|c: char| !c.is_ascii_alphanumeric(), "_"))
}

/// The name of `engine` in the crate's enum of engines.
pub fn capitalize(engine: &str) -> String {
    let (first, tail) = engine.split_at(1);
    first.to_uppercase() + tail
}

/// `text`, edited, as part of the module `path`, with that module's atomics.
pub fn for_engine(text: &str, path: &str) -> String {
    let text = text
        // For `starting_at`: locks that begin just before the wrap.
        .replace("#[cfg(test)]", "")
        // The VMM's sources refer to the `hypercalls` crate.
        .replace("hypercalls::latch", "crate::latch");
    arrays_at_run_time(&text)
        .replace("core::sync::atomic", "crate::sync")
        .replace("crate::", &format!("crate::{path}::"))
        .replace("in_the_model::", "crate::")
}

/// The crate's root without crate attributes, module declarations, and re-exports from `systems` and from
/// modules that `is_included` rejects.
pub fn root(text: &str, is_included: impl Fn(&str) -> bool) -> String {
    text.lines()
        .filter(|line| !line.starts_with("//!") && !line.starts_with("#!["))
        .filter(|line| {
            !(line.trim_start_matches("pub ").starts_with("mod ") && line.ends_with(';'))
        })
        .filter(|line| !line.starts_with("pub use systems::"))
        .filter(|line| {
            let used = line.strip_prefix("pub use ").and_then(|tail| tail.split("::").next());
            used.is_none_or(&is_included)
        })
        .map(|line| format!("{line}\n"))
        .collect()
}

/// Modules that are not checked: the engine supplies `sync`, the list of systems has no code, and the
/// last is for unit tests.
const EXCLUDED: [&str; 3] = ["sync", "systems", "test_stage"];

/// The modules of a root, apart from [`EXCLUDED`].
pub fn modules(root: &str) -> impl Iterator<Item = &str> {
    root.lines()
        .filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'))
        .filter(|name| !EXCLUDED.contains(name))
}

/// Makes `[const { VALUE }; COUNT]` an array that is built at run time.
fn arrays_at_run_time(text: &str) -> String {
    let (open, close) = ("[const { ", " }; ");
    let Some((before, tail)) = text.split_once(open) else { return text.to_owned() };
    let (value, tail) = tail.split_once(close).expect("an array of constants ends");
    let (_count, tail) = tail.split_once(']').expect("an array of constants ends");
    format!("{before}core::array::from_fn(|_| {value}){}", arrays_at_run_time(tail))
}

/// Cuts off the tests, which end every source.
fn without_tests(text: &str) -> &str {
    match text.find("#[cfg(test)]\nmod tests {") {
        Some(at) => &text[..at],
        None => text,
    }
}
