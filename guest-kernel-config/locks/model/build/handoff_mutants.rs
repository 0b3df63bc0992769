//! Mutants of what follows a wait: the wake latch, and the cheaper handoffs of the PV ticketlock.

use crate::mutants::{Mutant, SHUTTLE};

pub const HANDOFF_MUTANTS: &[Mutant] = &[
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
        name: "kick of a running vCPU is dropped",
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
        name: "claimed waiter halts",
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
        rule: "row 12: claiming a halted waiter kicks it",
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
        name: "outside: the last lets no CPU in",
        harmless: None,
        engine: SHUTTLE,
        rule: "aside: the last lets one in",
        edits: &[("pv", "(queued <= 1 || passes()", "(queued < 1 || passes()")],
    },
    Mutant {
        name: "outside: let in by kicks, and not kicked",
        harmless: None,
        engine: SHUTTLE,
        rule: "aside: who is let in and sleeps is kicked",
        edits: &[
            (
                "pv",
                "        if (queued <= 1 || passes()",
                "        let counted = queued > 1 && passes();\n        if (queued <= 1 || counted",
            ),
            (
                "pv",
                "            if sleeps {\n                cpu.watch.reached(Place::ReleaseToKick);",
                "            if sleeps && !counted {\n                cpu.watch.reached(Place::ReleaseToKick);",
            ),
        ],
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
        name: "outside: waits though the queue is empty",
        harmless: None,
        engine: SHUTTLE,
        rule: "aside: wait only for a release to come",
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
        name: "outside: a CPU without queue lets none in",
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
        name: "outside: no kick of the own CPU",
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
        name: "debt not settled by the new holder",
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
