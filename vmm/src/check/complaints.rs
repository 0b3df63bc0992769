//! Detection of kernel bug reports in a guest's log.
//!
//! The texts are from Linux 5.15 to 7.x; each row names the file that prints it. The table covers the reports
//! that syzkaller parses (pkg/report/linux.go).

use base::shown;

/// Makes the kernel print timestamps. Lines without one are not from the kernel.
pub const PARAMETER: &str = "printk.time=1";

/// Characters of a line that are searched. The kernel's lines are shorter (kernel/printk/internal.h).
const LONGEST: usize = 2048;

/// First and last line of a `WARN` or `BUG` report (kernel/panic.c).
const CUT: &str = "[ cut here ]";
const END: &str = "---[ end trace ";

/// Position of a row's words in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The first word begins the message or follows a subsystem's prefix. The others follow in order.
    Begin,
    /// Anywhere in the message, in order.
    Inside,
}

/// The cause of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// A bug.
    Seen,
    /// A timeout. A stalled host causes it, too.
    Time,
}

type Row = (Place, &'static [&'static str], Reason, &'static str);

use Place::{Begin, Inside};
use Reason::{Seen, Time};

/// The words of each report and the Linux file that prints it. The first matching row decides.
const TABLE: &[Row] = &[
    // Timeouts.
    (Begin, &["BUG: soft lockup"], Time, "kernel/watchdog.c"),
    (Inside, &["detected hard LOCKUP"], Time, "kernel/watchdog.c"),
    (Begin, &["BUG: workqueue lockup"], Time, "kernel/workqueue.c"),
    (Begin, &["INFO: task ", " blocked "], Time, "kernel/hung_task.c"),
    (Begin, &["INFO: rcu", " stall"], Time, "kernel/rcu/tree_stall.h, tree_exp.h, tasks.h"),
    (Begin, &["rcu", " kthread starved for "], Time, "kernel/rcu/tree_stall.h"),
    (Begin, &["rcu", " kthread timer wakeup didn't happen for "], Time, "kernel/rcu/tree_stall.h"),
    (Inside, &["non-responsive CSD lock"], Time, "kernel/smp.c"),
    (Begin, &["BUG: spinlock lockup suspected"], Time, "kernel/locking/spinlock_debug.c"),
    (Begin, &["BUG: rwlock", "lockup"], Time, "kernel/locking/spinlock_debug.c"),
    (Begin, &["Kernel panic", "softlockup: hung tasks"], Time, "kernel/watchdog.c"),
    (Begin, &["Kernel panic", "LOCKUP"], Time, "kernel/watchdog.c"),
    (Begin, &["Kernel panic", "hung_task: blocked tasks"], Time, "kernel/hung_task.c"),
    (Begin, &["Kernel panic", "RCU Stall"], Time, "kernel/rcu/tree_stall.h"),
    // WARN: up to 6.18, from 6.19 on (28ea295f941e), and without a file name.
    (Begin, &["WARNING: CPU: ", " at "], Seen, "kernel/panic.c"),
    (Begin, &["WARNING: ", "at ", ", CPU#"], Seen, "kernel/panic.c"),
    (Begin, &["WARNING: ", "at ", "+0x", "/0x"], Seen, "kernel/panic.c"),
    // Lockdep; before 4.13 with INFO in brackets.
    (Inside, &["possible circular locking dependency detected"], Seen, "kernel/locking/lockdep.c"),
    (Inside, &["possible recursive locking detected"], Seen, "kernel/locking/lockdep.c"),
    (Inside, &["possible irq lock inversion dependency"], Seen, "kernel/locking/lockdep.c"),
    (Inside, &["-safe -> ", "-unsafe lock order detected"], Seen, "kernel/locking/lockdep.c"),
    (Inside, &["inconsistent lock state"], Seen, "kernel/locking/lockdep.c"),
    (Inside, &["chain_key collision"], Seen, "kernel/locking/lockdep.c"),
    (Inside, &["Nested lock was not taken"], Seen, "kernel/locking/lockdep.c"),
    (Inside, &["bad unlock balance detected"], Seen, "kernel/locking/lockdep.c"),
    (Inside, &["bad contention detected"], Seen, "kernel/locking/lockdep.c"),
    (Inside, &["held lock freed!"], Seen, "kernel/locking/lockdep.c"),
    (Inside, &["still has locks held!"], Seen, "kernel/locking/lockdep.c"),
    (Inside, &["lock held when returning to user space"], Seen, "kernel/locking/lockdep.c"),
    (Inside, &["leaving the kernel with locks still held!"], Seen, "kernel/locking/lockdep.c"),
    (Inside, &["suspicious RCU usage"], Seen, "kernel/locking/lockdep.c"),
    (Inside, &["Invalid wait context"], Seen, "kernel/locking/lockdep.c"),
    (Begin, &["INFO: trying to register non-static key"], Seen, "kernel/locking/lockdep.c"),
    (Inside, &["DEBUG_LOCKS_WARN_ON("], Seen, "include/linux/debug_locks.h"),
    (Inside, &["rtmutex deadlock detected"], Seen, "kernel/locking/rtmutex.c"),
    // Scheduler and context checks.
    (Inside, &["scheduling while atomic: "], Seen, "kernel/sched/core.c"),
    (Inside, &["sleeping function called from invalid context"], Seen, "kernel/sched/core.c"),
    (Begin, &["bad: scheduling from the idle thread"], Seen, "kernel/sched/idle.c"),
    (Inside, &["corrupted stack end detected inside scheduler"], Seen, "kernel/sched/core.c"),
    // Sanitizers, memory and object checks.
    (Begin, &["BUG: KASAN: "], Seen, "mm/kasan/report.c"),
    (Begin, &["BUG: KCSAN: "], Seen, "kernel/kcsan/report.c"),
    (Begin, &["BUG: KMSAN: "], Seen, "mm/kmsan/report.c"),
    (Begin, &["BUG: KFENCE: "], Seen, "mm/kfence/report.c"),
    (Begin, &["UBSAN: "], Seen, "lib/ubsan.c"),
    (Begin, &["ODEBUG: ", " active state "], Seen, "lib/debugobjects.c"),
    (Begin, &["ODEBUG: ", "(active state "], Seen, "lib/debugobjects.c"),
    (Begin, &["refcount_t: "], Seen, "lib/refcount.c"),
    (Begin, &["list_add ", "corruption"], Seen, "lib/list_debug.c"),
    (Begin, &["list_add double add"], Seen, "lib/list_debug.c"),
    (Begin, &["list_del corruption"], Seen, "lib/list_debug.c"),
    (Begin, &["BUG ", "): "], Seen, "mm/slub.c"),
    (Inside, &["Kernel stack is corrupted in"], Seen, "kernel/panic.c"),
    // Exceptions. Before 6.10, the first line of an oops has only its cause and number.
    (Begin, &["Oops: "], Seen, "arch/x86/kernel/dumpstack.c"),
    (Begin, &["Oops - "], Seen, "arch/arm64/kernel/traps.c"),
    (Inside, &[": ", " [#1]"], Seen, "arch/x86/kernel/dumpstack.c"),
    (Begin, &["general protection fault"], Seen, "arch/x86/kernel/traps.c"),
    (Begin, &["divide error"], Seen, "arch/x86/kernel/traps.c"),
    (Begin, &["invalid opcode"], Seen, "arch/x86/kernel/traps.c"),
    (Begin, &["stack segment: "], Seen, "arch/x86/kernel/traps.c"),
    (Begin, &["PANIC: double fault"], Seen, "arch/x86/kernel/traps.c"),
    (Begin, &["double fault: "], Seen, "arch/x86/kernel/traps.c"),
    (Begin, &["Missing ENDBR"], Seen, "arch/x86/kernel/cet.c"),
    (Begin, &["CFI failure at "], Seen, "kernel/cfi.c"),
    (Begin, &["Unable to handle kernel "], Seen, "arch/arm64/mm/fault.c"),
    (Begin, &["kernel BUG at "], Seen, "lib/bug.c"),
    (Begin, &["Kernel BUG at "], Seen, "lib/bug.c"),
    (Begin, &["Kernel panic - not syncing"], Seen, "kernel/panic.c"),
    // The rest.
    (Begin, &["WARNING: kernel stack "], Seen, "arch/x86/kernel/unwind_frame.c"),
    (Begin, &["WARNING: stack recursion"], Seen, "arch/x86/kernel/dumpstack_64.c"),
    (Begin, &["unregister_netdevice: waiting for "], Seen, "net/core/dev.c"),
    (Begin, &["BUG: "], Seen, "spinlock_debug.c, fault.c, page_alloc.c, workqueue.c, fork.c, ..."),
];

