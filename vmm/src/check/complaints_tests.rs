use super::*;

/// A log of one line of the kernel's.
fn found(message: &str) -> Option<bool> {
    let log = format!("[    1.234567] {message}\n");
    first(&log, &[]).map(|complaint| complaint.is_by_time)
}

/// Printed by kernels from 5.15 to 7.x.
const SEEN: &[&str] = &[
    "WARNING: CPU: 1 PID: 9 at kernel/locking/qspinlock.c:12 f+0x1/0x20",
    "WARNING: CPU: 1 PID: 9 at f+0x1/0x20",
    "WARNING: kernel/locking/qspinlock.c:12 at f+0x1/0x20, CPU#1: swapper/0/1",
    "WARNING: [lock->owner != me] kernel/locking/mutex.c:9 at f+0x1/0x20, CPU#0: sh/77",
    "WARNING: kernel/locking/mutex.c:9 at f+0x1/0x20",
    "WARNING: at f+0x1/0x20, CPU#1: swapper/0/1",
    "WARNING: possible circular locking dependency detected",
    "WARNING: possible recursive locking detected",
    "WARNING: possible irq lock inversion dependency detected",
    "WARNING: HARDIRQ-safe -> HARDIRQ-unsafe lock order detected",
    "WARNING: inconsistent lock state",
    "WARNING: bad unlock balance detected!",
    "WARNING: bad contention detected!",
    "WARNING: held lock freed!",
    "WARNING: Nested lock was not taken",
    "WARNING: chain_key collision",
    "WARNING: sh/77 still has locks held!",
    "WARNING: lock held when returning to user space!",
    "WARNING: suspicious RCU usage",
    "[ BUG: Invalid wait context ]",
    "[ INFO: possible recursive locking detected ]",
    "INFO: trying to register non-static key.",
    "DEBUG_LOCKS_WARN_ON(lock->magic != lock)",
    "rtmutex deadlock detected",
    "BUG: spinlock bad magic on CPU#0, swapper/0/0",
    "BUG: spinlock wrong owner on CPU#0, swapper/0/0",
    "BUG: spinlock already unlocked on CPU#1, sh/77",
    "BUG: spinlock recursion on CPU#1, sh/77",
    "BUG: rwlock bad magic on CPU#0, swapper/0/0, 00000000deadbeef",
    "BUG: scheduling while atomic: swapper/1/0/0x00000002",
    "BUG: sleeping function called from invalid context at kernel/locking/mutex.c:585",
    "BUG: using smp_processor_id() in preemptible [00000000] code: sh/77",
    "BUG: using __this_cpu_add() in preemptible [00000000] code: sh/77",
    "BUG: workqueue leaked atomic, lock or RCU: kworker/0:1[9]",
    "BUG: KASAN: slab-use-after-free in f+0x1/0x2",
    "BUG: KCSAN: data-race in f / g",
    "BUG: KMSAN: uninit-value in f+0x1/0x2",
    "BUG: KFENCE: use-after-free read in f+0x1/0x2",
    "UBSAN: array-index-out-of-bounds in lib/x.c:1:2",
    "ODEBUG: activate active (active state 0) object: 00000000deadbeef object type: timer_list hint: f",
    "ODEBUG: free active (active state 0) object type: timer_list hint: f",
    "refcount_t: underflow; use-after-free.",
    "list_add corruption. prev->next should be next (1), but was 2. (prev=3).",
    "list_del corruption. next->prev should be 1, but was 2. (next=3)",
    "list_add double add: new=1, prev=2, next=3.",
    "BUG kmalloc-64 (Not tainted): Poison overwritten",
    "BUG: Bad page state in process sh  pfn:00123",
    "BUG: Bad rss-counter state mm:1 type:MM_ANONPAGES val:1",
    "BUG: kernel NULL pointer dereference, address: 0000000000000000",
    "BUG: unable to handle page fault for address: ffffffff00000000",
    "BUG: unable to handle kernel paging request at ffffffff00000000",
    "BUG: TASK stack guard page was hit at 1 (stack is 2..3)",
    "Oops: general protection fault, probably for non-canonical address 0x1: 0000 [#1] SMP",
    "Oops: 0002 [#1] PREEMPT SMP NOPTI",
    "general protection fault, probably for non-canonical address 0x1: 0000 [#1] SMP",
    "invalid opcode: 0000 [#1] PREEMPT SMP",
    "divide error: 0000 [#1] SMP",
    "stack segment: 0000 [#1] SMP",
    "int3: 0000 [#1] PREEMPT SMP",
    "PANIC: double fault, error_code: 0x0",
    "traps: PANIC: double fault, error_code: 0x0",
    "kernel BUG at kernel/locking/x.c:12!",
    "Kernel panic - not syncing: Attempted to kill init! exitcode=0x0000000b",
    "Kernel panic - not syncing: stack-protector: Kernel stack is corrupted in: f+0x1/0x2",
    "Kernel panic - not syncing: corrupted stack end detected inside scheduler",
    "unregister_netdevice: waiting for lo to become free. Usage count = 2",
    "WARNING: kernel stack regs at 1 in sh:77 has bad 'bp' value 2",
];

