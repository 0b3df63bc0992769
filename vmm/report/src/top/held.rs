//! Which vCPUs hold locks, and which wait for them.

use base::{plural::count, units::Nanos};
use sched::{LockActivity, LockId};
use study::live::CellView;

/// The most locks that get a line.
const SHOWN: usize = 4;

/// A vCPU's lock activity at `at`, in a few words.
pub(super) fn words(activity: &LockActivity, at: Nanos) -> String {
    match *activity {
        LockActivity::Unknown => "-".to_owned(),
        LockActivity::Free => "free".to_owned(),
        LockActivity::Guarded => "preemption disabled".to_owned(),
        LockActivity::Entering => "draws a ticket".to_owned(),
        LockActivity::Holding { lock, depth }
        | LockActivity::HoldingSeveral { lock, depth, .. } => {
            let lock = lock.map_or_else(|| "a lock".to_owned(), name);
            let more = if depth > 1 { format!(", {depth} in all") } else { String::new() };
            format!("holds {lock}{more}")
        }
        LockActivity::Waiting { lock, ticket, distance, since, halted } => {
            let how = if halted { "halts" } else { "spins" };
            let place = match distance {
                None => String::new(),
                Some(0) => ", is served".to_owned(),
                Some(1) => ", next in line".to_owned(),
                Some(before) => format!(", {before} before it"),
            };
            let waited = waited(since, at);
            format!("{how} for {}, ticket {ticket}{place}{waited}", name(lock))
        }
        LockActivity::Outside { lock, queued, since } => {
            let queue = queued.map_or_else(String::new, |queued| format!(", {queued} queue"));
            format!("outside of the queue of {}{queue}{}", name(lock), waited(since, at))
        }
        LockActivity::Kicking { lock, ticket } => {
            format!("about to kick for {}, ticket {ticket}", name(lock))
        }
    }
}

/// How long it has waited at `at`, if known.
fn waited(since: Nanos, at: Nanos) -> String {
    match since {
        Nanos::ZERO => String::new(),
        since => format!(", {}", rounded(at.since(since))),
    }
}

fn name(lock: LockId) -> String {
    format!("{:#x}", lock.0)
}

/// Rounded to about three digits.
fn rounded(span: Nanos) -> Nanos {
    let unit = match span.0 {
        n if n < 1_000_000 => 100,
        n if n < 1_000_000_000 => 100_000,
        _ => 100_000_000,
    };
    Nanos(span.0 / unit * unit)
}

/// What the telemetry says about one lock.
#[derive(Debug)]
struct LockQueue {
    vm: u32,
    lock: LockId,
    holders: Vec<u32>,
    spinning: u32,
    halted: u32,
    outside: u32,
    /// The ticket being served.
    head: Option<u16>,
    last: Option<(u16, u16)>,
}

/// One line per lock that is held or awaited; of many, those with the most waiters.
pub(super) fn lines(view: &CellView, name_of: impl Fn(u32, u32) -> String) -> Vec<String> {
    let mut queues: Vec<LockQueue> = Vec::new();
    for vcpu in &view.vcpus {
        let Some(lock) = vcpu.locks.lock() else { continue };
        let known = queues.iter().position(|queue| (queue.vm, queue.lock) == (vcpu.vm, lock));
        let ix = known.unwrap_or_else(|| {
            let (holders, vm) = (Vec::new(), vcpu.vm);
            let (spinning, halted, outside, head, last) = (0, 0, 0, None, None);
            queues.push(LockQueue { vm, lock, holders, spinning, halted, outside, head, last });
            queues.len() - 1
        });
        let queue = &mut queues[ix];
        match vcpu.locks {
            LockActivity::Waiting { ticket, distance, halted, .. } => {
                let count = if halted { &mut queue.halted } else { &mut queue.spinning };
                *count += 1;
                queue.head = vcpu.locks.head().or(queue.head);
                queue.last = queue.last.max(distance.map(|distance| (distance, ticket)));
            }
            LockActivity::Outside { .. } => queue.outside += 1,
            LockActivity::Kicking { ticket, .. } => queue.head = queue.head.or(Some(ticket)),
            _ => queue.holders.push(vcpu.vcpu),
        }
    }
    queues.sort_by_key(|queue| std::cmp::Reverse(queue.spinning + queue.halted + queue.outside));
    let more = queues.len().saturating_sub(SHOWN);
    let mut lines: Vec<String> =
        queues.iter().take(SHOWN).map(|queue| line(queue, &name_of)).collect();
    if more > 0 {
        lines.push(format!("  and {}", count(more, "more lock")));
    }
    lines
}

fn line(queue: &LockQueue, name_of: impl Fn(u32, u32) -> String) -> String {
    let holders: Vec<String> = queue.holders.iter().map(|id| name_of(queue.vm, *id)).collect();
    let held = match holders.as_slice() {
        [] => "no holder seen".to_owned(),
        some => format!("held by {}", some.join(", ")),
    };
    let mut text = format!(
        "  lock {}: {held}; {} spin for it, {} halt",
        name(queue.lock),
        queue.spinning,
        queue.halted
    );
    if queue.outside > 0 {
        text += &format!(", {} outside", queue.outside);
    }
    if let Some(head) = queue.head {
        text += &format!("; head {head}");
    }
    if let Some((_, last)) = queue.last {
        text += &format!(", last ticket {last}");
    }
    text
}
