//! A schedule's account, in words.

use std::fmt::Write;

#[cfg(feature = "bpf")]
use base::plural::agree;
use base::{plural::count, units::Nanos};
#[cfg(feature = "bpf")]
use machine::driver::BpfReport;
use machine::driver::SchedReport;
use report::{replay, words::extensions};

/// Describes the preemptions, their lock states and their costs, in a line.
pub fn summary(report: &SchedReport) -> String {
    let totals = &report.totals;
    let mut text = format!(
        "schedule: {}, {} of lock holders, {} of the next in line, {} of waiters further back",
        count(totals.preemptions, "preemption"),
        totals.lhp,
        totals.lwp,
        totals.queued,
    );
    // Writing to a String cannot fail.
    if report.counts_waste {
        let _ = write!(text, "; {} spun for preempted vCPUs", Nanos(totals.wasted_spin_ns));
    } else {
        text += ", as observed";
    }
    if totals.entering > 0 {
        let _ = write!(
            text,
            "; {} of waiters whose lock is unknown or that were acquiring one: at most this many more of holders or of the next in line",
            totals.entering
        );
    }
    if totals.guarded > 0 {
        let _ = write!(
            text,
            "; {} with the kernel's preemption disabled, maybe for a lock",
            totals.guarded
        );
    }
    if totals.unknown > 0 {
        let _ = write!(text, "; {} unclassified", totals.unknown);
    }
    if let Some(hits) = report.hits {
        let _ = write!(text, "; {}", count(hits.hits, "hit"));
        if hits.guesses > 0 {
            let _ = write!(text, " ({} by disabled preemption alone)", hits.guesses);
        }
        let _ = write!(text, ", {}", count(hits.misses, "other sample"));
    }
    if let Some(extensions) = report.extensions {
        let needed = extensions.needed;
        let times = [needed.p50, needed.p99, needed.max].map(Nanos);
        let needed = (needed.count > 0).then_some(times);
        let _ = write!(text, "; {}", extensions::summary(&extensions.counts, needed));
    }
    if totals.yields > 0 {
        let _ = write!(text, "; {}", count(totals.yields, "yield"));
    }
    if let Some(divergence) = report.divergence {
        let _ = write!(text, "; {}", replay::summary(&divergence));
    }
    text
}

/// Describes the slices that the host's kernel ended, and their lock states.
#[cfg(feature = "bpf")]
pub fn bpf_summary(report: &BpfReport) -> String {
    let BpfReport { turns, blocked, slice, forced, yielded, taken, .. } = report;
    let mut text = format!(
        "schedule in the host's kernel: {} ended: {blocked} by halts, {slice} at the end of a \
         slice, {forced} at the end of a grace, {yielded} by yields, {} for a kicked vCPU, {} injected, \
         {taken} by threads of the host, {} unasked; {} of lock holders, {} of waiters",
        count(*turns, "slice"),
        report.made_way,
        report.injected,
        report.unasked,
        report.held,
        report.waiting,
    );
    // Writing to a String cannot fail.
    if report.kept > 0 {
        let _ = write!(
            text,
            "; {} returned to a slot reserved for {}",
            count(report.kept, "halted waiter"),
            agree(report.kept, "it", "them")
        );
    }
    if report.lost > 0 {
        let _ = write!(text, "; {} {} not counted", report.lost, agree(report.lost, "is", "are"));
    }
    text
}
