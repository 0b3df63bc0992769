//! Locks that go wrong seldom, late or only on some CPUs: what a search has to find beside the mutants.
//! Each is an edit or two of the sources, as those are.

use super::WrongLock;

/// Where a waiter of a lock without a queue of its own begins to look, and where it pauses.
const LOOKS: &str = "let mut looks = Looks::new(&cpu.watch);";
const PAUSE: &str = "looks.spin(cpu.pv, u32::MAX);";

pub const WRONG_LOCKS: &[WrongLock] = &[
    WrongLock {
        name: "a waiter walks in when it has waited too long",
        lock: "TestAndSetLock",
        caught: "NotExclusive",
        edits: &[
            (
                "test_and_set.rs",
                LOOKS,
                "let mut looks = Looks::new(&cpu.watch); let mut left = 50_000_u32;",
            ),
            (
                "test_and_set.rs",
                PAUSE,
                "left -= looks.spin(cpu.pv, left).min(left); if left == 0 { return; }",
            ),
        ],
    },
    WrongLock {
        name: "a waiter that has waited too long draws another ticket",
        lock: "NativeTicketLock",
        caught: "Stuck",
        edits: &[
            (
                "native.rs",
                LOOKS,
                "let mut looks = Looks::new(&cpu.watch);
                 let (mut ticket, mut left) = (ticket, 20_000_u32);",
            ),
            (
                "native.rs",
                PAUSE,
                "left -= looks.spin(cpu.pv, left).min(left);
                 if left == 0 { (ticket, left) = (self.0.take_ticket(), 20_000); }",
            ),
        ],
    },
    WrongLock {
        name: "a ticket is skipped now and then",
        lock: "NativeTicketLock",
        caught: "Stuck",
        edits: &[(
            "ticket.rs",
            "self.head.store(head.wrapping_add(INC), Ordering::Release);",
            "let more = if head % 2_000 == 998 { INC } else { 0 };
             self.head.store(head.wrapping_add(INC + more), Ordering::Release);",
        )],
    },
    WrongLock {
        name: "every thousandth holder releases too early",
        lock: "TestAndSetLock",
        caught: "NotExclusive",
        edits: &[(
            "held.rs",
            "        self.take_without(HELD)\n",
            "        let is_taken = self.take_without(HELD);
             if is_taken && self.0.load(Ordering::Relaxed) / RELEASE % 1_000 == 999 {
                 self.release_plain();
             }
             is_taken\n",
        )],
    },
    WrongLock {
        name: "the kick after a wrap goes to the releaser",
        lock: "SmallPvTicketLock",
        caught: "Stuck",
        edits: &[(
            "pv.rs",
            "kicks += kick_or_owe(cpu, waiter, queued);",
            "kicks += kick_or_owe(cpu, if next == 0 { cpu.id } else { waiter }, queued);",
        )],
    },
    WrongLock {
        name: "the releaser clears the flag now and then",
        lock: "PvTicketLock",
        caught: "Stuck",
        edits: &[(
            "ticket.rs",
            "Head(self.head.fetch_add(INC, Ordering::SeqCst))",
            "let head = Head(self.head.fetch_add(INC, Ordering::SeqCst));
             if head.ticket() % 128 == 126 { self.head.fetch_and(!SLOWPATH, Ordering::SeqCst); }
             head",
        )],
    },
    WrongLock {
        name: "a pause a thousand times as long each time",
        lock: "TestAndSetLock",
        caught: "Stuck",
        edits: &[
            (
                "test_and_set.rs",
                LOOKS,
                "let mut looks = Looks::new(&cpu.watch); let mut pauses = 1_u64;",
            ),
            (
                "test_and_set.rs",
                PAUSE,
                "for _ in 0..pauses { cpu.pv.spin_hint(); } pauses = pauses.saturating_mul(1_000);",
            ),
        ],
    },
    WrongLock {
        name: "the seventh CPU is not in the mask",
        lock: "PvTicketLock",
        caught: "Stuck",
        edits: &[(
            "wait.rs",
            "self.waiting[cpu / BITS].fetch_or(1 << (cpu % BITS), Ordering::SeqCst);",
            "if cpu != 6 { self.waiting[cpu / BITS].fetch_or(1 << (cpu % BITS), Ordering::SeqCst); }",
        )],
    },
    WrongLock {
        name: "a waiter that was woken twice goes in",
        lock: "PvTicketLock",
        caught: "OutOfTurn",
        edits: &[(
            "pv.rs",
            "halts += u32::from(self.wait(cpu, ticket, waits));",
            "halts += u32::from(self.wait(cpu, ticket, waits)); if halts == 2 { return; }",
        )],
    },
    WrongLock {
        name: "who queues behind the sixth CPU is not linked",
        lock: "QueuedLock",
        caught: "Stuck",
        edits: &[(
            "queue.rs",
            "let before = self.come(nodes, me)?;",
            "let before = self.come(nodes, me).filter(|before| before.cpu() != 5)?;",
        )],
    },
    WrongLock {
        name: "the first CPU passes the queue",
        lock: "QueuedLock",
        caught: "Bypass",
        edits: &[(
            "queued.rs",
            "_: &Cpu<'_, P, W>) -> bool {\n        self.queue.is_empty() && self.held.take()",
            "cpu: &Cpu<'_, P, W>) -> bool {
                 (self.queue.is_empty() || cpu.id == 0) && self.held.take()",
        )],
    },
];
