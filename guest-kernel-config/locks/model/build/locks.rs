//! The locks that are checked. One more is a line here, and its mutants.

/// A spinlock of the library.
pub struct Lock {
    /// Its type.
    pub name: &'static str,
    /// It has a `starting_at`, for the first ticket.
    pub has_tickets: bool,
}

const fn tickets(name: &'static str) -> Lock {
    Lock { name, has_tickets: true }
}

const fn word(name: &'static str) -> Lock {
    Lock { name, has_tickets: false }
}

/// The lock with the most checks: those of cheaper handoffs are its alone.
pub const PV_TICKET: &str = "PvTicketLock";

/// All of them.
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
