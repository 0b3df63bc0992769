//! Mutants of the queues and ticketlocks of the literature, each with the lock that it breaks.

use crate::mutants::{LOOM, Mutant, SHUTTLE};
use crate::spin_mutants::{NO_NEXT_HEAD, TAKE};

pub const LITERATURE_MUTANTS: &[(&str, Mutant)] = &[
    (
        "UnfairQueuedLock",
        Mutant {
            name: "stolen from the queue by a load and a store",
            harmless: None,
            engine: SHUTTLE,
            rule: "the word excludes",
            edits: &[TAKE],
        },
    ),
    (
        "UnfairQueuedLock",
        Mutant {
            name: "a waiter forgets that it is the head",
            harmless: None,
            engine: SHUTTLE,
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
        },
    ),
    (
        "UnfairQueuedLock",
        Mutant {
            name: "the next is not told who is before it",
            harmless: None,
            engine: SHUTTLE,
            rule: "a waiter that leaves links both neighbours",
            edits: &[(
                "queue",
                "        let next = nodes.next(me, look_again);\n        nodes.follow(before, next);\n",
                "        let next = nodes.next(me, look_again);\n",
            )],
        },
    ),
    (
        "UnfairQueuedLock",
        Mutant {
            name: "the node before is not linked to the next",
            harmless: None,
            engine: SHUTTLE,
            rule: "a waiter that leaves links both neighbours",
            edits: &[(
                "queue",
                "        nodes.follow(before, next);\n        nodes.link(before, next);\n",
                "        nodes.follow(before, next);\n",
            )],
        },
    ),
    (
        "McsLock",
        Mutant {
            name: "MCS: joined by a load and a store",
            harmless: None,
            engine: SHUTTLE,
            rule: "joining is one step",
            edits: &[(
                "handed",
                "self.tail.swap(me.name(), Ordering::AcqRel)",
                "{ let before = self.tail.load(Ordering::SeqCst); self.tail.store(me.name(), Ordering::SeqCst); before }",
            )],
        },
    ),
    (
        "McsLock",
        Mutant {
            name: "MCS: released without waiting for the link",
            harmless: None,
            engine: SHUTTLE,
            rule: "a CPU that joined is handed the lock",
            edits: &[(
                "handed",
                "            look_again();\n",
                "            look_again(); return None;\n",
            )],
        },
    ),
    (
        "McsLock",
        Mutant {
            name: "MCS: the last holder's next stays",
            harmless: None,
            engine: SHUTTLE,
            rule: "the lock's next is the holder's",
            edits: &[("handed", "        self.next.store(next, Ordering::Relaxed);\n", "")],
        },
    ),
    (
        "McsLock",
        Mutant {
            name: "MCS: freed without comparing",
            harmless: None,
            engine: SHUTTLE,
            rule: "leaving is one step",
            edits: &[(
                "handed",
                "self.tail.compare_exchange(ALONE, FREE, Ordering::Release, Ordering::Relaxed).is_ok()",
                "{ let tail = self.tail.load(Ordering::SeqCst); tail == ALONE && { self.tail.store(FREE, Ordering::SeqCst); true } }",
            )],
        },
    ),
    (
        "McsLock",
        Mutant {
            name: "MCS: handed over without release",
            harmless: None,
            engine: LOOM,
            rule: "handing the lock over releases",
            edits: &[(
                "node",
                "self.node(id).turn.store(gate.0, Ordering::Release);",
                "self.node(id).turn.store(gate.0, Ordering::Relaxed);",
            )],
        },
    ),
    (
        "McsTpLock",
        Mutant {
            name: "who was passed over takes the lock",
            harmless: None,
            engine: SHUTTLE,
            rule: "one CPU is handed the lock",
            edits: &[("mcs_tp", "        gate != SKIPPED\n    }\n", "        true\n    }\n")],
        },
    ),
    (
        "McsTpLock",
        Mutant {
            name: "who is behind is looked up once the node may be used again",
            harmless: None,
            engine: SHUTTLE,
            rule: "a node is its CPU's once it is told",
            edits: &[(
                "mcs_tp",
                "            let behind = self.queue.behind_or_free(cpu, node);\n            nodes.open(node, SKIPPED);\n",
                "            nodes.open(node, SKIPPED);\n            let behind = self.queue.behind_or_free(cpu, node);\n",
            )],
        },
    ),
    (
        "McsTpLock",
        Mutant {
            name: "freed though a CPU has joined behind those passed over",
            harmless: None,
            engine: SHUTTLE,
            rule: "leaving is one step",
            edits: &[(
                "handed",
                "self.tail.compare_exchange(last, tail, Ordering::Release, Ordering::Relaxed).is_ok()",
                "{ let now = self.tail.load(Ordering::SeqCst); now == last && { self.tail.store(tail, Ordering::SeqCst); true } }",
            )],
        },
    ),
    (
        "CnaLock",
        Mutant {
            name: "the last that was set aside stays linked",
            harmless: None,
            engine: SHUTTLE,
            rule: "the end of a queue has none behind it",
            edits: &[("cna", "        nodes.unlink_behind(more.1);\n", "")],
        },
    ),
    (
        "CnaLock",
        Mutant {
            name: "those set aside are forgotten when no other waits",
            harmless: None,
            engine: SHUTTLE,
            rule: "a CPU that joined is handed the lock",
            edits: &[(
                "cna",
                "aside.map_or((ALONE, 0), |(first, last)| (last.name(), first.name()))",
                "(ALONE, 0)",
            )],
        },
    ),
    (
        "CnaLock",
        Mutant {
            name: "those set aside come back without the others behind them",
            harmless: None,
            engine: SHUTTLE,
            rule: "a CPU that joined is handed the lock",
            edits: &[("cna", "                nodes.link(last_aside, first);\n", "")],
        },
    ),
    (
        "ShuffledLock",
        Mutant {
            name: "who is moved stays in its old place, too",
            harmless: None,
            engine: SHUTTLE,
            rule: "a waiter is in the queue once",
            edits: &[("shuffled", "            nodes.link(before, behind);\n", "")],
        },
    ),
    (
        "ShuffledLock",
        Mutant {
            name: "those who were passed are not linked behind who was moved",
            harmless: None,
            engine: SHUTTLE,
            rule: "a CPU that joined becomes the head",
            edits: &[("shuffled", "            nodes.link(node, passed);\n", "")],
        },
    ),
    (
        "ShuffledLock",
        Mutant {
            name: "shuffled: the next is not made the head",
            harmless: None,
            engine: SHUTTLE,
            rule: "a head hands its place on",
            edits: &[NO_NEXT_HEAD],
        },
    ),
    (
        "ClhLock",
        Mutant {
            name: "CLH: joined by a load and a store",
            harmless: None,
            engine: SHUTTLE,
            rule: "joining is one step",
            edits: &[(
                "clh",
                "self.tail.swap(me.name(), Ordering::AcqRel)",
                "{ let before = self.tail.load(Ordering::SeqCst); self.tail.store(me.name(), Ordering::SeqCst); before }",
            )],
        },
    ),
    (
        "ClhLock",
        Mutant {
            name: "a node is used again while it is looked at",
            harmless: None,
            engine: SHUTTLE,
            rule: "the CPU behind gives a node back",
            edits: &[(
                "clh",
                "Some(node) => cpu.waiters.clh_nodes.release(node),",
                "Some(node) => { cpu.waiters.clh_nodes.release(node); cpu.waiters.clh_nodes.give_back(node); }",
            )],
        },
    ),
    (
        "ClhLock",
        Mutant {
            name: "a handover is seen twice",
            harmless: None,
            engine: SHUTTLE,
            rule: "each handover is for one CPU",
            edits: &[("clh", "None => self.is_handed.store(0, Ordering::Relaxed),", "None => {}")],
        },
    ),
    (
        "ClhLock",
        Mutant {
            name: "CLH: a handler takes its CPU's node",
            harmless: None,
            engine: SHUTTLE,
            rule: "a node for each nesting",
            edits: &[(
                "clh_nodes",
                ".compare_exchange(from, PENDING, Ordering::Acquire, Ordering::Relaxed)\n                    .is_ok()",
                ".compare_exchange(from, from, Ordering::Acquire, Ordering::Relaxed)\n                    .is_ok()",
            )],
        },
    ),
    (
        "ClhLock",
        Mutant {
            name: "CLH: handed over without release",
            harmless: None,
            engine: LOOM,
            rule: "handing the lock over releases",
            edits: &[(
                "clh_nodes",
                "self.gate(id).store(RELEASED, Ordering::Release);",
                "self.gate(id).store(RELEASED, Ordering::Relaxed);",
            )],
        },
    ),
    (
        "TwaLock",
        Mutant {
            name: "the slot changes before the head",
            harmless: None,
            engine: SHUTTLE,
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
        },
    ),
    (
        "TwaLock",
        Mutant {
            name: "the head is looked at before the slot",
            harmless: None,
            engine: SHUTTLE,
            rule: "a change of the slot after the look ends the wait",
            edits: &[
                ("twa", "let seen = slot.load(Ordering::Acquire);", ""),
                (
                    "twa",
                    "                    break;\n                }\n",
                    "                    break;\n                }\n                let seen = slot.load(Ordering::Acquire);\n",
                ),
            ],
        },
    ),
    (
        "TwaLock",
        Mutant {
            name: "slots do not change",
            harmless: None,
            engine: SHUTTLE,
            rule: "a release promotes the next but one",
            edits: &[(
                "twa",
                ".fetch_add(1, Ordering::Release)",
                ".fetch_add(0, Ordering::Release)",
            )],
        },
    ),
    (
        "ReciprocatingLock",
        Mutant {
            name: "the end of the segment is not seen",
            harmless: None,
            engine: SHUTTLE,
            rule: "a name that marks the end is no waiter",
            edits: &[(
                "reciprocating",
                "below == EMPTY || below == end",
                "{ let _ = end; below == EMPTY }",
            )],
        },
    ),
    (
        "ReciprocatingLock",
        Mutant {
            name: "freed by a load and a store",
            harmless: None,
            engine: SHUTTLE,
            rule: "the lock is freed only if no CPU came",
            edits: &[(
                "reciprocating",
                "self.arrivals.compare_exchange(end, FREE, Ordering::Release, Ordering::Relaxed).is_ok()",
                "{ let seen = self.arrivals.load(Ordering::SeqCst); seen == end && { self.arrivals.store(FREE, Ordering::SeqCst); true } }",
            )],
        },
    ),
    (
        "ReciprocatingLock",
        Mutant {
            name: "the stack is taken by a load and a store",
            harmless: None,
            engine: SHUTTLE,
            rule: "taking the stack is one step",
            edits: &[(
                "reciprocating",
                "self.arrivals.swap(EMPTY, Ordering::AcqRel)",
                "{ let last = self.arrivals.load(Ordering::SeqCst); self.arrivals.store(EMPTY, Ordering::SeqCst); last }",
            )],
        },
    ),
    (
        "ReciprocatingLock",
        Mutant {
            name: "reciprocating: handed over without release",
            harmless: None,
            engine: LOOM,
            rule: "handing the lock over releases",
            edits: &[(
                "node",
                "self.node(id).turn.store(gate.0, Ordering::Release);",
                "self.node(id).turn.store(gate.0, Ordering::Relaxed);",
            )],
        },
    ),
];