const BY_TIME: &[&str] = &[
    "watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [sh:77]",
    "NMI watchdog: Watchdog detected hard LOCKUP on cpu 0",
    "watchdog: CPU3: Watchdog detected hard LOCKUP on cpu 2",
    "watchdog: Watchdog detected hard LOCKUP on cpu 1",
    "INFO: task sh:77 blocked for more than 120 seconds.",
    "INFO: task sh:77 blocked in I/O wait for more than 120 seconds.",
    "INFO: rcu_preempt detected stalls on CPUs/tasks:",
    "rcu: INFO: rcu_sched self-detected stall on CPU",
    "rcu: INFO: rcu_preempt self-detected stall on CPU { 1}",
    "rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 1-... } 21 jiffies s: 9",
    "rcu: INFO: rcu_preempt detected stall, but suppressed full report due to a stuck CSD-lock.",
    "INFO: rcu_tasks detected stalls on tasks:",
    "INFO: rcu_tasks_trace detected stalls on tasks:",
    "rcu: rcu_preempt kthread starved for 5250 jiffies! g9 f0x0",
    "BUG: workqueue lockup - pool cpus=0 node=0 flags=0x0 nice=0 stuck for 31s!",
    "smp: csd: Detected non-responsive CSD lock (#1) on CPU#1, waiting 5000000000 ns for CPU#00",
    "BUG: spinlock lockup suspected on CPU#1, sh/77",
    "Kernel panic - not syncing: softlockup: hung tasks",
    "Kernel panic - not syncing: Hard LOCKUP",
    "Kernel panic - not syncing: hung_task: blocked tasks",
    "Kernel panic - not syncing: RCU Stall",
];

/// Lines that look like one, of kernels with nothing wrong.
const HARMLESS: &[&str] = &[
    "Warning: unable to open an initial console.",
    "Spectre V2 : WARNING: Unprivileged eBPF is enabled with eIBRS on, data leaks possible via Spectre v2 BHB attacks!",
    "RETBleed: WARNING: Spectre v2 mitigation leaves CPU vulnerable to RETBleed attacks, data leaks possible!",
    "Speculative Return Stack Overflow: WARNING: See https://kernel.org/doc/html/latest/admin-guide/hw-vuln/srso.html for mitigation options.",
    "MMIO Stale Data: WARNING: kernel not compiled with MITIGATION_SRSO.",
    "WARNING: workqueue cpumask: online intersect > possible intersect",
    "WARNING: Flushing system-wide workqueues will be prohibited in near future.",
    "WARNING: polling idle and HT enabled, performance may degrade",
    "mtrr: WARNING: BIOS bug: CPU MTRRs don't cover all of memory, losing 1MB of RAM.",
    "[Firmware Bug]: TSC_DEADLINE disabled due to Errata; please update microcode to version: 0x52",
    "clocksource: timekeeping watchdog on CPU1: Marking clocksource 'tsc' as unstable because the skew is too large:",
    "workqueue: f hogged CPU for >10000us 4 times, consider switching to WQ_UNBOUND",
    "perf: interrupt took too long (2501 > 2500), lowering kernel.perf_event_max_sample_rate to 79000",
    "INFO: NMI handler (f) took too long to run: 1.234 msecs",
    "INFO: lockdep is turned off.",
    "INFO: Stall ended before state dump start",
    "rcu: \tRCU CPU stall warnings timeout set to 21 (rcu_cpu_stall_timeout).",
    "rcu: RCU event tracing is enabled.",
    "hrtimer: interrupt took 1234567 ns",
    "NMI watchdog: Perf NMI watchdog permanently disabled",
    "watchdog: Delayed init of the lockup detector failed: -19",
    "sched: DL replenish lagged too much",
    "ODEBUG: Out of memory. ODEBUG disabled",
    "ODEBUG: selftest passed",
    "traps: sh[77] general protection fault ip:1 sp:2 error:0 in sh[3+4]",
    "sh[77]: segfault at 0 ip 0000000000000001 sp 2 error 4 in sh[3+4]",
    "Kernel command line: oops=panic panic_on_warn=1 loglevel=5 foo=BUG",
    "x86/fpu: Supporting XSAVE feature 0x001: 'x87 floating point registers'",
    "Disabling lock debugging due to kernel taint",
    "foo: loading out-of-tree module taints kernel.",
    "CPU: 1 UID: 0 PID: 77 Comm: sh Tainted: G        W           6.12.0 #1",
    "---[ end Kernel panic ]---",
    "random: crng init done",
    "ACPI BIOS Warning (bug): Invalid length for FADT/Pm1aControlBlock: 32, using default 16",
    "kauditd_printk_skb: 3 callbacks suppressed",
    "printk: legacy console [ttyS0] enabled",
];