/// Endings of the text before a report: a subsystem's prefix, or a bracket.
const BEFORE: [&str; 2] = [": ", "[ "];

/// A bug report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Complaint<'a> {
    /// Its first line.
    pub line: &'a str,
    /// Whether it is a timeout.
    pub is_by_time: bool,
}

/// Returns the first report that contains no `allowed` text. Timeouts come last.
pub fn first<'a>(log: &'a str, allowed: &[String]) -> Option<Complaint<'a>> {
    let mut late = None;
    // Set inside a report that has matched no row yet: its first line, once read.
    let mut cut: Option<Option<&str>> = None;
    for message in log.lines().filter_map(message) {
        let complaint = complaint(message).or_else(|| {
            let unknown = cut.flatten().filter(|_| message.starts_with(END))?;
            Some(Complaint { line: unknown, is_by_time: false })
        });
        match (complaint, cut) {
            (Some(_), _) => cut = None,
            (None, Some(None)) => cut = Some(Some(message)),
            (None, _) if message.contains(CUT) => cut = Some(None),
            (None, _) => {}
        }
        match complaint.filter(|found| !allowed.iter().any(|text| found.line.contains(text))) {
            Some(found) if found.is_by_time => late = late.or(Some(found)),
            Some(found) => return Some(found),
            None => {}
        }
    }
    late
}

