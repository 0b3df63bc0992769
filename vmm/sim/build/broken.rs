//! Locks that break their guarantees: what a case and a search have to find.

use super::WrongLock;

pub const BROKEN: &[WrongLock] = &[
    WrongLock {
        name: "newcomers pass the queue",
        lock: "QueuedLock",
        caught: "Bypass",
        edits: &[("queued.rs", "self.queue.is_empty() && self.held.take()", "self.held.take()")],
    },
    WrongLock {
        // `queue:N` as it once was: if the search finds a halted waiter, it is kicked, and no CPU
        // is let in.
        name: "outsiders wait for a release that finds no waiter",
        lock: "PvTicketLock",
        caught: "Bypass",
        edits: &[(
            "pv.rs",
            "&& let Some((waiter, sleeps)) = cpu.waiters.let_in(lock)",
            "&& !is_found && let Some((waiter, sleeps)) = cpu.waiters.let_in(lock)",
        )],
    },
    WrongLock {
        name: "the last to come is let in first",
        lock: "PvTicketLock",
        caught: "Bypass",
        edits: &[(
            "wait.rs",
            "filter_map(outside).max_by_key(age)",
            "filter_map(outside).min_by_key(age)",
        )],
    },
    WrongLock {
        name: "no last look",
        lock: "PvTicketLock",
        caught: "Stuck",
        edits: &[(
            "pv.rs",
            "let mut halt = self.0.head().ticket() != ticket;",
            "let mut halt = true;",
        )],
    },
    WrongLock {
        name: "a halt beside the flag",
        lock: "PvTicketLock",
        caught: "Stuck",
        edits: &[(
            "ticket.rs",
            "Head(self.head.fetch_or(SLOWPATH, Ordering::SeqCst))",
            "self.head()",
        )],
    },
    WrongLock {
        name: "the head is not kicked",
        lock: "PvQueuedLock",
        caught: "Stuck",
        edits: &[("pv_queued.rs", "            self.held.await_own();\n", "")],
    },
    WrongLock {
        name: "those outside wait until none is inside",
        lock: "NativeTicketLock",
        caught: "Bypass",
        edits: &[(
            "restricted.rs",
            "(is_last || releases.is_multiple_of(LET_IN_EVERY))",
            "is_last",
        )],
    },
    WrongLock {
        name: "test then set",
        lock: "TestAndSetLock",
        caught: "NotExclusive",
        edits: &[(
            "held.rs",
            "self.0.compare_exchange(seen, seen | HELD, Ordering::Acquire, Ordering::Relaxed);",
            "{ self.0.store(seen | HELD, Ordering::SeqCst); Ok::<u16, u16>(seen) };",
        )],
    },
    WrongLock {
        name: "waiters of two releases",
        lock: "NativeTicketLock",
        caught: "Stuck",
        edits: &[(
            "ticket.rs",
            "self.head.store(head.wrapping_add(INC), Ordering::Release);",
            "self.head.store(head.wrapping_add(INC + INC), Ordering::Release);",
        )],
    },
    WrongLock {
        // A mutant of the model checkers, too.
        name: "commit looks, then marks",
        lock: "PvTicketLock",
        caught: "Stuck",
        edits: &[(
            "wait.rs",
            "state.compare_exchange(armed, armed | COMMITTED, Ordering::SeqCst, Ordering::SeqCst).is_ok()",
            "state.load(Ordering::SeqCst) == armed && { state.store(armed | COMMITTED, Ordering::SeqCst); true }",
        )],
    },
];
