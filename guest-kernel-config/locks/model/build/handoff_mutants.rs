//! Mutants of what follows a wait: the wake latch, and the cheaper handoffs of the PV ticketlock.

use crate::mutants::{Mutant, PV_TICKET, shuttle};

pub const HANDOFF_MUTANTS: &[Mutant] = &[
    Mutant {
        name: "pending kick overwritten by the halt",
        rule: "row 11: park is one step",
        edits: &[(
            "latch",
            "match self.0.compare_exchange(IDLE, PARKED, SeqCst, SeqCst) {",
            "match Ok::<u32, u32>(self.0.swap(PARKED, SeqCst)) {",
        )],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "halt looks, then parks",
        rule: "row 11: park is one step",
        edits: &[(
            "latch",
            "match self.0.compare_exchange(IDLE, PARKED, SeqCst, SeqCst) {",
            "let was = self.0.load(SeqCst); if was == IDLE { self.0.store(PARKED, SeqCst); }\n        match if was == IDLE { Ok(was) } else { Err(was) } {",
        )],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "kick cleared too late",
        rule: "row 11: before the next look",
        edits: &[
            ("machine", "        latch.unpark();\n", ""),
            (
                "machine",
                "        if latch.park() == Park::Consumed {",
                "        latch.unpark();\n        if latch.park() == Park::Consumed {",
            ),
        ],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "kick looks, then leaves its mark",
        rule: "row 12: kick is one step",
        edits: &[(
            "latch",
            "match self.0.swap(PENDING, SeqCst) {",
            "match { let was = self.0.load(SeqCst); self.0.store(PENDING, SeqCst); was } {",
        )],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "kick of a running vCPU is dropped",
        rule: "row 11: kicks are sticky",
        edits: &[(
            "latch",
            "match self.0.swap(PENDING, SeqCst) {",
            "match self.0.compare_exchange(PARKED, PENDING, SeqCst, SeqCst).unwrap_or_else(|was| was) {",
        )],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "futex sleeps without comparing",
        rule: "a kick before the sleep",
        edits: &[(
            "machine",
            "if is_asleep() && !(irqs_on && *pending) {",
            "if !(irqs_on && *pending) {",
        )],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "claim looks, then marks",
        rule: "row 12: claim and commit are one step each",
        edits: &[(
            "wait",
            "self.waiters[cpu].state.swap(CLAIMED, Ordering::SeqCst) != ARMED",
            "{ let state = &self.waiters[cpu].state; let was = state.load(Ordering::SeqCst); state.store(CLAIMED, Ordering::SeqCst); was != ARMED }",
        )],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "commit looks, then marks",
        rule: "row 12: claim and commit are one step each",
        edits: &[(
            "wait",
            "state.compare_exchange(armed, armed | COMMITTED, Ordering::SeqCst, Ordering::SeqCst).is_ok()",
            "state.load(Ordering::SeqCst) == armed && { state.store(armed | COMMITTED, Ordering::SeqCst); true }",
        )],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "claimed waiter halts",
        rule: "row 12: a claim forbids the halt",
        edits: &[(
            "pv",
            "            halt = cpu.waiters.commit(cpu.id);\n            if halt {\n                halt_paying_debts(cpu, ticket);",
            "            cpu.waiters.commit(cpu.id);\n            if halt {\n                halt_paying_debts(cpu, ticket);",
        )],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "committed waiters are not kicked",
        rule: "row 12: claiming a halted waiter kicks it",
        edits: &[(
            "wait",
            "state.swap(CLAIMED, Ordering::SeqCst) != ARMED",
            "state.swap(CLAIMED, Ordering::SeqCst) == CLAIMED",
        )],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "outside: the queue counted before the flag",
        rule: "aside: flag, then look",
        edits: &[(
            "pv",
            "        let served = self.0.set_flag();\n        let mut halt = self.0.queued(served) >= places;",
            "        let mut halt = self.0.queued(self.0.head()) >= places;\n        self.0.set_flag();",
        )],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "outside: no flag",
        rule: "aside: flag, then look",
        edits: &[(
            "pv",
            "        let served = self.0.set_flag();\n        let mut halt = self.0.queued(served) >= places;",
            "        let mut halt = self.0.queued(self.0.head()) >= places;",
        )],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "outside: the last lets no CPU in",
        rule: "aside: the last lets one in",
        edits: &[("pv", "(queued <= 1 || passes()", "(queued < 1 || passes()")],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "outside: let in by kicks, and not kicked",
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
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "outside: let in by a look and a mark",
        rule: "aside: claim and commit are one step each",
        edits: &[(
            "wait",
            "state.compare_exchange(seen, CLAIMED, Ordering::SeqCst, Ordering::SeqCst);",
            "Ok::<(), ()>(state.store(CLAIMED, Ordering::SeqCst));",
        )],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "outside: waits though the queue is empty",
        rule: "aside: wait only for a release to come",
        edits: &[(
            "handoff",
            "self.queue.saturating_sub(1).max(1)",
            "self.queue.saturating_sub(1)",
        )],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "outside: last is asked after the release",
        rule: "row 8: freed memory is not touched",
        edits: &[(
            "pv",
            "        let queued = if looks { self.0.queued(self.0.head()) } else { 0 };\n        let head = self.0.release_fetch();",
            "        let head = self.0.release_fetch();\n        let queued = if looks { self.0.queued(self.0.head()) } else { 0 };",
        )],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "outside: a CPU without queue lets none in",
        rule: "aside: settings may differ",
        edits: &[(
            "pv",
            "let queued = if looks { self.0.queued(self.0.head()) } else { 0 };",
            "let queued = if looks { self.0.queued(self.0.head()) } else { 2 };",
        )],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "outside: no kick of the own CPU",
        rule: "aside: rows 2, 3",
        edits: &[(
            "pv",
            "halt_paying_debts(cpu, ASIDE);\n            }\n        }\n        waits.end(cpu.waiters.withdraw(cpu.id, outer), halt);",
            "halt_paying_debts(cpu, ASIDE);\n            }\n        }\n        let _ = cpu.waiters.withdraw(cpu.id, outer);\n        waits.end(false, halt);",
        )],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "debt forgotten when there is no halt",
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
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "debt overwritten by the next",
        rule: "fuse: every debt is paid",
        edits: &[(
            "pv",
            "        settle(cpu);\n        cpu.waiters.memory(cpu.id).owe(waiter);",
            "        cpu.waiters.memory(cpu.id).owe(waiter);",
        )],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "debt not settled by the new holder",
        rule: "fuse: paid before a long section",
        edits: &[(
            "pv",
            "        settle(cpu);\n        waits.give_back(cpu);",
            "        waits.give_back(cpu);",
        )],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "debt not paid at a halt",
        rule: "fuse: every debt is paid",
        edits: &[(
            "pv",
            "            cpu.pv.kick_and_halt(waiter, ticket);",
            "            cpu.pv.lock_spinning(ticket); let _ = waiter;",
        )],
        ..shuttle(PV_TICKET)
    },
    Mutant {
        name: "debt forgotten before it is paid",
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
        ..shuttle(PV_TICKET)
    },
];
