//! From a source of the product to one that an engine can run.

/// A lock that begins just before its tickets wrap, which the product has for its tests only.
pub const STARTING_AT: &str = "impl PvTicketLock { pub fn starting_at(ticket: u16) -> Self { \
                               Self(TicketWord::starting_at(ticket)) } }";

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
    without_tests(text)
        // The engines' atomics register themselves when they are made.
        .replace("const fn ", "fn ")
        .replace(
            "[const { AtomicU64::new(0) }; WORDS]",
            "core::array::from_fn(|_| AtomicU64::new(0))",
        )
        .replace("[const { Waiter::new() }; MAX_CPUS]", "core::array::from_fn(|_| Waiter::new())")
        .replace("const ROTATE: u32 = 4096;", "const ROTATE: u32 = 2;")
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
        .map(|line| format!("{line}\n"))
        .collect()
}

/// The ticket word with the constructor that its tests use.
pub fn any_first_ticket(text: &str) -> String {
    text.replace("#[cfg(test)]\n    pub(crate) fn starting_at", "pub(crate) fn starting_at")
}

/// Tests are the last thing in every source.
pub fn without_tests(text: &str) -> &str {
    match text.find("#[cfg(test)]\nmod tests {") {
        Some(at) => &text[..at],
        None => text,
    }
}
