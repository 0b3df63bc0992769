//! What a row's system did beside its operations, and how long they took, in words.

use super::si::{percent, si};
use crate::lab::{analysis::Row, latencies::Percentiles, sync_counters::WorkRow};
use crate::units::Nanos;
use locks::Family;

/// Lines beneath the rows of a level; `name` is the row's.
pub(super) fn lines(row: &Row, name: &str) -> Vec<String> {
    let work = row.work.and_then(|work| work_line(row, &work));
    let reader = row.work.filter(|work| work.looks > 0.0).map(|work| reader_line(&work));
    let waits = row.latencies.map(|percentiles| latency_line(&percentiles, row.open_waits));
    let lines = [work, reader, waits].into_iter().flatten();
    lines.map(|line| format!("{name}: {line}")).collect()
}

fn work_line(row: &Row, work: &WorkRow) -> Option<String> {
    match row.contender.system?.family() {
        Family::Spinlock => None,
        Family::Mutex => Some(format!(
            "{:.2} read-modify-writes of its word an acquisition, {} more for each wait; {:.2} \
             beside it; {} looks of spinners",
            work.rmw,
            si(work.rmw_each_wait),
            work.beside,
            si(work.spins)
        )),
        Family::Counter => Some(format!(
            "{} of the adds folded; {} sums/s, the farthest off by {}",
            row.slow.map_or_else(super::table::dash, percent),
            si(work.sums),
            work.deviation
        )),
        Family::Lockref => Some(format!(
            "{:.3} retries a success; {} of operations took the lock",
            work.retries,
            row.slow.map_or_else(super::table::dash, percent)
        )),
    }
}

fn reader_line(work: &WorkRow) -> String {
    format!("the last vCPU looked {} times a second", si(work.looks))
}

fn latency_line(found: &Percentiles, open: u64) -> String {
    let Percentiles { p50, p99, p999, max, by_time } = *found;
    let micros = |nanos: Nanos| si(nanos.0 as f64 / 1000.0);
    let open = match open {
        0 => String::new(),
        open => format!("; {open} had not ended"),
    };
    format!(
        "took p50 {}, p99 {}, p99.9 {}, at most {} us; by time waited p50 {}, p99 {}, p99.9 {}{open}",
        micros(p50),
        micros(p99),
        micros(p999),
        micros(max),
        micros(by_time.p50),
        micros(by_time.p99),
        micros(by_time.p999),
    )
}
