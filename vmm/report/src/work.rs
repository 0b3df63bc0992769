//! Lines about a point's lock: what it did besides its operations, and how long the operations took.

use locks::Family;

use super::{
    compare::dash,
    figures::scale::time,
    si::{percent, si},
    words::sentences::is_of_switches,
};
use base::{plural::noun, units::Nanos};
use study::{
    findings::{PointStudy, Timed, point::Times},
    latencies::Percentiles,
    sync_counters::WorkRow,
};

/// Lines beneath a point's row.
pub(super) fn lines(point: &PointStudy) -> Vec<String> {
    let work = point.work.and_then(|work| work_line(point, &work));
    let reader = point.work.filter(|work| work.looks > 0.0).map(|work| reader_line(&work));
    let waits = point.timed(Timed::Operation);
    let waits = waits.map(|times| {
        if is_of_switches(&point.point) {
            switch_line(times)
        } else {
            latency_line(point.point.lock.family(), &times.percentiles, point.open_waits)
        }
    });
    [work, reader, waits].into_iter().flatten().collect()
}

fn work_line(point: &PointStudy, work: &WorkRow) -> Option<String> {
    match point.point.lock.family() {
        Family::Spinlock => None,
        Family::Mutex => Some(format!(
            "{:.2} read-modify-writes of its word per acquisition, {} more per wait; {:.2} \
             of other words; {} {} of spinners",
            work.rmw,
            si(work.rmw_each_wait),
            work.beside,
            si(work.spins),
            noun(work.spins, "look")
        )),
        Family::Counter => Some(format!(
            "{} of the adds folded; {} sums/s, the farthest off by {}",
            point.slow.map_or_else(dash, percent),
            si(work.sums),
            work.deviation
        )),
        Family::Lockref => Some(format!(
            "{:.3} retries per success; {} of operations took the lock",
            work.retries,
            point.slow.map_or_else(dash, percent)
        )),
    }
}

fn reader_line(work: &WorkRow) -> String {
    format!("the last vCPU looked {} times a second", si(work.looks))
}

/// The line of a workload that measures switches. Each time is the lower bound of its histogram bucket, up to 6 % less
/// than the time measured.
fn switch_line(times: &Times) -> String {
    let Percentiles { p50, p99, max, .. } = times.percentiles;
    let all = || times.timings.pairs().iter().filter(|(_, count)| *count > 0);
    let least = all().map(|(nanos, _)| *nanos).min().unwrap_or_default();
    let switches = all().fold(0u64, |sum, (_, count)| sum.saturating_add(*count));
    format!(
        "{} {}, from one vCPU's last look at its clock to the next one's first: at least {}, p50 {}, \
         p99 {}, at most {}",
        si(switches as f64),
        noun(switches, "switch"),
        time(least as f64),
        time(p50.0 as f64),
        time(p99.0 as f64),
        time(max.0 as f64),
    )
}

/// The line about latencies. `open`: how many operations had not ended when the measurement window ended.
fn latency_line(family: Family, found: &Percentiles, open: f64) -> String {
    let what = match family {
        Family::Spinlock | Family::Mutex => "waits",
        Family::Counter => "adds",
        Family::Lockref => "gets and puts",
    };
    let Percentiles { p50, p99, p999, max, by_time } = *found;
    let micros = |nanos: Nanos| si(nanos.0 as f64 / 1000.0);
    let open = if open > 0.0 { format!("; {open} had not ended") } else { String::new() };
    format!(
        "latencies of {what}: p50 {}, p99 {}, p99.9 {}, at most {} us; by time: p50 {}, p99 {}, p99.9 {}{open}",
        micros(p50),
        micros(p99),
        micros(p999),
        micros(max),
        micros(by_time.p50),
        micros(by_time.p99),
        micros(by_time.p999),
    )
}
