//! The results of a schedule.

use hdrhistogram::Histogram;
use serde::Serialize;

use super::{
    capture::TraceData,
    stats::{self, Histograms, Stats},
};
use base::units::Nanos;
use sched::{
    accounting::{Preemption, Totals},
    core::Core,
    extensions::{ExtensionCounts, Extensions},
    policy::{Divergence, Hits},
    recording::Recording,
    times::HandoffTimes,
};

/// Summary of a distribution of times, in nanoseconds.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Latency {
    /// Number of samples.
    pub count: u64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// Maximum.
    pub max: u64,
}

impl Latency {
    pub(super) fn from_histogram(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        Self {
            count: histogram.len(),
            p50: histogram.value_at_quantile(0.5),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            max: histogram.max(),
        }
    }
}

/// Slice extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ExtensionReport {
    /// Counts by outcome.
    #[serde(flatten)]
    pub counts: ExtensionCounts,
    /// Time from the end of a slice until its vCPU has released its lock and slot, or the extension overran.
    pub needed: Latency,
}

impl ExtensionReport {
    pub(super) fn new(extensions: &Extensions) -> Self {
        let mut needed = stats::histogram();
        for (nanos, count) in extensions.needed() {
            needed.saturating_record_n(nanos.0.max(1), count);
        }
        Self { counts: extensions.counts, needed: Latency::from_histogram(&needed) }
    }
}

/// The results of a schedule.
#[derive(Debug, Clone, Serialize)]
pub struct SchedReport {
    /// Sums over the run.
    #[serde(flatten)]
    pub totals: Totals,
    /// Hits and misses, for a policy that injects preemptions.
    pub hits: Option<Hits>,
    /// Slice extensions, for a policy that grants them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extensions: Option<ExtensionReport>,
    /// Whether wasted spinning is counted, which requires guests that publish the start of a wait.
    pub counts_waste: bool,
    /// Divergence of a replay from its recording, if this was a replay.
    pub divergence: Option<Divergence>,
    /// Times between events.
    #[serde(flatten)]
    pub times: HandoffTimes<Latency>,
    /// Full distributions of these times.
    #[serde(skip)]
    pub histograms: Histograms,
    /// The first preemptions, individually.
    #[serde(rename = "preemptions_one_by_one")]
    pub preemptions: Vec<Preemption>,
    /// The decisions, if recorded.
    #[serde(skip)]
    pub recording: Recording,
    /// Additional data for a trace, if the schedule was traced.
    #[serde(skip)]
    pub captured: Option<TraceData>,
    /// Records of the host's kernel that were lost. The sums lack them.
    #[serde(skip)]
    pub lost: u64,
}

impl SchedReport {
    pub(super) fn new(core: &Core, stats: &Stats, vcpus: u32, now: Nanos) -> Self {
        let histograms = stats.times.clone();
        Self {
            totals: core.accounting().totals(),
            hits: core.policy().hits(),
            extensions: core.policy().extensions().map(ExtensionReport::new),
            counts_waste: true,
            divergence: core.policy().divergence(),
            times: histograms.map(Latency::from_histogram),
            histograms,
            preemptions: core.accounting().records().to_vec(),
            recording: Recording::from_core(core, vcpus),
            captured: stats.capture.as_ref().map(|capture| capture.data(core.log().start(), now)),
            lost: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread, time::Duration};

    use super::*;
    use crate::{
        driver::{Driver, ScheduleSpec},
        vcpu::VcpuScheduler,
    };
    use base::units::VcpuId;
    use kvm::signal;
    use sched::{core::State, event::VcpuIndex, log::SliceEnd};

    const VCPU: VcpuId = VcpuId(0);

    /// Runs one vCPU on one slot, traced. Its thread calls `vcpu` after its first grant; this thread calls `host`.
    fn run_single_vcpu(
        vcpu: impl FnOnce(&dyn VcpuScheduler) + Send,
        host: impl FnOnce(&Driver, &dyn VcpuScheduler),
    ) -> SchedReport {
        let (policy, cpus) = ("rr".parse().unwrap(), vec![signal::allowed_cpus()[0]]);
        let spec = ScheduleSpec::new(policy, cpus, Nanos::millis(500), 1);
        let driver = Driver::traced(&spec, &[1]).unwrap();
        let scheduler: Arc<dyn VcpuScheduler> = driver.vm_scheduler(0, None, None);
        thread::scope(|scope| {
            scope.spawn(|| {
                signal::block_in_this_thread().unwrap();
                scheduler.enter(VCPU).unwrap();
                vcpu(scheduler.as_ref());
                scheduler.leave(VCPU);
            });
            host(&driver, scheduler.as_ref());
        });
        driver.report()
    }

    #[test]
    fn kicking_a_running_vcpu_is_no_handoff() {
        let report = run_single_vcpu(
            |scheduler| {
                scheduler.halts().unwrap().wake(VCPU, Some(VCPU));
                scheduler.yield_slot(VCPU);
            },
            |_, _| {},
        );
        assert_eq!(report.times.kick_to_grant.count, 0);
        let ends: Vec<_> = report.recording.slices.iter().map(|slice| slice.end).collect();
        assert_eq!(ends, [SliceEnd::Yield, SliceEnd::Exited]);
        assert!(report.captured.unwrap().handoffs.is_empty());
    }

    #[test]
    fn kicking_a_halted_vcpu_is_a_handoff() {
        let halted = |driver: &Driver| driver.lock().core.state(VcpuIndex(0)) == State::Halted;
        let report = run_single_vcpu(
            |scheduler| scheduler.halts().unwrap().halt(VCPU),
            |driver, scheduler| {
                while !halted(driver) {
                    thread::sleep(Duration::from_millis(1));
                }
                scheduler.halts().unwrap().wake(VCPU, None);
            },
        );
        let captured = report.captured.unwrap();
        let [handoff] = captured.handoffs.as_slice() else { panic!("{captured:?}") };
        let second = captured.began.after(report.recording.slices[1].at);
        assert_eq!((handoff.by, handoff.to, handoff.granted), (None, VcpuIndex(0), Some(second)));
        assert!(captured.began < handoff.at && handoff.at <= second && second <= captured.until);
        assert_eq!(captured.sightings.len(), 1, "its activity when it halted");
        assert_eq!(report.times.kick_to_grant.count, 1);
    }
}
