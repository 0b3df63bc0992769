//! Mutants of the VMM's halts and of the latch below them.

use crate::mutants::{Mutant, loom, shuttle};

/// Each breaks one rule of the protocol.
pub const HALT_MUTANTS: &[Mutant] = &[
    Mutant {
        name: "halts: sleep without a second look",
        rule: "a kick ends at most one halt",
        edits: &[("protocol", "while latch.is_parked() {", "if latch.is_parked() {")],
        ..shuttle("halts")
    },
    Mutant {
        name: "halts: kicks consumed without a look",
        rule: "a halt sees what was before each kick",
        edits: &[(
            "latch",
            "self.0.swap(IDLE, SeqCst);",
            "self.0.store(IDLE, core::sync::atomic::Ordering::Release);",
        )],
        ..loom("halts")
    },
    Mutant {
        name: "halts: kick orders nothing before it",
        rule: "a halt sees what was before each kick",
        edits: &[(
            "latch",
            "match self.0.swap(PENDING, SeqCst) {",
            "match self.0.swap(PENDING, core::sync::atomic::Ordering::Relaxed) {",
        )],
        ..loom("halts")
    },
    Mutant {
        name: "halts: latch cleared before the sleep",
        rule: "a kick ends at most one halt",
        edits: &[
            ("protocol", "        latch.unpark();\n", ""),
            (
                "protocol",
                "        match (halts.host.scheduler(), handed) {",
                "        latch.unpark();\n        match (halts.host.scheduler(), handed) {",
            ),
        ],
        ..shuttle("halts")
    },
    Mutant {
        name: "halts: stop says so last",
        rule: "no thread sleeps after stop",
        edits: &[
            ("protocol", "        self.stopping.store(true, SeqCst);\n", ""),
            (
                "protocol",
                "            scheduler.stop();\n        }\n",
                "            scheduler.stop();\n        }\n        self.stopping.store(true, SeqCst);\n",
            ),
        ],
        ..shuttle("halts")
    },
    Mutant {
        name: "halts: stop leaves no kick",
        rule: "no thread sleeps after stop",
        edits: &[("protocol", "            state.latch.kick();\n", "")],
        ..shuttle("halts")
    },
    Mutant {
        name: "halts: handed wakeup lost in a halt that returns at once",
        rule: "kick and hand-over: no kick is lost",
        edits: &[(
            "protocol",
            "        if let Some(wakeup) = handed {
            wakeup.deliver(Some(id));
        }
        None",
            "        drop(handed);\n        None",
        )],
        ..shuttle("halts")
    },
    Mutant {
        name: "halts: handed wakeup lost without a scheduler",
        rule: "kick and hand-over: no kick is lost",
        edits: &[(
            "protocol",
            "                if let Some(wakeup) = handed {
                    wakeup.deliver(Some(id));
                }
",
            "                drop(handed);\n",
        )],
        ..shuttle("halts")
    },
    Mutant {
        name: "halts: handed wakeup lost by the scheduler's call",
        rule: "kick and hand-over: no kick is lost",
        edits: &[("protocol", "scheduler.hand_over(wakeup.target, id)", "scheduler.halt(id)")],
        ..shuttle("halts")
    },
    Mutant {
        name: "halts: late kick published without order",
        rule: "the courier sees the kick it takes",
        edits: &[(
            "delayed",
            "self.written.store(written.wrapping_add(1), Release);",
            "self.written.store(written.wrapping_add(1), Relaxed);",
        )],
        ..loom("halts")
    },
    Mutant {
        name: "halts: late kick overwritten in a full queue",
        rule: "delayed kick: no kick is lost",
        edits: &[(
            "delayed",
            "            return false;\n        }\n        let place",
            "        }\n        let place",
        )],
        ..shuttle("halts")
    },
    Mutant {
        name: "halts: each look of a halt is for stop, too",
        harmless: Some("stop leaves a kick in each latch, which ends the halt"),
        rule: "no thread sleeps after stop",
        edits: &[(
            "protocol",
            "while latch.is_parked() {",
            "while latch.is_parked() && !halts.is_stopping() {",
        )],
        ..loom("halts")
    },
];
