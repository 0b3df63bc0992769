//! Mutants of the locks that go by the schedule, and of those that are restricted, each with the lock that it breaks.

use crate::mutants::{Mutant, loom, shuttle};
use crate::spin_mutants::NO_NEXT_HEAD;

pub const SCHEDULE_MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a ticket is drawn while the slice is too short",
        rule: "a ticket that is drawn is waited for",
        edits: &[(
            "slice_aware",
            "        let left = cpu.pv.slice_left();\n",
            "        self.0.0.take_ticket();\n        let left = cpu.pv.slice_left();\n",
        )],
        ..shuttle("SliceAwareLock")
    },
    Mutant {
        name: "who is short of its slice does not wait for its turn",
        rule: "one ticket at a time",
        edits: &[(
            "slice_aware",
            "        self.0.lock(cpu)\n",
            "        self.0.try_lock(cpu).unwrap_or_default()\n",
        )],
        ..shuttle("SliceAwareLock")
    },
    Mutant {
        name: "who was let in does not ask for those outside",
        rule: "one that was let in lets in the next",
        edits: &[("flexguard", "            self.held.await_own();\n", "")],
        ..shuttle("FlexGuardLock")
    },
    Mutant {
        name: "blocked: halted without a look",
        rule: "flag and last look are one step",
        edits: &[(
            "flexguard",
            "|| self.held.await_release()",
            "|| { self.held.await_release(); true }",
        )],
        ..shuttle("FlexGuardLock")
    },
    Mutant {
        name: "the holder's name is stored, not compared",
        rule: "taking the word is one step",
        edits: &[(
            "owned",
            "match self.0.compare_exchange(seen, next, Ordering::Acquire, Ordering::Relaxed) {",
            "self.0.store(next, Ordering::SeqCst); match Ok::<u32, u32>(seen) {",
        )],
        ..shuttle("OwnerConferLock")
    },
    Mutant {
        name: "a named holder releases without release",
        rule: "releasing the lock releases",
        edits: &[(
            "owned",
            "self.0.store(next, Ordering::Release);",
            "self.0.store(next, Ordering::Relaxed);",
        )],
        ..loom("OwnerConferLock")
    },
    Mutant {
        name: "the next is named but not made the head",
        rule: "a head hands its place on",
        edits: &[(
            "owner_confer",
            "            nodes.make_head(next);\n",
            "            let _ = next;\n",
        )],
        ..shuttle("OwnerConferLock")
    },
    Mutant {
        name: "the head goes once it has kept newcomers out",
        rule: "the head waits for the word",
        edits: &[(
            "owner_yield",
            "            while !self.look(cpu, &mut looks, u32::MAX, || self.take_as_head(cpu, me)) {}\n",
            "",
        )],
        ..shuttle("OwnerYieldLock")
    },
    Mutant {
        name: "owner-yield: the next is not made the head",
        rule: "a head hands its place on",
        edits: &[NO_NEXT_HEAD],
        ..shuttle("OwnerYieldLock")
    },
    Mutant {
        name: "outside: halted without a look",
        rule: "flag and last look are one step",
        edits: &[(
            "restricted",
            "!self.has_room_beside(seen / ONE, &cpu.handoff)",
            "{ let _ = seen; true }",
        )],
        ..shuttle("RestrictedTicketLock")
    },
    Mutant {
        name: "outside: the flag is cleared though another waits",
        rule: "the flag stays while a CPU waits outside",
        edits: &[(
            "restricted",
            "        if cpu.waiters.is_awaited_outside(self.key()) {\n            self.inside.fetch_or(AWAITED, Ordering::SeqCst);\n        }\n",
            "",
        )],
        ..shuttle("RestrictedTicketLock")
    },
    Mutant {
        name: "who goes does not look at the flag in one step",
        rule: "flag and departure are one step",
        edits: &[(
            "restricted",
            "let seen = self.inside.fetch_sub(ONE, Ordering::SeqCst);",
            "let seen = self.inside.load(Ordering::SeqCst); self.inside.fetch_sub(ONE, Ordering::SeqCst);",
        )],
        ..shuttle("RestrictedTicketLock")
    },
    Mutant {
        name: "who was let in is not counted",
        rule: "every CPU inside is counted",
        edits: &[(
            "restricted",
            "        self.inside.fetch_add(ONE, Ordering::SeqCst);\n        self.clear",
            "        self.clear",
        )],
        ..shuttle("RestrictedTicketLock")
    },
    Mutant {
        name: "the count is touched after the release",
        rule: "after the release the lock may be freed",
        edits: &[
            ("restricted", "        let lets_in = self.go();\n", ""),
            ("restricted", "        if lets_in {\n", "        if self.go() {\n"),
        ],
        ..shuttle("RestrictedTicketLock")
    },
];
