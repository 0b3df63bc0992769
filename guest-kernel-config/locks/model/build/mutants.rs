//! What history got wrong, and what one could: each a small change to the product's sources that
//! the checks must catch.

/// A broken variant.
pub struct Mutant {
    /// Its name.
    pub name: &'static str,
    /// What it breaks.
    pub rule: &'static str,
    /// In which file (of `locks`, or `latch`, or `machine`), which text (there must be exactly one),
    /// and what comes in its place.
    pub edits: &'static [(&'static str, &'static str, &'static str)],
}

/// All of them.
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
    },
    Mutant {
        name: "release orders nothing before it",
        rule: "row 1: the release is a full barrier",
        edits: &[(
            "ticket",
            "Head(self.head.fetch_add(INC, Ordering::SeqCst))",
            "Head(self.head.fetch_add(INC, Ordering::Relaxed))",
        )],
    },
    Mutant {
        name: "release does not acquire",
        rule: "row 1: the release is a full barrier",
        edits: &[(
            "ticket",
            "Head(self.head.fetch_add(INC, Ordering::SeqCst))",
            "Head(self.head.fetch_add(INC, Ordering::Release))",
        )],
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
    },
    Mutant {
        name: "no last look",
        rule: "row 10: flag, then head",
        edits: &[(
            "pv",
            "let mut halt = self.0.head().ticket() != ticket;",
            "let mut halt = true;",
        )],
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
    },
    Mutant {
        name: "flag set without a barrier",
        rule: "row 10: the flag is a full barrier",
        edits: &[(
            "ticket",
            "Head(self.head.fetch_or(SLOWPATH, Ordering::SeqCst))",
            "Head(self.head.fetch_or(SLOWPATH, Ordering::Relaxed))",
        )],
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
    },
    Mutant {
        name: "kick dropped",
        rule: "who saw the flag kicks",
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
];
