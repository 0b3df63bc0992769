//! What a schedule did, in figures.

use hdrhistogram::Histogram;
use serde::Serialize;

use super::Driver;
use crate::{
    sched::{
        core::{Core, State},
        event::{Action, Event, VcpuIndex},
        log::Recording,
        policy::{Divergence, Hits},
        truth::{Preemption, Totals},
    },
    units::Nanos,
};

/// The longest time a histogram tells apart, in nanoseconds: 100 s.
const LONGEST: u64 = 100_000_000_000;

/// Filled while the schedule runs; allocates at its making only.
#[derive(Debug)]
pub(super) struct Stats {
    lateness: Histogram<u64>,
    handover: Histogram<u64>,
    release_to_kick: Histogram<u64>,
    kick_to_grant: Histogram<u64>,
    grant_to_guest: Histogram<u64>,
    /// By vCPU: when it was kicked, until it is granted a slot.
    kicked: Box<[Option<Nanos>]>,
    /// By vCPU: when it was granted one after that, until its first instruction is known.
    granted: Box<[Option<Nanos>]>,
}

fn histogram() -> Histogram<u64> {
    // Two digits: an error below 1 %. These bounds are valid, and so the default is never made.
    Histogram::new_with_bounds(1, LONGEST, 2).unwrap_or_else(|_| Histogram::new(2).expect("2"))
}

impl Stats {
    pub(super) fn new(vcpus: usize) -> Self {
        Self {
            lateness: histogram(),
            handover: histogram(),
            release_to_kick: histogram(),
            kick_to_grant: histogram(),
            grant_to_guest: histogram(),
            kicked: vec![None; vcpus].into(),
            granted: vec![None; vcpus].into(),
        }
    }

    /// Before the core hears of an event.
    pub(super) fn before(
        &mut self,
        vcpu: VcpuIndex,
        event: &Event,
        driver: &Driver,
        core: &Core,
        now: Nanos,
    ) {
        match event {
            Event::Kicked(by) => return self.kicked_by(vcpu, *by, driver, now),
            Event::HandedOver(to, _) => self.kicked_by(*to, Some(vcpu), driver, now),
            Event::Stopped(_) => {
                let deadline = core.deadline(vcpu).filter(|at| *at <= now);
                let running = matches!(core.state(vcpu), State::Running(_));
                let late = deadline.filter(|_| running).map(|at| now.since(at));
                record(&mut self.lateness, late);
            }
            // Said by others.
            Event::Idle | Event::Woken => return,
            _ => {}
        }
        record(&mut self.handover, driver.seat(vcpu).take_handover());
        if let Some(granted) = self.granted[vcpu.ix()].take() {
            let lines = driver.lines_of(vcpu);
            let resumed = lines.and_then(|(lines, id)| lines.resumed_at(id, now));
            let resumed = resumed.filter(|resumed| *resumed >= granted);
            record(&mut self.grant_to_guest, resumed.map(|resumed| resumed.since(granted)));
        }
    }

    fn kicked_by(&mut self, vcpu: VcpuIndex, by: Option<VcpuIndex>, driver: &Driver, now: Nanos) {
        self.kicked[vcpu.ix()] = Some(now);
        let by = by.and_then(|kicker| driver.lines_of(kicker));
        let released = by.and_then(|(lines, id)| lines.released_at(id, now));
        record(&mut self.release_to_kick, released.map(|released| now.since(released)));
    }

    /// The core has decided.
    pub(super) fn decided(&mut self, action: &Action, now: Nanos) {
        if let Action::Grant(vcpu, _) = action
            && let Some(kicked) = self.kicked[vcpu.ix()].take()
        {
            record(&mut self.kick_to_grant, Some(now.since(kicked)));
            self.granted[vcpu.ix()] = Some(now);
        }
    }
}

fn record(histogram: &mut Histogram<u64>, nanos: Option<Nanos>) {
    if let Some(nanos) = nanos {
        histogram.saturating_record(nanos.0.max(1));
    }
}

/// Times of one kind, in nanoseconds.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Latency {
    /// How many.
    pub count: u64,
    /// Median.
    pub p50: u64,
    /// 99 of 100 are at most this.
    pub p99: u64,
    /// 999 of 1000 are.
    pub p999: u64,
    /// The longest.
    pub max: u64,
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Self {
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

/// The account of a schedule.
#[derive(Debug, Clone, Serialize)]
pub struct SchedReport {
    /// Sums.
    #[serde(flatten)]
    pub totals: Totals,
    /// Of a policy that aims.
    pub hits: Option<Hits>,
    /// Of a replay.
    pub divergence: Option<Divergence>,
    /// How late turns ended: the stop, less the end asked for.
    pub lateness: Latency,
    /// From a grant to the thread's being about to enter the guest.
    pub handover: Latency,
    /// From a release in the guest to its kick in the VMM.
    pub release_to_kick: Latency,
    /// From a kick to the grant of a slot.
    pub kick_to_grant: Latency,
    /// From that grant to the guest's first instruction.
    pub grant_to_guest: Latency,
    /// The first preemptions, one by one.
    #[serde(rename = "preemptions_one_by_one")]
    pub preemptions: Vec<Preemption>,
    /// The decisions, if they were recorded.
    #[serde(skip)]
    pub recording: Recording,
}

impl SchedReport {
    pub(super) fn new(core: &Core, stats: &Stats, vcpus: u32) -> Self {
        Self {
            totals: core.truth().totals(),
            hits: core.policy().hits(),
            divergence: core.policy().divergence(),
            lateness: Latency::of(&stats.lateness),
            handover: Latency::of(&stats.handover),
            release_to_kick: Latency::of(&stats.release_to_kick),
            kick_to_grant: Latency::of(&stats.kick_to_grant),
            grant_to_guest: Latency::of(&stats.grant_to_guest),
            preemptions: core.truth().records().to_vec(),
            recording: Recording {
                vcpus,
                slots: core.slots().len() as u32,
                lost: core.log().lost(),
                turns: core.log().turns().to_vec(),
            },
        }
    }
}
