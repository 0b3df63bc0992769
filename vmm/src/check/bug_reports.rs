//! Detection of kernel bug reports in a guest's log.
//!
//! The texts are from Linux 5.15 to 7.x; each row names the file that prints it. The table covers the reports
//! that syzkaller parses (pkg/report/linux.go).

use base::sanitize;

/// Makes the kernel print timestamps. Lines without one are not from the kernel.
pub const PARAMETER: &str = "printk.time=1";

/// Characters of a line that are searched. The kernel's lines are shorter (kernel/printk/internal.h).
const MAX_LINE: usize = 2048;

/// First and last line of a `WARN` or `BUG` report (kernel/panic.c).
const REPORT_START: &str = "[ cut here ]";
const REPORT_END: &str = "---[ end trace ";

/// Position of a row's words in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The first word begins the message or follows a prefix or bracket. The others follow in order.
    Start,
    /// Anywhere in the message, in order.
    Anywhere,
}

/// The cause of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// A bug.
    Bug,
    /// A timeout. A stalled host causes it, too.
    Timeout,
}

type Row = (Place, &'static [&'static str], Reason, &'static str);

use Place::{Anywhere, Start};
use Reason::{Bug, Timeout};

/// The words of each report and the Linux file that prints it. The first matching row decides.
const TABLE: &[Row] = &[
    // Timeouts.
    (Start, &["BUG: soft lockup"], Timeout, "kernel/watchdog.c"),
    (Anywhere, &["detected hard LOCKUP"], Timeout, "kernel/watchdog.c"),
    (Start, &["BUG: workqueue lockup"], Timeout, "kernel/workqueue.c"),
    (Start, &["INFO: task ", " blocked "], Timeout, "kernel/hung_task.c"),
    (Start, &["INFO: rcu", " stall"], Timeout, "kernel/rcu/tree_stall.h, tree_exp.h, tasks.h"),
    (Start, &["rcu", " kthread starved for "], Timeout, "kernel/rcu/tree_stall.h"),
    (Start, &["rcu", " kthread timer wakeup didn't happen "], Timeout, "kernel/rcu/tree_stall.h"),
    (Anywhere, &["non-responsive CSD lock"], Timeout, "kernel/smp.c"),
    (Start, &["BUG: spinlock lockup suspected"], Timeout, "kernel/locking/spinlock_debug.c"),
    (Start, &["BUG: rwlock", "lockup"], Timeout, "kernel/locking/spinlock_debug.c"),
    (Start, &["Kernel panic", "softlockup: hung tasks"], Timeout, "kernel/watchdog.c"),
    (Start, &["Kernel panic", "LOCKUP"], Timeout, "kernel/watchdog.c"),
    (Start, &["Kernel panic", "hung_task: blocked tasks"], Timeout, "kernel/hung_task.c"),
    (Start, &["Kernel panic", "RCU Stall"], Timeout, "kernel/rcu/tree_stall.h"),
    // WARN: up to 6.18, from 6.19 on (28ea295f941e), and without a file name.
    (Start, &["WARNING: CPU: ", " at "], Bug, "kernel/panic.c"),
    (Start, &["WARNING: ", "at ", ", CPU#"], Bug, "kernel/panic.c"),
    (Start, &["WARNING: ", "at ", "+0x", "/0x"], Bug, "kernel/panic.c"),
    // Lockdep; before 4.13 with INFO in brackets.
    (Anywhere, &["possible circular locking dependency detected"], Bug, "kernel/locking/lockdep.c"),
    (Anywhere, &["possible recursive locking detected"], Bug, "kernel/locking/lockdep.c"),
    (Anywhere, &["possible irq lock inversion dependency"], Bug, "kernel/locking/lockdep.c"),
    (Anywhere, &["-safe -> ", "-unsafe lock order detected"], Bug, "kernel/locking/lockdep.c"),
    (Anywhere, &["inconsistent lock state"], Bug, "kernel/locking/lockdep.c"),
    (Anywhere, &["chain_key collision"], Bug, "kernel/locking/lockdep.c"),
    (Anywhere, &["Nested lock was not taken"], Bug, "kernel/locking/lockdep.c"),
    (Anywhere, &["bad unlock balance detected"], Bug, "kernel/locking/lockdep.c"),
    (Anywhere, &["bad contention detected"], Bug, "kernel/locking/lockdep.c"),
    (Anywhere, &["held lock freed!"], Bug, "kernel/locking/lockdep.c"),
    (Anywhere, &["still has locks held!"], Bug, "kernel/locking/lockdep.c"),
    (Anywhere, &["lock held when returning to user space"], Bug, "kernel/locking/lockdep.c"),
    (Anywhere, &["leaving the kernel with locks still held!"], Bug, "kernel/locking/lockdep.c"),
    (Anywhere, &["suspicious RCU usage"], Bug, "kernel/locking/lockdep.c"),
    (Anywhere, &["Invalid wait context"], Bug, "kernel/locking/lockdep.c"),
    (Start, &["INFO: trying to register non-static key"], Bug, "kernel/locking/lockdep.c"),
    (Anywhere, &["DEBUG_LOCKS_WARN_ON("], Bug, "include/linux/debug_locks.h"),
    (Anywhere, &["rtmutex deadlock detected"], Bug, "kernel/locking/rtmutex.c"),
    // Scheduler and context checks.
    (Anywhere, &["scheduling while atomic: "], Bug, "kernel/sched/core.c"),
    (Anywhere, &["sleeping function called from invalid context"], Bug, "kernel/sched/core.c"),
    (Start, &["bad: scheduling from the idle thread"], Bug, "kernel/sched/idle.c"),
    (Anywhere, &["corrupted stack end detected inside scheduler"], Bug, "kernel/sched/core.c"),
    // Sanitizers, memory and object checks.
    (Start, &["BUG: KASAN: "], Bug, "mm/kasan/report.c"),
    (Start, &["BUG: KCSAN: "], Bug, "kernel/kcsan/report.c"),
    (Start, &["BUG: KMSAN: "], Bug, "mm/kmsan/report.c"),
    (Start, &["BUG: KFENCE: "], Bug, "mm/kfence/report.c"),
    (Start, &["UBSAN: "], Bug, "lib/ubsan.c"),
    (Start, &["ODEBUG: ", " active state "], Bug, "lib/debugobjects.c"),
    (Start, &["ODEBUG: ", "(active state "], Bug, "lib/debugobjects.c"),
    (Start, &["refcount_t: "], Bug, "lib/refcount.c"),
    (Start, &["list_add ", "corruption"], Bug, "lib/list_debug.c"),
    (Start, &["list_add double add"], Bug, "lib/list_debug.c"),
    (Start, &["list_del corruption"], Bug, "lib/list_debug.c"),
    (Start, &["BUG ", "): "], Bug, "mm/slub.c"),
    (Anywhere, &["Kernel stack is corrupted in"], Bug, "kernel/panic.c"),
    // Exceptions. Before 6.10, the first line of an oops has only its cause and number.
    (Start, &["Oops: "], Bug, "arch/x86/kernel/dumpstack.c"),
    (Start, &["Oops - "], Bug, "arch/arm64/kernel/traps.c"),
    (Anywhere, &[": ", " [#1]"], Bug, "arch/x86/kernel/dumpstack.c"),
    (Start, &["general protection fault"], Bug, "arch/x86/kernel/traps.c"),
    (Start, &["divide error"], Bug, "arch/x86/kernel/traps.c"),
    (Start, &["invalid opcode"], Bug, "arch/x86/kernel/traps.c"),
    (Start, &["stack segment: "], Bug, "arch/x86/kernel/traps.c"),
    (Start, &["PANIC: double fault"], Bug, "arch/x86/kernel/traps.c"),
    (Start, &["double fault: "], Bug, "arch/x86/kernel/traps.c"),
    (Start, &["Missing ENDBR"], Bug, "arch/x86/kernel/cet.c"),
    (Start, &["CFI failure at "], Bug, "kernel/cfi.c"),
    (Start, &["Unable to handle kernel "], Bug, "arch/arm64/mm/fault.c"),
    (Start, &["kernel BUG at "], Bug, "lib/bug.c"),
    (Start, &["Kernel BUG at "], Bug, "lib/bug.c"),
    (Start, &["Kernel panic - not syncing"], Bug, "kernel/panic.c"),
    // The rest.
    (Start, &["WARNING: kernel stack "], Bug, "arch/x86/kernel/unwind_frame.c"),
    (Start, &["WARNING: stack recursion"], Bug, "arch/x86/kernel/dumpstack_64.c"),
    (Start, &["unregister_netdevice: waiting for "], Bug, "net/core/dev.c"),
    (Start, &["BUG: "], Bug, "spinlock_debug.c, fault.c, page_alloc.c, workqueue.c, fork.c, ..."),
];

