//! The locks that are checked. A new lock needs a line here, and mutants.

/// A spinlock of the library.
pub struct Lock {
    /// The name of its type.
    pub name: &'static str,
    /// It has a constructor `starting_at`, which sets the first ticket.
    pub has_tickets: bool,
}

const fn tickets(name: &'static str) -> Lock {
    Lock { name, has_tickets: true }
}

const fn word(name: &'static str) -> Lock {
    Lock { name, has_tickets: false }
}

/// The lock with the most checks: only it has cheaper handoffs.
pub const PV_TICKET: &str = "PvTicketLock";

pub const LOCKS: &[Lock] = &[
    tickets(PV_TICKET),
    tickets("NativeTicketLock"),
    tickets("SmallNativeTicketLock"),
    tickets("SmallPvTicketLock"),
    tickets("PreemptableTicketLock"),
    tickets("PvPreemptableTicketLock"),
    word("TestAndSetLock"),
    word("QueuedLock"),
    word("PvQueuedLock"),
];
