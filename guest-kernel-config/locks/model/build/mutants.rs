//! Mutants: past bugs and plausible ones, each a small change to the product's sources that the
//! checks must catch.

/// The lock with the most checks: only it has cheaper handoffs.
pub const PV_TICKET: &str = "PvTicketLock";

/// A broken variant.
pub struct Mutant {
    /// The lock that it breaks, or the system.
    pub of: &'static str,
    /// Its name.
    pub name: &'static str,
    /// The rule that it breaks.
    pub rule: &'static str,
    /// Why it must pass although it is changed: it breaks nothing that counts.
    pub harmless: Option<&'static str>,
    /// The engine that runs it: loom if a load must see an old value, which shuttle cannot do.
    pub engine: &'static str,
    /// Edits: the file (of `locks`, or `latch`, or `machine`), a text that occurs there exactly
    /// once, and its replacement.
    pub edits: &'static [(&'static str, &'static str, &'static str)],
}

/// A mutant of a lock or system that shuttle catches.
pub const fn shuttle(of: &'static str) -> Mutant {
    Mutant { of, name: "", rule: "", harmless: None, engine: "shuttle", edits: &[] }
}

/// A mutant of a lock or system that loom catches.
pub const fn loom(of: &'static str) -> Mutant {
    Mutant { engine: "loom", ..shuttle(of) }
}