/// Endings of the text before a report: a subsystem's prefix, or a bracket.
const PREFIX_ENDS: [&str; 2] = [": ", "[ "];

/// A bug report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BugReport<'a> {
    /// Its first line.
    pub line: &'a str,
    /// Whether it is a timeout.
    pub is_timeout: bool,
}

/// Returns the first report that contains no `allowed` text. Timeouts come last.
pub fn first<'a>(log: &'a str, allowed: &[String]) -> Option<BugReport<'a>> {
    let mut timeout = None;
    // Set inside a report that has matched no row yet: its first line, once read.
    let mut open: Option<Option<&str>> = None;
    for message in log.lines().filter_map(message) {
        let report = report_in(message).or_else(|| {
            let unknown = open.flatten().filter(|_| message.starts_with(REPORT_END))?;
            Some(BugReport { line: unknown, is_timeout: false })
        });
        match (report, open) {
            (Some(_), _) => open = None,
            (None, Some(None)) => open = Some(Some(message)),
            (None, _) if message.contains(REPORT_START) => open = Some(None),
            (None, _) => {}
        }
        match report.filter(|report| !allowed.iter().any(|text| report.line.contains(text))) {
            Some(report) if report.is_timeout => timeout = timeout.or(Some(report)),
            Some(report) => return Some(report),
            None => {}
        }
    }
    timeout
}

