//! Mutants: past bugs and plausible ones, each a small change to the product's sources that the
//! checks must catch.

/// A broken variant.
pub struct Mutant {
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

pub const LOOM: &str = "loom";
pub const SHUTTLE: &str = "shuttle";

/// Mutants of the PV ticketlock with large tickets: of acquisition, wait and release.
pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "release without barrier",
        harmless: None,
        engine: SHUTTLE,
        rule: "row 1: one atomic add",
        edits: &[(
            "ticket",
            "Head(self.head.fetch_add(INC, Ordering::SeqCst))",
            "let head = self.head.load(Ordering::Relaxed);
             self.head.store(head.wrapping_add(INC), Ordering::Release);
             Head(head)",
        )],
    },
    Mutant {
        name: "release looks at the flag first",
        harmless: None,
        engine: SHUTTLE,
        rule: "row 1: flag and add are one step",
        edits: &[(
            "ticket",
            "Head(self.head.fetch_add(INC, Ordering::SeqCst))",
            "let head = self.head();
             self.head.fetch_add(INC, Ordering::SeqCst);
             head",
        )],
    },
    Mutant {
        name: "release orders nothing before it",
        harmless: None,
        engine: LOOM,
        rule: "row 1: the release is a full barrier",
        edits: &[(
            "ticket",
            "Head(self.head.fetch_add(INC, Ordering::SeqCst))",
            "Head(self.head.fetch_add(INC, Ordering::Relaxed))",
        )],
    },
    Mutant {
        name: "release does not acquire",
        harmless: None,
        engine: LOOM,
        rule: "row 1: the release is a full barrier",
        edits: &[(
            "ticket",
            "Head(self.head.fetch_add(INC, Ordering::SeqCst))",
            "Head(self.head.fetch_add(INC, Ordering::Release))",
        )],
    },
    Mutant {
        name: "flag read after the release",
        harmless: None,
        engine: SHUTTLE,
        rule: "row 8: freed memory is not touched",
        edits: &[(
            "ticket",
            "Head(self.head.fetch_add(INC, Ordering::SeqCst))",
            "self.head.fetch_add(INC, Ordering::SeqCst);
             Head(self.head.load(Ordering::SeqCst).wrapping_sub(INC))",
        )],
    },
    Mutant {
        name: "flag set after the last look",
        harmless: None,
        engine: SHUTTLE,
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
    },
    Mutant {
        name: "no last look",
        harmless: None,
        engine: SHUTTLE,
        rule: "row 10: flag, then head",
        edits: &[(
            "pv",
            "let mut halt = self.0.head().ticket() != ticket;",
            "let mut halt = true;",
        )],
    },
    Mutant {
        name: "flag set without an atomic operation",
        harmless: None,
        engine: SHUTTLE,
        rule: "row 10: the flag is a full barrier",
        edits: &[(
            "ticket",
            "Head(self.head.fetch_or(SLOWPATH, Ordering::SeqCst))",
            "let head = self.head.load(Ordering::Relaxed);
             self.head.store(head | SLOWPATH, Ordering::Relaxed);
             Head(head)",
        )],
    },
    Mutant {
        name: "flag set without a barrier",
        harmless: None,
        engine: LOOM,
        rule: "row 10: the flag is a full barrier",
        edits: &[(
            "ticket",
            "Head(self.head.fetch_or(SLOWPATH, Ordering::SeqCst))",
            "Head(self.head.fetch_or(SLOWPATH, Ordering::Relaxed))",
        )],
    },
    Mutant {
        name: "flag set before the record",
        harmless: None,
        engine: LOOM,
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
    },
    Mutant {
        name: "kick dropped",
        harmless: None,
        engine: SHUTTLE,
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
    },
    Mutant {
        name: "flag cleared by the releaser",
        harmless: None,
        engine: SHUTTLE,
        rule: "the next taker clears the flag",
        edits: &[(
            "ticket",
            "Head(self.head.fetch_add(INC, Ordering::SeqCst))",
            "let flag = self.head.fetch_and(!SLOWPATH, Ordering::SeqCst) & SLOWPATH;\n             Head(self.head.fetch_add(INC, Ordering::SeqCst) | flag)",
        )],
    },
    Mutant {
        name: "flag cleared without the second look",
        harmless: None,
        engine: SHUTTLE,
        rule: "clear, then look again",
        edits: &[(
            "ticket",
            "        if !is_alone() {\n            self.head.fetch_or(SLOWPATH, Ordering::SeqCst);\n        }\n",
            "",
        )],
    },
    Mutant {
        name: "flag cleared though others queue",
        harmless: None,
        engine: SHUTTLE,
        rule: "clear only if alone",
        edits: &[(
            "ticket",
            "self.tail.load(Ordering::SeqCst) == alone && !is_awaited()",
            "!is_awaited()",
        )],
    },
    Mutant {
        name: "flag cleared though others stand outside",
        harmless: None,
        engine: SHUTTLE,
        rule: "clear only if alone",
        edits: &[("ticket", " && !is_awaited()", "")],
    },
    Mutant {
        name: "ticket taken without an atomic operation",
        harmless: None,
        engine: SHUTTLE,
        rule: "one atomic add",
        edits: &[(
            "ticket",
            "self.tail.fetch_add(INC, Ordering::SeqCst)",
            "let tail = self.tail.load(Ordering::SeqCst); self.tail.store(tail.wrapping_add(INC), Ordering::SeqCst); tail",
        )],
    },
    Mutant {
        name: "flag taken for part of the ticket",
        harmless: None,
        engine: SHUTTLE,
        rule: "row 15: the flag is masked",
        edits: &[("ticket", "self.0 & !SLOWPATH", "self.0")],
    },
    Mutant {
        name: "next ticket does not wrap",
        harmless: None,
        engine: SHUTTLE,
        rule: "row 15: tickets wrap",
        edits: &[("pv", "let next = C::after(ticket);", "let next = ticket.saturating_add(2);")],
    },
    Mutant {
        name: "head taken without acquire",
        harmless: None,
        engine: LOOM,
        rule: "seeing the own ticket acquires",
        edits: &[(
            "ticket",
            "Head(self.head.load(Ordering::Acquire))",
            "Head(self.head.load(Ordering::Relaxed))",
        )],
    },
    Mutant {
        name: "a kick is taken for the lock",
        harmless: None,
        engine: SHUTTLE,
        rule: "row 9: waiters loop",
        edits: &[(
            "pv",
            "halts += u32::from(self.wait(cpu, ticket, waits));",
            "self.wait(cpu, ticket, waits); return;",
        )],
    },
    Mutant {
        name: "record published before its ticket",
        harmless: Some("the search continues after a match, so a wrong one only costs a kick"),
        engine: SHUTTLE,
        rule: "rows 2, 3: lock only while want is right",
        edits: &[(
            "wait",
            "        self.want.store(want, Ordering::Release);\n        self.lock.store(lock, Ordering::Release);",
            "        self.lock.store(lock, Ordering::Release);\n        self.want.store(want, Ordering::Release);",
        )],
    },
    Mutant {
        name: "record not withdrawn while it changes",
        harmless: Some("the search continues after a match, so a wrong one only costs a kick"),
        engine: SHUTTLE,
        rule: "rows 2, 3: lock only while want is right",
        edits: &[("wait", "        self.lock.store(0, Ordering::SeqCst);\n", "")],
    },
    Mutant {
        name: "record after its mask bit",
        harmless: None,
        engine: SHUTTLE,
        rule: "record, then mask, then flag",
        edits: &[(
            "wait",
            "        waiter.set(lock.0, want, arrival);\n        self.waiting[cpu / BITS].fetch_or(1 << (cpu % BITS), Ordering::SeqCst);",
            "        self.waiting[cpu / BITS].fetch_or(1 << (cpu % BITS), Ordering::SeqCst);\n        waiter.set(lock.0, want, arrival);",
        )],
    },
    Mutant {
        name: "search ends at the first match",
        harmless: None,
        engine: LOOM,
        rule: "rows 2, 3: a match may be accidental",
        edits: &[(
            "pv",
            "for waiter in cpu.waiters.find(lock, next) {",
            "for waiter in cpu.waiters.find(lock, next).take(1) {",
        )],
    },
    Mutant {
        name: "record not restored after a nested wait",
        harmless: None,
        engine: SHUTTLE,
        rule: "rows 2, 3",
        edits: &[(
            "wait",
            "            waiter.set(outer.lock, outer.want, 0);\n            return true;",
            "            waiter.lock.store(0, Ordering::SeqCst);\n            return true;",
        )],
    },
    Mutant {
        name: "no kick of the own CPU after a nested wait",
        harmless: None,
        engine: SHUTTLE,
        rule: "rows 2, 3",
        edits: &[("halt", "if P::ENABLED && self.were_nested {", "if false {")],
    },
    Mutant {
        name: "kick of the own CPU after every halt",
        harmless: None,
        engine: SHUTTLE,
        rule: "rows 2, 3: once, or the handler never halts",
        edits: &[(
            "pv",
            "waits.end(cpu.waiters.withdraw(cpu.id, outer), halt);\n        halt",
            "if cpu.waiters.withdraw(cpu.id, outer) { cpu.pv.unlock_kick(cpu.id); }\n        waits.end(false, halt);\n        halt",
        )],
    },
    Mutant {
        name: "plain halt with interrupts on",
        harmless: None,
        engine: SHUTTLE,
        rule: "row 4: an interrupt ends the halt",
        edits: &[(
            "machine",
            "        self.in_the_vmm(|| self.halt(self.program.irqs_on));",
            "        self.in_the_vmm(|| self.halt(false));",
        )],
    },
];
