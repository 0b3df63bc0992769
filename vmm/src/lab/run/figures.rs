//! From what a run gave to what is stored of it.

use super::super::{
    Sample,
    cell::Scheduled,
    store::record::{Figures, ScheduleFigures},
    timings::Timings,
};

impl From<Sample> for Figures {
    fn from(sample: Sample) -> Self {
        let Sample { seconds, operations, slow, long_waits, halts, kicks, .. } = sample;
        Self {
            seconds,
            operations,
            slow,
            long_waits,
            halts,
            kicks,
            violations: sample.violations,
            disorder: sample.disorder,
            vmm: sample.vmm,
            schedule: sample.schedule.map(ScheduleFigures::from),
            faults: sample.faults,
            work: sample.work,
            latencies: sample.latencies.map(|latencies| latencies.timings()),
        }
    }
}

impl From<Scheduled> for ScheduleFigures {
    fn from(Scheduled { measured, whole }: Scheduled) -> Self {
        let histograms = &whole.histograms;
        Self {
            seconds: Some(measured.seconds()),
            totals: measured.totals,
            hits: measured.hits,
            lateness: Timings::of(&histograms.lateness),
            handover: Timings::of(&histograms.handover),
            release_to_kick: Timings::of(&histograms.release_to_kick),
            kick_to_grant: Timings::of(&histograms.kick_to_grant),
            grant_to_guest: Timings::of(&histograms.grant_to_guest),
        }
    }
}