/// Returns the message of a kernel line: the text after the timestamp and the caller (CONFIG_PRINTK_CALLER).
/// Output of a program without a final newline may precede it.
fn message(line: &str) -> Option<&str> {
    let line = shown::cut(line, LONGEST);
    let starts = line.match_indices('[').map(|(at, _)| &line[at..]);
    let mut rest = starts.filter_map(behind_time).next()?;
    while let Some((_, more)) = rest.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
        rest = more;
    }
    rest.strip_prefix(' ').map(str::trim)
}

/// The text after `[    1.234567]`.
fn behind_time(text: &str) -> Option<&str> {
    let (time, rest) = text.strip_prefix('[')?.split_once(']')?;
    let (seconds, micros) = time.trim_start_matches(' ').split_once('.')?;
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    (is_number(seconds) && micros.len() == 6 && is_number(micros)).then_some(rest)
}

fn complaint(line: &str) -> Option<Complaint<'_>> {
    let row = TABLE.iter().find(|(place, words, ..)| matches(line, *place, words));
    row.map(|(_, _, reason, _)| Complaint { line, is_by_time: *reason == Time })
}

fn matches(line: &str, place: Place, words: &[&str]) -> bool {
    let Some((first, others)) = words.split_first() else { return false };
    line.match_indices(first).any(|(at, _)| {
        let is_there = place == Inside || is_begin(&line[..at]);
        let rest = others.iter().try_fold(&line[at + first.len()..], |rest, word| {
            rest.find(word).map(|at| &rest[at + word.len()..])
        });
        is_there && rest.is_some()
    })
}

/// Whether a message can begin after this text.
fn is_begin(before: &str) -> bool {
    before.is_empty() || BEFORE.iter().any(|end| before.ends_with(end))
}

#[cfg(test)]
#[path = "complaints_tests.rs"]
mod tests;