/// Mutants of the PV ticketlock with large tickets: of acquisition, wait and release.
pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "release without barrier",
        rule: "row 1: one atomic add",
        edits: &[(
            "ticket",
            "Head(self.head.fetch_add(INC, Ordering::SeqCst))",
            "let head = self.head.load(Ordering::Relaxed);
             self.head.store(head.wrapping_add(INC), Ordering::Release);
             Head(head)",
        )],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "release looks at the flag first",
        rule: "row 1: flag and add are one step",
        edits: &[(
            "ticket",
            "Head(self.head.fetch_add(INC, Ordering::SeqCst))",
            "let head = self.head();
             self.head.fetch_add(INC, Ordering::SeqCst);
             head",
        )],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "release orders nothing before it",
        rule: "row 1: the release is a full barrier",
        edits: &[(
            "ticket",
            "Head(self.head.fetch_add(INC, Ordering::SeqCst))",
            "Head(self.head.fetch_add(INC, Ordering::Relaxed))",
        )],
        ..loom(PV_TICKET)
    },
    Mutant {
        name: "release does not acquire",
        rule: "row 1: the release is a full barrier",
        edits: &[(
            "ticket",
            "Head(self.head.fetch_add(INC, Ordering::SeqCst))",
            "Head(self.head.fetch_add(INC, Ordering::Release))",
        )],
        ..loom(PV_TICKET)
    },
    Mutant {
        name: "flag read after the release",
        rule: "row 8: freed memory is not touched",
        edits: &[(
            "ticket",
            "Head(self.head.fetch_add(INC, Ordering::SeqCst))",
            "self.head.fetch_add(INC, Ordering::SeqCst);
             Head(self.head.load(Ordering::SeqCst).wrapping_sub(INC))",
        )],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "flag set after the last look",
        rule: "row 10: flag, then head",
        edits: &[
            (
                "pv",
                "        self.0.set_flag();\n        // The last look",
                "        // The last look",
            ),
            (
                "pv",
                "let mut halt = self.0.head().ticket() != ticket;",
                "let mut halt = self.0.head().ticket() != ticket; self.0.set_flag();",
            ),
        ],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "no last look",
        rule: "row 10: flag, then head",
        edits: &[(
            "pv",
            "let mut halt = self.0.head().ticket() != ticket;",
            "let mut halt = true;",
        )],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "flag set without an atomic operation",
        rule: "row 10: the flag is a full barrier",
        edits: &[(
            "ticket",
            "Head(self.head.fetch_or(SLOWPATH, Ordering::SeqCst))",
            "let head = self.head.load(Ordering::Relaxed);
             self.head.store(head | SLOWPATH, Ordering::Relaxed);
             Head(head)",
        )],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "flag set without a barrier",
        rule: "row 10: the flag is a full barrier",
        edits: &[(
            "ticket",
            "Head(self.head.fetch_or(SLOWPATH, Ordering::SeqCst))",
            "Head(self.head.fetch_or(SLOWPATH, Ordering::Relaxed))",
        )],
        ..loom(PV_TICKET)
    },
    Mutant {
        name: "flag set before the record",
        rule: "row 10: record, then flag",
        edits: &[(
            "pv",
            "let outer = cpu.waiters.publish(cpu.id, self.key(), ticket);
        cpu.watch.reached(Place::BeforeFlag);
        self.0.set_flag();",
            "self.0.set_flag();
        let outer = cpu.waiters.publish(cpu.id, self.key(), ticket);
        cpu.watch.reached(Place::BeforeFlag);",
        )],
        ..loom(PV_TICKET)
    },
    Mutant {
        name: "kick dropped",
        rule: "a release that saw the flag kicks",
        edits: &[(
            "pv",
            "    } else {
        cpu.pv.unlock_kick(waiter);
    }
    1",
            "    }
    1",
        )],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "flag cleared by the releaser",
        rule: "the next taker clears the flag",
        edits: &[(
            "ticket",
            "Head(self.head.fetch_add(INC, Ordering::SeqCst))",
            "let flag = self.head.fetch_and(!SLOWPATH, Ordering::SeqCst) & SLOWPATH;\n             Head(self.head.fetch_add(INC, Ordering::SeqCst) | flag)",
        )],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "flag cleared without the second look",
        rule: "clear, then look again",
        edits: &[(
            "ticket",
            "        if !is_alone() {\n            self.head.fetch_or(SLOWPATH, Ordering::SeqCst);\n        }\n",
            "",
        )],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "flag cleared though others queue",
        rule: "clear only if alone",
        edits: &[(
            "ticket",
            "self.tail.load(Ordering::SeqCst) == alone && !is_awaited()",
            "!is_awaited()",
        )],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "flag cleared though others stand outside",
        rule: "clear only if alone",
        edits: &[("ticket", " && !is_awaited()", "")],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "ticket taken without an atomic operation",
        rule: "one atomic add",
        edits: &[(
            "ticket",
            "self.tail.fetch_add(INC, Ordering::SeqCst)",
            "let tail = self.tail.load(Ordering::SeqCst); self.tail.store(tail.wrapping_add(INC), Ordering::SeqCst); tail",
        )],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "flag taken for part of the ticket",
        rule: "row 15: the flag is masked",
        edits: &[("ticket", "self.0 & !SLOWPATH", "self.0")],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "next ticket does not wrap",
        rule: "row 15: tickets wrap",
        edits: &[("pv", "let next = C::after(ticket);", "let next = ticket.saturating_add(2);")],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "head taken without acquire",
        rule: "seeing the own ticket acquires",
        edits: &[(
            "ticket",
            "Head(self.head.load(Ordering::Acquire))",
            "Head(self.head.load(Ordering::Relaxed))",
        )],
        ..loom(PV_TICKET)
    },
    Mutant {
        name: "a kick is taken for the lock",
        rule: "row 9: waiters loop",
        edits: &[(
            "pv",
            "halts += u32::from(self.wait(cpu, ticket, waits));",
            "self.wait(cpu, ticket, waits); return;",
        )],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "record published before its ticket",
        harmless: Some("the search continues after a match, so a wrong one only costs a kick"),
        rule: "rows 2, 3: lock only while want is right",
        edits: &[(
            "wait",
            "        self.want.store(want, Ordering::Release);\n        self.lock.store(lock, Ordering::Release);",
            "        self.lock.store(lock, Ordering::Release);\n        self.want.store(want, Ordering::Release);",
        )],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "record not withdrawn while it changes",
        harmless: Some("the search continues after a match, so a wrong one only costs a kick"),
        rule: "rows 2, 3: lock only while want is right",
        edits: &[("wait", "        self.lock.store(0, Ordering::SeqCst);\n", "")],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "record after its mask bit",
        rule: "record, then mask, then flag",
        edits: &[(
            "wait",
            "        waiter.set(lock.0, want, arrival);\n        self.waiting[cpu / BITS].fetch_or(1 << (cpu % BITS), Ordering::SeqCst);",
            "        self.waiting[cpu / BITS].fetch_or(1 << (cpu % BITS), Ordering::SeqCst);\n        waiter.set(lock.0, want, arrival);",
        )],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "search ends at the first match",
        rule: "rows 2, 3: a match may be accidental",
        edits: &[(
            "pv",
            "for waiter in cpu.waiters.find(lock, next) {",
            "for waiter in cpu.waiters.find(lock, next).take(1) {",
        )],
        ..loom(PV_TICKET)
    },
    Mutant {
        name: "record not restored after a nested wait",
        rule: "rows 2, 3",
        edits: &[(
            "wait",
            "            waiter.set(outer.lock, outer.want, 0);\n            return true;",
            "            waiter.lock.store(0, Ordering::SeqCst);\n            return true;",
        )],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "no kick of the own CPU after a nested wait",
        rule: "rows 2, 3",
        edits: &[("halt", "if P::ENABLED && self.were_nested {", "if false {")],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "kick of the own CPU after every halt",
        rule: "rows 2, 3: once, or the handler never halts",
        edits: &[(
            "pv",
            "waits.end(cpu.waiters.withdraw(cpu.id, outer), halt);\n        halt",
            "if cpu.waiters.withdraw(cpu.id, outer) { cpu.pv.unlock_kick(cpu.id); }\n        waits.end(false, halt);\n        halt",
        )],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "plain halt with interrupts on",
        rule: "row 4: an interrupt ends the halt",
        edits: &[(
            "machine",
            "        self.in_the_vmm(|| self.halt(self.program.irqs_on));",
            "        self.in_the_vmm(|| self.halt(false));",
        )],
        ..shuttle(PV_TICKET)
    },
];
