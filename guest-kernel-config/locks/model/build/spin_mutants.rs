//! Mutants of the other locks, each with the lock that it breaks.

use crate::mutants::{Mutant, loom, shuttle};

/// Takes the word `Held` by a load and a store.
pub const TAKE: (&str, &str, &str) = (
    "held",
    "self.0.compare_exchange(seen, seen | HELD, Ordering::Acquire, Ordering::Relaxed);",
    "{ self.0.store(seen | HELD, Ordering::SeqCst); Ok::<u16, u16>(seen) };",
);

/// The head leaves its queue, and nobody becomes the head.
pub const NO_NEXT_HEAD: (&str, &str, &str) =
    ("queue", "            nodes.make_head(next);\n", "            let _ = next;\n");

pub const SPIN_MUTANTS: &[Mutant] = &[
    Mutant {
        name: "test, then set",
        rule: "test and set are one step",
        edits: &[TAKE],
        ..shuttle("TestAndSetLock")
    },
    Mutant {
        name: "test and set without acquire",
        rule: "taking the lock acquires",
        edits: &[(
            "held",
            "self.0.compare_exchange(seen, seen | HELD, Ordering::Acquire, Ordering::Relaxed);",
            "self.0.compare_exchange(seen, seen | HELD, Ordering::Relaxed, Ordering::Relaxed);",
        )],
        ..loom("TestAndSetLock")
    },
    Mutant {
        name: "word released without release",
        rule: "releasing the lock releases",
        edits: &[(
            "held",
            "self.0.store(next, Ordering::Release)",
            "self.0.store(next, Ordering::Relaxed)",
        )],
        ..loom("TestAndSetLock")
    },
    Mutant {
        name: "release to a later ticket",
        rule: "one ticket at a time",
        edits: &[(
            "ticket",
            "self.head.store(head.wrapping_add(INC), Ordering::Release)",
            "self.head.store(head.wrapping_add(INC + INC), Ordering::Release)",
        )],
        ..shuttle("NativeTicketLock")
    },
    Mutant {
        name: "try looks, then draws",
        rule: "the tail is compared and set in one step",
        edits: &[(
            "ticket",
            "self.tail.compare_exchange(served, after, Ordering::SeqCst, Ordering::Relaxed).ok()?;",
            "if self.tail.load(Ordering::SeqCst) != served { return None; }
                 self.tail.store(after, Ordering::SeqCst);",
        )],
        ..shuttle("NativeTicketLock")
    },
    Mutant {
        name: "small tickets compared in full",
        rule: "row 15: tickets wrap at their width",
        edits: &[(
            "width",
            "$atomic::fetch_add(self, value as $value, order).into()",
            "u16::from($atomic::fetch_add(self, value as $value, order)) | 0x100",
        )],
        ..shuttle("SmallNativeTicketLock")
    },
    Mutant {
        name: "small tickets do not wrap",
        rule: "row 15: tickets wrap at their width",
        edits: &[("width", "ticket.wrapping_add(INC) & Self::MASK", "ticket.wrapping_add(INC)")],
        ..shuttle("SmallPvTicketLock")
    },
    Mutant {
        name: "a ticket is taken for the lock",
        rule: "tickets are advice",
        edits: &[(
            "preemptable",
            "let slow = self.head() != ticket || !self.held.take();",
            "let slow = self.head() != ticket;\n        if !slow { self.held.take(); }",
        )],
        ..shuttle("PreemptableTicketLock")
    },
    Mutant {
        name: "lock taken by a load and a store",
        rule: "the word excludes",
        edits: &[TAKE],
        ..shuttle("PreemptableTicketLock")
    },
    Mutant {
        name: "overtaken waiter keeps waiting",
        rule: "the head may have passed a waiter",
        edits: &[("preemptable", "is_passed || self", "self")],
        ..shuttle("PreemptableTicketLock")
    },
    Mutant {
        name: "taken or awaited in two steps",
        rule: "flag and last look are one step",
        edits: &[(
            "held",
            "self.0.fetch_or(HELD | AWAITED, Ordering::AcqRel) & HELD == 0",
            "self.take() || { self.0.fetch_or(AWAITED, Ordering::AcqRel); false }",
        )],
        ..shuttle("PvPreemptableTicketLock")
    },
    Mutant {
        name: "kicked waiter does not pass the kick on",
        rule: "one kick per release, passed on",
        edits: &[
            ("preemptable", "if waiter.has_halted {", "if false {"),
            (
                "preemptable",
                "self.held.take_or_await());\n",
                "self.held.take() || { self.held.take_or_await() && { self.held.clear_flags(); true } });\n",
            ),
        ],
        ..shuttle("PvPreemptableTicketLock")
    },
    Mutant {
        name: "release looks, then swaps",
        rule: "flag and release are one step",
        edits: &[(
            "held",
            "self.0.swap(next, Ordering::AcqRel) & AWAITED != 0",
            "{ let seen = self.0.load(Ordering::SeqCst); self.0.store(next, Ordering::SeqCst); seen & AWAITED != 0 }",
        )],
        ..shuttle("PvPreemptableTicketLock")
    },
    Mutant {
        name: "release does not acquire records",
        rule: "a release that sees the flag sees the record",
        edits: &[(
            "held",
            "self.0.swap(next, Ordering::AcqRel)",
            "self.0.swap(next, Ordering::Release)",
        )],
        ..loom("PvPreemptableTicketLock")
    },
    Mutant {
        name: "no kick of the own CPU in a word's lock",
        rule: "rows 2, 3",
        edits: &[("halt", "if P::ENABLED && self.were_nested {", "if false {")],
        ..shuttle("PvPreemptableTicketLock")
    },
    Mutant {
        name: "joined by a load and a store",
        rule: "joining is one step",
        edits: &[(
            "queue",
            "self.tail.swap(me.name(), Ordering::AcqRel)",
            "{ let before = self.tail.load(Ordering::SeqCst); self.tail.store(me.name(), Ordering::SeqCst); before }",
        )],
        ..shuttle("QueuedLock")
    },
    Mutant {
        name: "left without waiting for the link",
        rule: "a CPU that joined becomes the head",
        edits: &[(
            "queue",
            "Some(nodes.next(me, look_again))",
            "{ let _ = look_again; nodes.linked_behind(me) }",
        )],
        ..shuttle("QueuedLock")
    },
    Mutant {
        name: "left without comparing",
        rule: "leaving is one step",
        edits: &[(
            "queue",
            "self.tail.compare_exchange(me.name(), 0, Ordering::Relaxed, Ordering::Relaxed)",
            "{ let tail = self.tail.load(Ordering::SeqCst); if tail == me.name() { self.tail.store(0, Ordering::SeqCst); Ok(tail) } else { Err(tail) } }",
        )],
        ..shuttle("QueuedLock")
    },
    Mutant {
        name: "a handler takes its CPU's node",
        rule: "a node for each nesting",
        edits: &[("node", "        own.used.store(level + 1, Ordering::Relaxed);\n", "")],
        ..shuttle("QueuedLock")
    },
    Mutant {
        name: "the head does not look at the lock",
        rule: "the word excludes",
        edits: &[("queued", "looks.until(cpu, None, || self.held.take());", "self.held.take();")],
        ..shuttle("QueuedLock")
    },
    Mutant {
        name: "halted though it is the head",
        rule: "halt and head: one sees the other",
        edits: &[(
            "node",
            "self.node(id).turn.fetch_or(HALTED, Ordering::AcqRel) & HEAD == 0",
            "{ self.node(id).turn.fetch_or(HALTED, Ordering::AcqRel); true }",
        )],
        ..shuttle("PvQueuedLock")
    },
    Mutant {
        name: "the next is not kicked",
        rule: "making a CPU the head arranges its kick",
        edits: &[("pv_queued", "            self.held.await_own();\n", "")],
        ..shuttle("PvQueuedLock")
    },
    Mutant {
        name: "the head halts without a look",
        rule: "flag and last look are one step",
        edits: &[(
            "pv_queued",
            "                !is_held\n",
            "                let _ = is_held; false\n",
        )],
        ..shuttle("PvQueuedLock")
    },
    Mutant {
        name: "release and flag in two steps",
        rule: "flag and release are one step",
        edits: &[(
            "held",
            "let next = seen.wrapping_add(RELEASE - HELD) & !AWAITED;",
            "let next = seen.wrapping_add(RELEASE - HELD) & !AWAITED;
                 self.0.store(next, Ordering::SeqCst);
                 return seen & AWAITED != 0;",
        )],
        ..shuttle("PvQueuedLock")
    },
    Mutant {
        name: "stolen by a load and a store",
        rule: "the word excludes",
        edits: &[TAKE],
        ..shuttle("PvQueuedLock")
    },
    Mutant {
        name: "stolen though it is reserved",
        harmless: Some("the head waits for one more acquisition, and is served in the end"),
        rule: "the bound on stealing",
        edits: &[("held", "self.take_without(HELD | RESERVED)", "self.take_without(HELD)")],
        ..shuttle("PvQueuedLock")
    },
    Mutant {
        name: "the search takes any waiter for the head",
        harmless: Some("the head is among them; the others look again and halt again"),
        rule: "one kick per release",
        edits: &[(
            "pv_queued",
            "if cpu.waiters.nodes.is_head(NodeId::new(waiter, level)) {",
            "let _ = level; {",
        )],
        ..shuttle("PvQueuedLock")
    },
];
