//! Mutants of mutexes, counters and lockrefs. The name begins with the system and a colon; an edit
//! names a file of the system or of the spinlocks that it uses.

use crate::mutants::{Mutant, loom, shuttle};

/// Checks that counters are known to fail, each with the engine that finds it.
pub const HOLES: [(&str, &str); 2] = [
    ("counter: the hole of the sequence", "loom"),
    ("counter: the hole of the sequence, by chance", "shuttle"),
];

pub const SLEEP_MUTANTS: &[Mutant] = &[
    Mutant {
        name: "mutex: sleep without the last look",
        rule: "list, then word",
        edits: &[(
            "mutex",
            "        let mut is_mine = self.take_as_sleeper(taken);
        while !is_mine {
            is_mine = self.take_as_sleeper(taken);
            if !is_mine {
                self.halt(cpu, taken);
            }
        }",
            "        let mut is_mine = false;
        while !is_mine {
            self.halt(cpu, taken);
            is_mine = self.take_as_sleeper(taken);
        }",
        )],
        ..shuttle("mutex")
    },
    Mutant {
        name: "mutex: wakeup dropped",
        rule: "a release wakes the first",
        edits: &[("mutex", "cpu.pv.unlock_kick(first);", "let _ = first;")],
        ..shuttle("mutex")
    },
    Mutant {
        name: "mutex: sleeper woken before the word is free",
        rule: "word, then list",
        edits: &[
            (
                "mutex",
                "        self.word.store(FREE, Ordering::Release);\n        self.sleepers.lock(cpu);",
                "        self.sleepers.lock(cpu);",
            ),
            (
                "mutex",
                "            kicks += 1;\n        }\n        kicks",
                "            kicks += 1;\n        }\n        self.word.store(FREE, Ordering::Release);\n        kicks",
            ),
        ],
        ..shuttle("mutex")
    },
    Mutant {
        name: "mutex: taker forgets sleepers",
        rule: "negative while a CPU sleeps",
        edits: &[("mutex", "if self.sleepers.is_empty() {", "if true {")],
        ..shuttle("mutex")
    },
    Mutant {
        name: "mutex: sleeper does not mark the word",
        rule: "negative while a CPU sleeps",
        edits: &[(
            "mutex",
            "self.word.swap(AWAITED, Ordering::Acquire) == FREE",
            "self.word.compare_exchange(FREE, AWAITED, Ordering::Acquire, Ordering::Relaxed).is_ok()",
        )],
        ..shuttle("mutex")
    },
    Mutant {
        name: "mutex: release orders nothing",
        rule: "the release has release order",
        edits: &[(
            "mutex",
            "self.word.fetch_add(1, Ordering::Release)",
            "self.word.fetch_add(1, Ordering::Relaxed)",
        )],
        ..loom("mutex")
    },
    Mutant {
        name: "mutex: take without a look",
        rule: "taking has acquire order",
        edits: &[(
            "mutex",
            "self.word.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed)",
            "self.word.compare_exchange(FREE, TAKEN, Ordering::Relaxed, Ordering::Relaxed)",
        )],
        ..loom("mutex")
    },
    Mutant {
        name: "mutex: record published after the list is left",
        rule: "a handler gives the kick back",
        edits: &[(
            "mutex",
            "        let outer = cpu.waiters.publish(cpu.id, LockKey::of(self), ASLEEP);
        self.sleepers.unlock(cpu);",
            "        self.sleepers.unlock(cpu);
        let outer = cpu.waiters.publish(cpu.id, LockKey::of(self), ASLEEP);",
        )],
        ..shuttle("mutex")
    },
    Mutant {
        name: "mutex: kick owed in its sleep",
        rule: "fuse: a debt is paid before a sleep",
        edits: &[("mutex/sleepers", "        settle(cpu);\n", "")],
        ..shuttle("mutex")
    },
    Mutant {
        name: "mutex: abandoned node not skipped",
        rule: "queue: no node is left behind",
        edits: &[(
            "mutex/queued",
            "Some(next) if !cpu.waiters.links(next).grant() => node = next,",
            "Some(next) if !cpu.waiters.links(next).grant() => return,",
        )],
        ..shuttle("mutex")
    },
    Mutant {
        name: "mutex: turn missed by a leaving spinner",
        rule: "queue: a granted turn is taken",
        edits: &[("mutex/queued", "!links.abandon()", "{ links.abandon(); false }")],
        ..shuttle("mutex")
    },
    Mutant {
        name: "counter: gate read before it is announced",
        rule: "gates: announce, then look",
        edits: &[(
            "counter/gated",
            "            self.folds.fetch_add(1, Ordering::SeqCst);
            if self.sums.load(Ordering::SeqCst) == 0 {",
            "            let is_open = self.sums.load(Ordering::SeqCst) == 0;
            self.folds.fetch_add(1, Ordering::SeqCst);
            if is_open {",
        )],
        ..shuttle("counter")
    },
    Mutant {
        name: "counter: sum does not wait for folds",
        rule: "gates: a sum waits",
        edits: &[("counter/gated", "while self.folds.load(Ordering::SeqCst) != 0", "while false")],
        ..shuttle("counter")
    },
    Mutant {
        name: "counter: gates without a total order",
        rule: "gates: at least one sees the other",
        edits: &[
            (
                "counter/gated",
                "if self.sums.load(Ordering::SeqCst) == 0",
                "if self.sums.load(Ordering::Acquire) == 0",
            ),
            (
                "counter/gated",
                "while self.folds.load(Ordering::SeqCst) != 0",
                "while self.folds.load(Ordering::Acquire) != 0",
            ),
        ],
        ..loom("counter")
    },
    Mutant {
        name: "counter: fold leaves without release",
        rule: "gates: a sum sees the folds before it",
        edits: &[(
            "counter/gated",
            "self.folds.fetch_sub(1, Ordering::Release)",
            "self.folds.fetch_sub(1, Ordering::Relaxed)",
        )],
        ..loom("counter")
    },
    Mutant {
        name: "counter: part reset after the lock",
        rule: "lock: a fold is one step",
        edits: &[(
            "counter/locked",
            "        self.locals.reset(cpu.id);
        let released = self.lock.unlock(cpu);",
            "        let released = self.lock.unlock(cpu);
        self.locals.reset(cpu.id);",
        )],
        ..shuttle("counter")
    },
    Mutant {
        name: "counter: sequence moves after the reset",
        rule: "sequence: a reset part is noticed",
        edits: &[
            (
                "counter/sequence",
                "        self.shared.folds.fetch_add(1, Ordering::Release);\n",
                "",
            ),
            (
                "counter/sequence",
                "        self.locals.reset(cpu.id);",
                "        self.locals.reset(cpu.id);
        self.shared.folds.fetch_add(1, Ordering::Release);",
            ),
        ],
        ..loom("counter")
    },
    Mutant {
        name: "counter: sum never restarts",
        rule: "sequence: a fold in between counts",
        edits: &[("counter/sequence", "is_alone.then(||", "(is_alone | true).then(||")],
        ..shuttle("counter")
    },
    Mutant {
        name: "counter: parts read without acquire",
        rule: "sequence: a reset part is noticed",
        edits: &[(
            "counter/locals",
            "part.0.load(Ordering::Acquire)",
            "part.0.load(Ordering::Relaxed)",
        )],
        ..loom("counter")
    },
    Mutant {
        name: "lockref: count changed while locked",
        rule: "a held lock keeps the count",
        edits: &[("lockref", "if seen.is_locked() {", "if false {")],
        ..shuttle("lockref")
    },
    Mutant {
        name: "lockref: no last look",
        rule: "flag, then word",
        edits: &[(
            "lockref",
            "if self.0.set_flag().served() != ticket {",
            "self.0.set_flag();\n        {",
        )],
        ..shuttle("lockref")
    },
    Mutant {
        name: "lockref: wakeup dropped",
        rule: "a flagged release kicks",
        edits: &[("lockref", "cpu.pv.unlock_kick(*waiter)", "()")],
        ..shuttle("lockref")
    },
    Mutant {
        name: "lockref: nested kick not given back",
        rule: "a handler gives the kick back",
        edits: &[("lockref", "if was_nested {", "if false {")],
        ..shuttle("lockref")
    },
    Mutant {
        name: "lockref: handler in the middle of a publication",
        rule: "a record is as it was after a handler",
        edits: &[("wait", "        waiter.want.store(outer.want, Ordering::Release);\n", "")],
        ..shuttle("lockref")
    },
    Mutant {
        name: "lockref: death not checked under the lock",
        rule: "the dead stay dead",
        edits: &[(
            "lockref",
            "        counted.kicks += self.release(cpu, now.unwrap_or(count));
        (counted, now.is_some())",
            "        counted.kicks += self.release(cpu, now.unwrap_or(count + 1));
        (counted, true)",
        )],
        ..shuttle("lockref")
    },
    Mutant {
        name: "lockref: last reference seen before the lock",
        rule: "the count is read under the lock",
        edits: &[(
            "lockref",
            "let Some(now) = less(self.count()) else { return Put::Locked(counted) };",
            "let Some(now) = None else { return Put::Locked(counted) };",
        )],
        ..shuttle("lockref")
    },
    Mutant {
        name: "lockref: count changed without order",
        rule: "the last put sees the others' writes",
        edits: &[(
            "lockref/word",
            "compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Acquire)",
            "compare_exchange(from.0, to.0, Ordering::Relaxed, Ordering::Acquire)",
        )],
        ..loom("lockref")
    },
    Mutant {
        name: "lockref: word read after the release",
        rule: "freed memory is not touched",
        edits: &[(
            "lockref/word",
            "(Snapshot(old).is_flagged(), next)",
            "let _ = old; (self.load(Ordering::Acquire).is_flagged(), next)",
        )],
        ..shuttle("lockref")
    },
];
