//! Mutants of the queues and ticketlocks of the literature, each with the lock that it breaks.

use crate::mutants::{Mutant, loom, shuttle};
use crate::spin_mutants::{NO_NEXT_HEAD, TAKE};

pub const LITERATURE_MUTANTS: &[Mutant] = &[
    Mutant {
        name: "stolen from the queue by a load and a store",
        rule: "the word excludes",
        edits: &[TAKE],
        ..shuttle("UnfairQueuedLock")
    },
    Mutant {
        name: "a waiter forgets that it is the head",
        rule: "a head hands its place on",
        edits: &[(
            "unfair_queued",
            "        self.queue.end_wait(nodes, me, || cpu.pv.spin_hint());\n",
            "        let again = || cpu.pv.spin_hint();
        if is_behind {
            self.queue.unlink(nodes, me, again);
            nodes.end(me);
        } else {
            self.queue.hand_on(nodes, me, again);
        }\n",
        )],
        ..shuttle("UnfairQueuedLock")
    },
    Mutant {
        name: "the next is not told who is before it",
        rule: "a waiter that leaves links both neighbours",
        edits: &[(
            "queue",
            "        let next = nodes.next(me, look_again);\n        nodes.follow(before, next);\n",
            "        let next = nodes.next(me, look_again);\n",
        )],
        ..shuttle("UnfairQueuedLock")
    },
    Mutant {
        name: "the node before is not linked to the next",
        rule: "a waiter that leaves links both neighbours",
        edits: &[(
            "queue",
            "        nodes.follow(before, next);\n        nodes.link(before, next);\n",
            "        nodes.follow(before, next);\n",
        )],
        ..shuttle("UnfairQueuedLock")
    },
    Mutant {
        name: "MCS: joined by a load and a store",
        rule: "joining is one step",
        edits: &[(
            "handed",
            "self.tail.swap(me.name(), Ordering::AcqRel)",
            "{ let before = self.tail.load(Ordering::SeqCst); self.tail.store(me.name(), Ordering::SeqCst); before }",
        )],
        ..shuttle("McsLock")
    },
    Mutant {
        name: "MCS: released without waiting for the link",
        rule: "a CPU that joined is handed the lock",
        edits: &[(
            "handed",
            "            look_again();\n",
            "            look_again(); return None;\n",
        )],
        ..shuttle("McsLock")
    },
    Mutant {
        name: "MCS: the last holder's next stays",
        rule: "the lock's next is the holder's",
        edits: &[("handed", "        self.next.store(next, Ordering::Relaxed);\n", "")],
        ..shuttle("McsLock")
    },
    Mutant {
        name: "MCS: freed without comparing",
        rule: "leaving is one step",
        edits: &[(
            "handed",
            "self.tail.compare_exchange(ALONE, FREE, Ordering::Release, Ordering::Relaxed).is_ok()",
            "{ let tail = self.tail.load(Ordering::SeqCst); tail == ALONE && { self.tail.store(FREE, Ordering::SeqCst); true } }",
        )],
        ..shuttle("McsLock")
    },
    Mutant {
        name: "MCS: handed over without release",
        rule: "handing the lock over releases",
        edits: &[(
            "node",
            "self.node(id).turn.store(gate.0, Ordering::Release);",
            "self.node(id).turn.store(gate.0, Ordering::Relaxed);",
        )],
        ..loom("McsLock")
    },
    Mutant {
        name: "who was passed over takes the lock",
        rule: "one CPU is handed the lock",
        edits: &[("mcs_tp", "        gate != SKIPPED\n    }\n", "        true\n    }\n")],
        ..shuttle("McsTpLock")
    },
    Mutant {
        name: "who is behind is looked up once the node may be used again",
        rule: "a node is its CPU's once it is told",
        edits: &[(
            "mcs_tp",
            "            let behind = self.queue.behind_or_free(cpu, node);\n            nodes.open(node, SKIPPED);\n",
            "            nodes.open(node, SKIPPED);\n            let behind = self.queue.behind_or_free(cpu, node);\n",
        )],
        ..shuttle("McsTpLock")
    },
    Mutant {
        name: "freed though a CPU has joined behind those passed over",
        rule: "leaving is one step",
        edits: &[(
            "handed",
            "self.tail.compare_exchange(last, tail, Ordering::Release, Ordering::Relaxed).is_ok()",
            "{ let now = self.tail.load(Ordering::SeqCst); now == last && { self.tail.store(tail, Ordering::SeqCst); true } }",
        )],
        ..shuttle("McsTpLock")
    },
    Mutant {
        name: "the last that was set aside stays linked",
        rule: "the end of a queue has none behind it",
        edits: &[("cna", "        nodes.unlink_behind(more.1);\n", "")],
        ..shuttle("CnaLock")
    },
    Mutant {
        name: "those set aside are forgotten when no other waits",
        rule: "a CPU that joined is handed the lock",
        edits: &[(
            "cna",
            "aside.map_or((ALONE, 0), |(first, last)| (last.name(), first.name()))",
            "(ALONE, 0)",
        )],
        ..shuttle("CnaLock")
    },
    Mutant {
        name: "those set aside come back without the others behind them",
        rule: "a CPU that joined is handed the lock",
        edits: &[("cna", "                nodes.link(last_aside, first);\n", "")],
        ..shuttle("CnaLock")
    },
    Mutant {
        name: "who is moved stays in its old place, too",
        rule: "a waiter is in the queue once",
        edits: &[("shuffled", "            nodes.link(before, behind);\n", "")],
        ..shuttle("ShuffledLock")
    },
    Mutant {
        name: "those who were passed are not linked behind who was moved",
        rule: "a CPU that joined becomes the head",
        edits: &[("shuffled", "            nodes.link(node, passed);\n", "")],
        ..shuttle("ShuffledLock")
    },
    Mutant {
        name: "shuffled: the next is not made the head",
        rule: "a head hands its place on",
        edits: &[NO_NEXT_HEAD],
        ..shuttle("ShuffledLock")
    },
    Mutant {
        name: "CLH: joined by a load and a store",
        rule: "joining is one step",
        edits: &[(
            "clh",
            "self.tail.swap(me.name(), Ordering::AcqRel)",
            "{ let before = self.tail.load(Ordering::SeqCst); self.tail.store(me.name(), Ordering::SeqCst); before }",
        )],
        ..shuttle("ClhLock")
    },
    Mutant {
        name: "a node is used again while it is looked at",
        rule: "the CPU behind gives a node back",
        edits: &[(
            "clh",
            "Some(node) => cpu.waiters.clh_nodes.release(node),",
            "Some(node) => { cpu.waiters.clh_nodes.release(node); cpu.waiters.clh_nodes.give_back(node); }",
        )],
        ..shuttle("ClhLock")
    },
    Mutant {
        name: "a handover is seen twice",
        rule: "each handover is for one CPU",
        edits: &[("clh", "None => self.is_handed.store(0, Ordering::Relaxed),", "None => {}")],
        ..shuttle("ClhLock")
    },
    Mutant {
        name: "CLH: a handler takes its CPU's node",
        rule: "a node for each nesting",
        edits: &[(
            "clh_nodes",
            ".compare_exchange(from, PENDING, Ordering::Acquire, Ordering::Relaxed)\n                    .is_ok()",
            ".compare_exchange(from, from, Ordering::Acquire, Ordering::Relaxed)\n                    .is_ok()",
        )],
        ..shuttle("ClhLock")
    },
    Mutant {
        name: "CLH: handed over without release",
        rule: "handing the lock over releases",
        edits: &[(
            "clh_nodes",
            "self.gate(id).store(RELEASED, Ordering::Release);",
            "self.gate(id).store(RELEASED, Ordering::Relaxed);",
        )],
        ..loom("ClhLock")
    },
    Mutant {
        name: "the slot changes before the head",
        rule: "a waiter that sees its slot change sees the head",
        edits: &[
            (
                "twa",
                "let served = self.0.release_plain();",
                "let served = self.0.head().ticket().wrapping_add(INC);",
            ),
            (
                "twa",
                "        Released::default()\n",
                "        self.0.release_plain();\n        Released::default()\n",
            ),
        ],
        ..shuttle("TwaLock")
    },
    Mutant {
        name: "the head is looked at before the slot",
        rule: "a change of the slot after the look ends the wait",
        edits: &[
            ("twa", "let seen = slot.load(Ordering::Acquire);", ""),
            (
                "twa",
                "                    break;\n                }\n",
                "                    break;\n                }\n                let seen = slot.load(Ordering::Acquire);\n",
            ),
        ],
        ..shuttle("TwaLock")
    },
    Mutant {
        name: "slots do not change",
        rule: "a release promotes the next but one",
        edits: &[("twa", ".fetch_add(1, Ordering::Release)", ".fetch_add(0, Ordering::Release)")],
        ..shuttle("TwaLock")
    },
    Mutant {
        name: "the end of the segment is not seen",
        rule: "a name that marks the end is no waiter",
        edits: &[(
            "reciprocating",
            "below == EMPTY || below == end",
            "{ let _ = end; below == EMPTY }",
        )],
        ..shuttle("ReciprocatingLock")
    },
    Mutant {
        name: "freed by a load and a store",
        rule: "the lock is freed only if no CPU came",
        edits: &[(
            "reciprocating",
            "self.arrivals.compare_exchange(end, FREE, Ordering::Release, Ordering::Relaxed).is_ok()",
            "{ let seen = self.arrivals.load(Ordering::SeqCst); seen == end && { self.arrivals.store(FREE, Ordering::SeqCst); true } }",
        )],
        ..shuttle("ReciprocatingLock")
    },
    Mutant {
        name: "the stack is taken by a load and a store",
        rule: "taking the stack is one step",
        edits: &[(
            "reciprocating",
            "self.arrivals.swap(EMPTY, Ordering::AcqRel)",
            "{ let last = self.arrivals.load(Ordering::SeqCst); self.arrivals.store(EMPTY, Ordering::SeqCst); last }",
        )],
        ..shuttle("ReciprocatingLock")
    },
    Mutant {
        name: "reciprocating: handed over without release",
        rule: "handing the lock over releases",
        edits: &[(
            "node",
            "self.node(id).turn.store(gate.0, Ordering::Release);",
            "self.node(id).turn.store(gate.0, Ordering::Relaxed);",
        )],
        ..loom("ReciprocatingLock")
    },
];
