//! Locks that break what they promise, which the stepper must catch.

/// A broken variant.
pub struct Mutant {
    /// Its name, which is also that of a module.
    pub name: &'static str,
    /// The type of the lock that it breaks.
    pub lock: &'static str,
    /// What it is caught by.
    pub caught: &'static str,
    /// In which file which text (there must be exactly one) is replaced by what.
    pub edits: &'static [(&'static str, &'static str, &'static str)],
}

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "newcomers pass the queue",
        lock: "QueuedLock",
        caught: "Bypass",
        edits: &[("queued.rs", "self.queue.is_empty() && self.held.take()", "self.held.take()")],
    },
    Mutant {
        name: "no last look",
        lock: "PvTicketLock",
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
        caught: "Stuck",
        edits: &[("pv_queued.rs", "            self.held.await_own();\n", "")],
    },
    Mutant {
        name: "test then set",
        lock: "TestAndSetLock",
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
        caught: "Stuck",
        edits: &[(
            "ticket.rs",
            "self.head.store(head.wrapping_add(INC), Ordering::Release);",
            "self.head.store(head.wrapping_add(INC + INC), Ordering::Release);",
        )],
    },
];
