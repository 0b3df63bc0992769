//! Turns a source of the product into one that an engine can run.

/// The module of `variant` for `engine`.
pub fn module_name(engine: &str, variant: &str) -> String {
    format!("{engine}_{}", variant.replace(|c: char| !c.is_ascii_alphanumeric(), "_"))
}

/// The name of `engine` among the crate's engines.
pub fn capital(engine: &str) -> String {
    let (first, rest) = engine.split_at(1);
    first.to_uppercase() + rest
}

/// `text` as part of the module `path`, with that module's atomics.
pub fn for_engine(text: &str, path: &str) -> String {
    let text = without_tests(text)
        // For locks that begin just before their tickets wrap.
        .replace("#[cfg(test)]", "")
        // The VMM's sources name the contract's crate.
        .replace("hypercalls::latch", "crate::latch")
        // The engines' atomics register themselves at construction.
        .replace("const fn ", "fn ");
    arrays_at_run_time(&text)
        .replace("const ROTATE: u32 = 4096;", "const ROTATE: u32 = 2;")
        .replace("const PATIENCE: u32 = 128;", "const PATIENCE: u32 = 1;")
        .replace("const ROOM: u32 = 256;", "const ROOM: u32 = 2;")
        // Each node costs every execution a few more atomics.
        .replace("const NESTINGS: usize = 4;", "const NESTINGS: usize = 2;")
        // A few CPUs never make a long queue: here every kick may be owed, whatever the queue's
        // length.
        .replace("cpu.handoff.fuse && cpu.handoff.queue == 0 && queued > SHORT", "cpu.handoff.fuse")
        .replace("core::sync::atomic", "crate::sync")
        .replace("crate::", &format!("crate::{path}::"))
        .replace("in_the_model::", "crate::")
}

/// Further changes for mutexes, counters and lockrefs.
pub fn for_sleep(text: &str) -> String {
    text.replace("[const { Local::new() }; MAX_CPUS]", "core::array::from_fn(|_| Local::new())")
        // Loads that rely on a total order, which loom provides only for fences.
        .replace(".load(Ordering::SeqCst)", ".load_in_total_order()")
        // A store among read-modify-writes: see `store` in the loom engine.
        .replace("self.word.store(", "self.word.swap(")
}

/// The crate's root without crate attributes, without the module that the engine supplies, and without the names of
/// modules that `is_there` does not know.
pub fn root(text: &str, is_there: impl Fn(&str) -> bool) -> String {
    text.lines()
        .filter(|line| !line.starts_with("//!") && !line.starts_with("#!["))
        .filter(|line| {
            !(line.trim_start_matches("pub ").starts_with("mod ") && line.ends_with(';'))
        })
        .filter(|line| !line.starts_with("pub use systems::"))
        .filter(|line| {
            let used = line.strip_prefix("pub use ").and_then(|rest| rest.split("::").next());
            used.is_none_or(&is_there)
        })
        .map(|line| format!("{line}\n"))
        .collect()
}

/// Modules that are not checked: `sync` is the engine's, and the list of systems contains no code.
const LEFT_OUT: [&str; 2] = ["sync", "systems"];

/// The modules of a root, apart from [`LEFT_OUT`].
pub fn modules(root: &str) -> impl Iterator<Item = &str> {
    root.lines()
        .filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'))
        .filter(|name| !LEFT_OUT.contains(name))
}

/// Builds `[const { VALUE }; COUNT]` at run time.
fn arrays_at_run_time(text: &str) -> String {
    let (open, close) = ("[const { ", " }; ");
    let Some((before, rest)) = text.split_once(open) else { return text.to_owned() };
    let (value, rest) = rest.split_once(close).expect("an array of constants ends");
    let (_count, rest) = rest.split_once(']').expect("an array of constants ends");
    format!("{before}core::array::from_fn(|_| {value}){}", arrays_at_run_time(rest))
}

/// Cuts off the tests, which end every source.
pub fn without_tests(text: &str) -> &str {
    match text.find("#[cfg(test)]\nmod tests {") {
        Some(at) => &text[..at],
        None => text,
    }
}