/// Returns the message of a kernel line: the text after the timestamp and the caller (CONFIG_PRINTK_CALLER).
/// Output of a program without a final newline may precede it.
fn message(line: &str) -> Option<&str> {
    let line = sanitize::truncate(line, MAX_LINE);
    let starts = line.match_indices('[').map(|(at, _)| &line[at..]);
    let mut rest = starts.filter_map(after_timestamp).next()?;
    while let Some((_, more)) = rest.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
        rest = more;
    }
    rest.strip_prefix(' ').map(str::trim)
}

/// The text after `[    1.234567]`.
fn after_timestamp(text: &str) -> Option<&str> {
    let (time, rest) = text.strip_prefix('[')?.split_once(']')?;
    let (seconds, micros) = time.trim_start_matches(' ').split_once('.')?;
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    (is_number(seconds) && micros.len() == 6 && is_number(micros)).then_some(rest)
}

fn report_in(line: &str) -> Option<BugReport<'_>> {
    let row = TABLE.iter().find(|(place, words, ..)| matches(line, *place, words));
    row.map(|(_, _, reason, _)| BugReport { line, is_timeout: *reason == Timeout })
}

fn matches(line: &str, place: Place, words: &[&str]) -> bool {
    let Some((first, others)) = words.split_first() else { return false };
    line.match_indices(first).any(|(at, _)| {
        let fits = place == Anywhere || is_prefix(&line[..at]);
        let rest = others.iter().try_fold(&line[at + first.len()..], |rest, word| {
            rest.find(word).map(|at| &rest[at + word.len()..])
        });
        fits && rest.is_some()
    })
}

/// Whether a message can begin after this text.
fn is_prefix(before: &str) -> bool {
    before.is_empty() || PREFIX_ENDS.iter().any(|end| before.ends_with(end))
}

#[cfg(test)]
#[path = "bug_reports_tests.rs"]
mod tests;