/// Regression: of eleven reports that a kernel can print one was seen, and none of `WARN` since Linux 6.19.
#[test]
fn reports_of_every_kind_are_found() {
    for line in SEEN {
        assert_eq!(found(line), Some(false), "{line}");
    }
    for line in BY_TIME {
        assert_eq!(found(line), Some(true), "{line}");
    }
}

#[test]
fn lines_that_look_like_a_report_are_none() {
    for line in HARMLESS {
        assert_eq!(found(line), None, "{line}");
    }
}

#[test]
fn each_row_has_a_source_and_is_reached() {
    for (place, words, reason, source) in TABLE {
        assert!(source.contains(".c") || source.contains(".h"), "{words:?}: {source}");
        let line = words.concat();
        assert!(matches(&line, *place, words), "{words:?}");
        let is_by_time = complaint(&line).map(|complaint| complaint.is_by_time);
        assert_eq!(is_by_time, Some(*reason == Time), "{words:?} is behind another row");
    }
}

/// A program of the guest's can print what it wants, but on its own lines.
#[test]
fn lines_without_the_kernels_time_are_not_the_kernels() {
    let report = "BUG: spinlock bad magic on CPU#0, swapper/0/0";
    let lines = |before: &str| first(&format!("{before}{report}\n"), &[]).is_some();
    for before in ["", "bench: ", "[1] ", "[ 1.5] ", "[    1.234567]", "[   a.234567] ", "[T1] "] {
        assert!(!lines(before), "{before:?}");
    }
    for before in [
        "[    1.234567] ",
        "[12345.234567] ",
        "[    1.234567][    T1] ",
        "[    1.234567][   C12][ sh:77 ] ",
        "without an end[    1.234567] ",
    ] {
        assert!(lines(before), "{before:?}");
    }
}

#[test]
fn allowed_reports_are_passed_over() {
    let log = "[    1.000001] WARNING: drivers/x.c:1 at f+0x1/0x2, CPU#0: sh/7\n\
               [    2.000001] BUG: spinlock bad magic on CPU#0, sh/7\n";
    let line = |allowed: &[&str]| {
        let allowed: Vec<String> = allowed.iter().map(|text| (*text).to_owned()).collect();
        first(log, &allowed).map(|complaint| complaint.line)
    };
    assert!(line(&[]).unwrap().starts_with("WARNING: drivers/x.c"));
    assert!(line(&["drivers/x.c"]).unwrap().starts_with("BUG: spinlock"));
    assert_eq!(line(&["drivers/x.c", "spinlock bad magic"]), None);
}

#[test]
fn a_mistake_counts_before_what_took_too_long() {
    let log = "[    1.000001] watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [sh:7]\n\
               [    2.000001] BUG: spinlock bad magic on CPU#0, sh/7\n";
    assert!(!first(log, &[]).unwrap().is_by_time);
}

#[test]
fn a_report_in_words_that_are_not_known_is_one() {
    let cut = "[    1.000001] ------------[ cut here ]------------\n";
    let end = "[    1.000009] ---[ end trace 0000000000000000 ]---\n";
    let log = format!("{cut}[    1.000002] Broken: in new words\n[    1.000003] RIP: f\n{end}");
    assert_eq!(first(&log, &[]).unwrap().line, "Broken: in new words");
    let known = format!(
        "{cut}[    1.000002] its text\n[    1.000003] WARNING: CPU: 0 PID: 1 at x.c:1 f+1\n{end}"
    );
    assert!(first(&known, &[]).unwrap().line.starts_with("WARNING: "));
    assert_eq!(first(&known, &["x.c:1".into()]), None);
    assert_eq!(first(end, &[]), None);
}
