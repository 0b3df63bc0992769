//! Locks that break their guarantees, which the stepper must catch.

/// A broken variant.
pub struct Mutant {
    /// Name of the mutant and of its module.
    pub name: &'static str,
    /// The type of the lock that it breaks.
    pub lock: &'static str,
    /// Part of the names of the cases that are run.
    pub word: &'static str,
    /// The kind of failure that must catch it.
    pub caught: &'static str,
    /// Edits: the file, a text that occurs there exactly once, and its replacement.
    pub edits: &'static [(&'static str, &'static str, &'static str)],
}

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "newcomers pass the queue",
        lock: "QueuedLock",
        word: "",
        caught: "Bypass",
        edits: &[("queued.rs", "self.queue.is_empty() && self.held.take()", "self.held.take()")],
    },
    Mutant {
        // `queue:N` as it once was: if the search finds a halted waiter, it is kicked, and no CPU
        // is let in.
        name: "outsiders wait for a release that finds no waiter",
        lock: "PvTicketLock",
        word: "queue:",
        caught: "Bypass",
        edits: &[(
            "pv.rs",
            "&& let Some((waiter, sleeps)) = cpu.waiters.let_in(lock)",
            "&& !is_found && let Some((waiter, sleeps)) = cpu.waiters.let_in(lock)",
        )],
    },
    Mutant {
        name: "the last to come is let in first",
        lock: "PvTicketLock",
        word: "queue:",
        caught: "Bypass",
        edits: &[(
            "wait.rs",
            "filter_map(outside).max_by_key(age)",
            "filter_map(outside).min_by_key(age)",
        )],
    },
    Mutant {
        name: "no last look",
        lock: "PvTicketLock",
        word: "",
        caught: "Stuck",
        edits: &[(
            "pv.rs",
            "let mut halt = self.0.head().ticket() != ticket;",
            "let mut halt = true;",
        )],
    },
    Mutant {
        name: "a halt beside the flag",
        lock: "PvTicketLock",
        word: "",
        caught: "Stuck",
        edits: &[(
            "ticket.rs",
            "Head(self.head.fetch_or(SLOWPATH, Ordering::SeqCst))",
            "self.head()",
        )],
    },
    Mutant {
        name: "the head is not kicked",
        lock: "PvQueuedLock",
        word: "",
        caught: "Stuck",
        edits: &[("pv_queued.rs", "            self.held.await_own();\n", "")],
    },
    Mutant {
        name: "test then set",
        lock: "TestAndSetLock",
        word: "",
        caught: "NotExclusive",
        edits: &[(
            "held.rs",
            "self.0.compare_exchange(seen, seen | HELD, Ordering::Acquire, Ordering::Relaxed);",
            "{ self.0.store(seen | HELD, Ordering::SeqCst); Ok::<u16, u16>(seen) };",
        )],
    },
    Mutant {
        name: "waiters of two releases",
        lock: "NativeTicketLock",
        word: "",
        caught: "Stuck",
        edits: &[(
            "ticket.rs",
            "self.head.store(head.wrapping_add(INC), Ordering::Release);",
            "self.head.store(head.wrapping_add(INC + INC), Ordering::Release);",
        )],
    },
];
