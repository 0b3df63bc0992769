//! The locks that are checked. A new lock needs a line here, and mutants.

/// The lock whose handoff options are checked, too.
pub const PV_TICKET: &str = "PvTicketLock";

/// A spinlock of the library.
pub struct Lock {
    /// The name of its type.
    pub name: &'static str,
    /// Whether a constructor `starting_at` sets the first ticket.
    pub has_tickets: bool,
    /// The modules that it needs in addition to the common modules.
    pub modules: &'static [&'static str],
}

const fn tickets(name: &'static str, modules: &'static [&'static str]) -> Lock {
    Lock { name, has_tickets: true, modules }
}

const fn word(name: &'static str, modules: &'static [&'static str]) -> Lock {
    Lock { name, has_tickets: false, modules }
}

pub const LOCKS: &[Lock] = &[
    tickets(PV_TICKET, &[]),
    tickets("NativeTicketLock", &["native"]),
    tickets("SmallNativeTicketLock", &["native"]),
    tickets("SmallPvTicketLock", &[]),
    tickets("PreemptableTicketLock", &["preemptable", "held"]),
    tickets("PvPreemptableTicketLock", &["preemptable", "held"]),
    word("TestAndSetLock", &["test_and_set", "held"]),
    word("QueuedLock", &["queued", "held"]),
    word("PvQueuedLock", &["pv_queued", "held"]),
    word("UnfairQueuedLock", &["unfair_queued", "held"]),
    word("McsLock", &["mcs", "handed", "handovers"]),
    word("McsTpLock", &["mcs_tp", "handed", "handovers"]),
    word("CnaLock", &["cna", "handed", "handovers"]),
    word("ShuffledLock", &["shuffled", "held"]),
    word("ClhLock", &["clh", "handovers"]),
    tickets("TwaLock", &["twa"]),
    tickets("RestrictedTicketLock", &["restricted", "native"]),
    word("ReciprocatingLock", &["reciprocating", "handovers"]),
    tickets("SliceAwareLock", &["slice_aware", "native"]),
    word("FlexGuardLock", &["flexguard", "held"]),
    word("OwnerConferLock", &["owner_confer", "owned"]),
    word("OwnerConferClassicLock", &["owner_confer", "owned"]),
    word("OwnerYieldLock", &["owner_yield", "owned"]),
];

/// Whether a variant with only these locks needs the module.
pub fn needs(locks: &[&Lock], module: &str) -> bool {
    let is_of = |lock: &Lock| lock.modules.contains(&module);
    locks.iter().any(|lock| is_of(lock)) || !LOCKS.iter().any(is_of)
}
