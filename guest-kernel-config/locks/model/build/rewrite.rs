//! From a source of the product to one that an engine can run.

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
        // Where locks begin just before their tickets wrap.
        .replace("#[cfg(test)]", "")
        // The engines' atomics register themselves when they are made.
        .replace("const fn ", "fn ");
    arrays_at_run_time(&text)
        .replace("const ROTATE: u32 = 4096;", "const ROTATE: u32 = 2;")
        .replace("const PATIENCE: u32 = 128;", "const PATIENCE: u32 = 1;")
        // Each is a few atomics more for every execution.
        .replace("const NESTINGS: usize = 4;", "const NESTINGS: usize = 2;")
        // A few CPUs never make a long queue: here every kick may be owed, whatever the queue.
        .replace("cpu.handoff.fuse && cpu.handoff.queue == 0 && queued > SHORT", "cpu.handoff.fuse")
        .replace("core::sync::atomic", "crate::sync")
        .replace("crate::", &format!("crate::{path}::"))
        .replace("in_the_model::", "crate::")
}

/// What mutexes, counters and lockrefs need beside [`for_engine`].
pub fn for_sleep(text: &str) -> String {
    text.replace("[const { Local::new() }; MAX_CPUS]", "core::array::from_fn(|_| Local::new())")
        // A total order that is leant on: loom has one for fences only.
        .replace(".load(Ordering::SeqCst)", ".load_in_total_order()")
        // A store among read-modify-writes: see loom's `store`.
        .replace("self.word.store(", "self.word.swap(")
}

/// The crate's root without what only a root may say, and without the module that the engine has.
pub fn root(text: &str) -> String {
    text.lines()
        .filter(|line| !line.starts_with("//!") && !line.starts_with("#!["))
        .filter(|line| {
            !(line.trim_start_matches("pub ").starts_with("mod ") && line.ends_with(';'))
        })
        .filter(|line| !line.starts_with("pub use systems::"))
        .map(|line| format!("{line}\n"))
        .collect()
}

/// Modules that are not checked: `sync` is the engine's, and the list of systems does nothing.
const LEFT_OUT: [&str; 2] = ["sync", "systems"];

/// The modules that a root has, but for those that are left out.
pub fn modules(root: &str) -> impl Iterator<Item = &str> {
    root.lines()
        .filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'))
        .filter(|name| !LEFT_OUT.contains(name))
}

/// `[const { VALUE }; COUNT]`, made when the array is.
fn arrays_at_run_time(text: &str) -> String {
    let (open, close) = ("[const { ", " }; ");
    let Some((before, rest)) = text.split_once(open) else { return text.to_owned() };
    let (value, rest) = rest.split_once(close).expect("an array of constants ends");
    let (_count, rest) = rest.split_once(']').expect("an array of constants ends");
    format!("{before}core::array::from_fn(|_| {value}){}", arrays_at_run_time(rest))
}

/// Tests are the last thing in every source.
pub fn without_tests(text: &str) -> &str {
    match text.find("#[cfg(test)]\nmod tests {") {
        Some(at) => &text[..at],
        None => text,
    }
}
