//! What history got wrong, and what one could: each a small change to the product's sources that
//! the checks must catch.

/// A broken variant.
pub struct Mutant {
    /// Its name.
    pub name: &'static str,
    /// What it breaks.
    pub rule: &'static str,
    /// It breaks nothing that counts, and why: it must pass.
    pub harmless: Option<&'static str>,
    /// Which engine runs it. loom where a load must see an old value, or shuttle would not find it.
    pub engine: &'static str,
    /// In which file (of `locks`, or `latch`, or `machine`), which text (there must be exactly one),
    /// and what comes in its place.
    pub edits: &'static [(&'static str, &'static str, &'static str)],
}

pub const LOOM: &str = "loom";
pub const SHUTTLE: &str = "shuttle";

/// Those of the PV ticketlock with large tickets.
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
    Mutant {
        name: "flag cleared by the releaser",
        harmless: None,
        engine: SHUTTLE,
        rule: "clearing is the next taker's",
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
        rule: "seeing one's ticket is acquiring",
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
        name: "record without a ticket of its own",
        harmless: Some("the search goes on after a match, so a wrong one is a kick for nothing"),
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
        harmless: Some("the search goes on after a match, so a wrong one is a kick for nothing"),
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
        name: "search ends at the first that looks right",
        harmless: None,
        engine: LOOM,
        rule: "rows 2, 3: it may be an accident",
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
        name: "no kick for oneself after a nested wait",
        harmless: None,
        engine: SHUTTLE,
        rule: "rows 2, 3",
        edits: &[("halt", "if P::ENABLED && self.were_nested {", "if false {")],
    },
    Mutant {
        name: "such a kick after every halt",
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
    Mutant {
        name: "pending kick overwritten by the halt",
        harmless: None,
        engine: SHUTTLE,
        rule: "row 11: park is one step",
        edits: &[(
            "latch",
            "match self.0.compare_exchange(IDLE, PARKED, SeqCst, SeqCst) {",
            "match Ok::<u32, u32>(self.0.swap(PARKED, SeqCst)) {",
        )],
    },
    Mutant {
        name: "halt looks, then parks",
        harmless: None,
        engine: SHUTTLE,
        rule: "row 11: park is one step",
        edits: &[(
            "latch",
            "match self.0.compare_exchange(IDLE, PARKED, SeqCst, SeqCst) {",
            "let was = self.0.load(SeqCst); if was == IDLE { self.0.store(PARKED, SeqCst); }\n        match if was == IDLE { Ok(was) } else { Err(was) } {",
        )],
    },
    Mutant {
        name: "kick cleared too late",
        harmless: None,
        engine: SHUTTLE,
        rule: "row 11: before the next look",
        edits: &[
            ("machine", "        latch.unpark();\n", ""),
            (
                "machine",
                "        if latch.park() == Park::Consumed {",
                "        latch.unpark();\n        if latch.park() == Park::Consumed {",
            ),
        ],
    },
    Mutant {
        name: "kick looks, then leaves its mark",
        harmless: None,
        engine: SHUTTLE,
        rule: "row 12: kick is one step",
        edits: &[(
            "latch",
            "match self.0.swap(PENDING, SeqCst) {",
            "match { let was = self.0.load(SeqCst); self.0.store(PENDING, SeqCst); was } {",
        )],
    },
    Mutant {
        name: "kick of one who runs is dropped",
        harmless: None,
        engine: SHUTTLE,
        rule: "row 11: kicks are sticky",
        edits: &[(
            "latch",
            "match self.0.swap(PENDING, SeqCst) {",
            "match self.0.compare_exchange(PARKED, PENDING, SeqCst, SeqCst).unwrap_or_else(|was| was) {",
        )],
    },
    Mutant {
        name: "futex sleeps without comparing",
        harmless: None,
        engine: SHUTTLE,
        rule: "a kick before the sleep",
        edits: &[(
            "machine",
            "if is_asleep() && !(irqs_on && *pending) {",
            "if !(irqs_on && *pending) {",
        )],
    },
    Mutant {
        name: "claim looks, then marks",
        harmless: None,
        engine: SHUTTLE,
        rule: "row 12: claim and commit are one step each",
        edits: &[(
            "wait",
            "self.waiters[cpu].state.swap(CLAIMED, Ordering::SeqCst) != ARMED",
            "{ let state = &self.waiters[cpu].state; let was = state.load(Ordering::SeqCst); state.store(CLAIMED, Ordering::SeqCst); was != ARMED }",
        )],
    },
    Mutant {
        name: "commit looks, then marks",
        harmless: None,
        engine: SHUTTLE,
        rule: "row 12: claim and commit are one step each",
        edits: &[(
            "wait",
            "state.compare_exchange(armed, armed | COMMITTED, Ordering::SeqCst, Ordering::SeqCst).is_ok()",
            "state.load(Ordering::SeqCst) == armed && { state.store(armed | COMMITTED, Ordering::SeqCst); true }",
        )],
    },
    Mutant {
        name: "who is claimed halts",
        harmless: None,
        engine: SHUTTLE,
        rule: "row 12: a claim forbids the halt",
        edits: &[(
            "pv",
            "            halt = cpu.waiters.commit(cpu.id);\n            if halt {\n                halt_paying_debts(cpu, ticket);",
            "            cpu.waiters.commit(cpu.id);\n            if halt {\n                halt_paying_debts(cpu, ticket);",
        )],
    },
    Mutant {
        name: "committed waiters are not kicked",
        harmless: None,
        engine: SHUTTLE,
        rule: "row 12: a claim of one who halts kicks",
        edits: &[(
            "wait",
            "state.swap(CLAIMED, Ordering::SeqCst) != ARMED",
            "state.swap(CLAIMED, Ordering::SeqCst) == CLAIMED",
        )],
    },
    Mutant {
        name: "outside: the queue counted before the flag",
        harmless: None,
        engine: SHUTTLE,
        rule: "aside: flag, then look",
        edits: &[(
            "pv",
            "        let served = self.0.set_flag();\n        let mut halt = self.0.queued(served) >= places;",
            "        let mut halt = self.0.queued(self.0.head()) >= places;\n        self.0.set_flag();",
        )],
    },
    Mutant {
        name: "outside: no flag",
        harmless: None,
        engine: SHUTTLE,
        rule: "aside: flag, then look",
        edits: &[(
            "pv",
            "        let served = self.0.set_flag();\n        let mut halt = self.0.queued(served) >= places;",
            "        let mut halt = self.0.queued(self.0.head()) >= places;",
        )],
    },
    Mutant {
        name: "outside: nobody is let in by the last",
        harmless: None,
        engine: SHUTTLE,
        rule: "aside: the last lets one in",
        edits: &[("pv", "(queued <= 1 || passes()", "(queued < 1 || passes()")],
    },
    Mutant {
        name: "outside: let in by a look and a mark",
        harmless: None,
        engine: SHUTTLE,
        rule: "aside: claim and commit are one step each",
        edits: &[(
            "wait",
            "state.compare_exchange(seen, CLAIMED, Ordering::SeqCst, Ordering::SeqCst);",
            "Ok::<(), ()>(state.store(CLAIMED, Ordering::SeqCst));",
        )],
    },
    Mutant {
        name: "outside: who gave its place waits for none",
        harmless: None,
        engine: SHUTTLE,
        rule: "aside: a holder's release is to come",
        edits: &[(
            "handoff",
            "self.queue.saturating_sub(1).max(1)",
            "self.queue.saturating_sub(1)",
        )],
    },
    Mutant {
        name: "outside: last is asked after the release",
        harmless: None,
        engine: SHUTTLE,
        rule: "row 8: freed memory is not touched",
        edits: &[(
            "pv",
            "        let queued = if looks { self.0.queued(self.0.head()) } else { 0 };\n        let head = self.0.release_fetch();",
            "        let head = self.0.release_fetch();\n        let queued = if looks { self.0.queued(self.0.head()) } else { 0 };",
        )],
    },
    Mutant {
        name: "outside: who has no queue lets nobody in",
        harmless: None,
        engine: SHUTTLE,
        rule: "aside: settings may differ",
        edits: &[(
            "pv",
            "let queued = if looks { self.0.queued(self.0.head()) } else { 0 };",
            "let queued = if looks { self.0.queued(self.0.head()) } else { 2 };",
        )],
    },
    Mutant {
        name: "outside: no kick for oneself",
        harmless: None,
        engine: SHUTTLE,
        rule: "aside: rows 2, 3",
        edits: &[(
            "pv",
            "halt_paying_debts(cpu, ASIDE);\n            }\n        }\n        waits.end(cpu.waiters.withdraw(cpu.id, outer), halt);",
            "halt_paying_debts(cpu, ASIDE);\n            }\n        }\n        let _ = cpu.waiters.withdraw(cpu.id, outer);\n        waits.end(false, halt);",
        )],
    },
    Mutant {
        name: "debt forgotten when there is no halt",
        harmless: None,
        engine: SHUTTLE,
        rule: "fuse: every debt is paid",
        edits: &[
            (
                "pv",
                "            halt = cpu.waiters.commit(cpu.id);\n            if halt {\n                halt_paying_debts(cpu, ticket);",
                "            let owed = memory_of(cpu).owed();\n            memory_of(cpu).forget_debt();\n            halt = cpu.waiters.commit(cpu.id);\n            if halt {\n                if let Some(waiter) = owed { cpu.pv.unlock_kick(waiter); }\n                halt_paying_debts(cpu, ticket);",
            ),
            (
                "pv",
                "/// Kicks `waiter`, or owes it",
                "fn memory_of<'a, P, W>(cpu: &Cpu<'a, P, W>) -> &'a crate::handoff::Memory { cpu.waiters.memory(cpu.id) }\n/// Kicks `waiter`, or owes it",
            ),
        ],
    },
    Mutant {
        name: "debt overwritten by the next",
        harmless: None,
        engine: SHUTTLE,
        rule: "fuse: every debt is paid",
        edits: &[(
            "pv",
            "        settle(cpu);\n        cpu.waiters.memory(cpu.id).owe(waiter);",
            "        cpu.waiters.memory(cpu.id).owe(waiter);",
        )],
    },
    Mutant {
        name: "debt not settled by who has the lock",
        harmless: None,
        engine: SHUTTLE,
        rule: "fuse: paid before a long section",
        edits: &[(
            "pv",
            "        settle(cpu);\n        waits.give_back(cpu);",
            "        waits.give_back(cpu);",
        )],
    },
    Mutant {
        name: "debt not paid at a halt",
        harmless: None,
        engine: SHUTTLE,
        rule: "fuse: every debt is paid",
        edits: &[(
            "pv",
            "            cpu.pv.kick_and_halt(waiter, ticket);",
            "            cpu.pv.lock_spinning(ticket); let _ = waiter;",
        )],
    },
    Mutant {
        name: "debt forgotten before it is paid",
        harmless: None,
        engine: SHUTTLE,
        rule: "fuse: a handler may need it paid",
        edits: &[
            (
                "pv",
                "        cpu.pv.unlock_kick(waiter);\n        memory.forget_debt();",
                "        memory.forget_debt();\n        cpu.pv.unlock_kick(waiter);",
            ),
            (
                "pv",
                "            cpu.pv.kick_and_halt(waiter, ticket);\n            memory.forget_debt();",
                "            memory.forget_debt();\n            cpu.pv.kick_and_halt(waiter, ticket);",
            ),
        ],
    },
];
