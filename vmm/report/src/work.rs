//! Lines about a point's lock: its activity besides operations, and the durations of operations.

use locks::Family;

use super::{
    figures::scale::time,
    si::{percent, si},
    words::sentences::is_of_switches,
};
use base::plural::noun;
use study::{
    findings::{PointStudy, Timed, point::Times},
    latencies::Percentiles,
    sync_counters::WorkRow,
};

/// Lines about a point, without its latencies, which have a table.
pub(super) fn lines(point: &PointStudy) -> Vec<String> {
    let work = point.work.and_then(|work| work_line(point, &work));
    let reader = point.work.filter(|work| work.looks > 0.0).map(|work| reader_line(&work));
    let switches = point.times_of(Timed::Operation).filter(|_| is_of_switches(&point.point));
    let open = (point.open_waits > 0.0)
        .then(|| format!("{} unfinished waits count with their length so far", point.open_waits));
    [work, reader, switches.map(switch_line), open].into_iter().flatten().collect()
}

fn work_line(point: &PointStudy, work: &WorkRow) -> Option<String> {
    match point.point.lock.family() {
        Family::Spinlock => None,
        Family::Mutex => Some(format!(
            "{:.2} read-modify-writes of its word per acquisition, {} more per wait; {:.2} \
             of other words; {} {}",
            work.rmw,
            si(work.rmw_each_wait),
            work.beside,
            si(work.spins),
            noun(work.spins, "spin iteration")
        )),
        Family::Counter => Some(format!(
            "{} of the adds folded; {} sums/s, largest error {}",
            point.slow.map_or_else(|| "-".to_owned(), percent),
            si(work.sums),
            work.deviation
        )),
        Family::Lockref => Some(format!(
            "{:.3} retries per success; {} of operations took the lock",
            work.retries,
            point.slow.map_or_else(|| "-".to_owned(), percent)
        )),
    }
}

fn reader_line(work: &WorkRow) -> String {
    format!("the last vCPU read the line {} times a second", si(work.looks))
}

/// The line of a workload that measures switches. Each printed time is the lower bound of its histogram bucket, up to
/// 6 % below the measured time.
fn switch_line(times: &Times) -> String {
    let Percentiles { p50, p99, max, .. } = times.percentiles;
    let nonempty = || times.timings.pairs().iter().filter(|(_, count)| *count > 0);
    let least = nonempty().map(|(nanos, _)| *nanos).min().unwrap_or_default();
    let switches = nonempty().fold(0u64, |sum, (_, count)| sum.saturating_add(*count));
    format!(
        "{} {}, from the last clock read of one vCPU to the first of the next: at least {}, p50 {}, \
         p99 {}, at most {}",
        si(switches as f64),
        noun(switches, "switch"),
        time(least as f64),
        time(p50.0 as f64),
        time(p99.0 as f64),
        time(max.0 as f64),
    )
}
