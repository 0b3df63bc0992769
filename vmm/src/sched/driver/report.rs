//! What a schedule did, in figures.

use hdrhistogram::Histogram;
use serde::Serialize;

use super::{
    Driver,
    capture::{Capture, Captured, Meter},
};
use crate::{
    sched::{
        accounting::{Preemption, Totals},
        core::{Core, State},
        event::{Action, Event, VcpuIndex},
        policy::{Divergence, Hits},
        recording::Recording,
    },
    units::Nanos,
};

/// The longest time a histogram tells apart, in nanoseconds: 100 s.
const LONGEST: u64 = 100_000_000_000;

/// Times in nanoseconds, of each kind.
#[derive(Debug, Clone)]
pub struct Histograms {
    /// How late turns ended: the stop, less the end asked for.
    pub lateness: Histogram<u64>,
    /// From a grant to the thread's being about to enter the guest.
    pub handover: Histogram<u64>,
    /// From a release in the guest to its kick in the VMM.
    pub release_to_kick: Histogram<u64>,
    /// From a kick to the grant of a slot.
    pub kick_to_grant: Histogram<u64>,
    /// From that grant to the guest's first instruction.
    pub grant_to_guest: Histogram<u64>,
}

/// Filled while the schedule runs; allocates at its making only.
#[derive(Debug)]
pub(super) struct Stats {
    times: Histograms,
    /// By vCPU: when it was kicked, until it is granted a slot.
    kicked: Box<[Option<Nanos>]>,
    /// By vCPU: when it was granted one after that, until its first instruction is known.
    granted: Box<[Option<Nanos>]>,
    /// For a trace.
    capture: Option<Capture>,
}

fn histogram() -> Histogram<u64> {
    // Two digits: an error below 1 %. These bounds are valid, and so the default is never made.
    Histogram::new_with_bounds(1, LONGEST, 2).unwrap_or_else(|_| Histogram::new(2).expect("2"))
}

impl Stats {
    pub(super) fn new(vcpus: usize, capture: Option<Capture>) -> Self {
        Self {
            times: Histograms {
                lateness: histogram(),
                handover: histogram(),
                release_to_kick: histogram(),
                kick_to_grant: histogram(),
                grant_to_guest: histogram(),
            },
            kicked: vec![None; vcpus].into(),
            granted: vec![None; vcpus].into(),
            capture,
        }
    }

    pub(super) fn meter(&mut self, meters: Vec<Meter>) {
        if let Some(capture) = &mut self.capture {
            capture.set_meters(meters);
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
        if let Some(capture) = &mut self.capture {
            capture.saw(vcpu, event, now);
        }
        match event {
            Event::Kicked(by) | Event::KickedInHlt(by) => {
                return self.kicked_by(vcpu, by.map(|kicker| kicker.vcpu), driver, core, now);
            }
            Event::HandedOver(to, _) => self.kicked_by(*to, Some(vcpu), driver, core, now),
            Event::Stopped(_) | Event::StoppedInHlt(_) => {
                let deadline = core.deadline(vcpu).filter(|at| *at <= now);
                let running = matches!(core.state(vcpu), State::Running(_));
                let late = deadline.filter(|_| running).map(|at| now.since(at));
                record(&mut self.times.lateness, late);
            }
            // Said by others.
            Event::Idle(_) | Event::Woken(_) => return,
            _ => {}
        }
        record(&mut self.times.handover, driver.seat(vcpu).take_handover());
        if let Some(granted) = self.granted[vcpu.ix()].take() {
            let lines = driver.telemetry_of(vcpu);
            let resumed = lines.and_then(|(lines, id)| lines.resumed_at(id, now));
            let resumed = resumed.filter(|resumed| *resumed >= granted);
            record(&mut self.times.grant_to_guest, resumed.map(|resumed| resumed.since(granted)));
            if let Some(capture) = &mut self.capture {
                capture.resumed(vcpu, resumed);
            }
        }
    }

    fn kicked_by(
        &mut self,
        vcpu: VcpuIndex,
        by: Option<VcpuIndex>,
        driver: &Driver,
        core: &Core,
        now: Nanos,
    ) {
        let lines = by.and_then(|kicker| driver.telemetry_of(kicker));
        let released = lines.and_then(|(lines, id)| lines.released_at(id, now));
        record(&mut self.times.release_to_kick, released.map(|released| now.since(released)));
        // Who has not halted yet will not for this kick: the next grant has nothing to do with it.
        if !matches!(core.state(vcpu), State::Halted | State::Idle) {
            return;
        }
        self.kicked[vcpu.ix()] = Some(now);
        if let Some(capture) = &mut self.capture {
            capture.kicked(vcpu, by, released, now);
        }
    }

    /// The core has decided.
    pub(super) fn decided(&mut self, action: &Action, now: Nanos) {
        if let Action::Grant(vcpu, _) = action
            && let Some(kicked) = self.kicked[vcpu.ix()].take()
        {
            record(&mut self.times.kick_to_grant, Some(now.since(kicked)));
            self.granted[vcpu.ix()] = Some(now);
            if let Some(capture) = &mut self.capture {
                capture.granted(*vcpu, now);
            }
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
    /// All these times.
    #[serde(skip)]
    pub histograms: Histograms,
    /// The first preemptions, one by one.
    #[serde(rename = "preemptions_one_by_one")]
    pub preemptions: Vec<Preemption>,
    /// The decisions, if they were recorded.
    #[serde(skip)]
    pub recording: Recording,
    /// The rest of what a trace wants, if there is to be one.
    #[serde(skip)]
    pub captured: Option<Captured>,
}

impl SchedReport {
    pub(super) fn new(core: &Core, stats: &Stats, vcpus: u32, now: Nanos) -> Self {
        let histograms = stats.times.clone();
        Self {
            totals: core.accounting().totals(),
            hits: core.policy().hits(),
            divergence: core.policy().divergence(),
            lateness: Latency::of(&histograms.lateness),
            handover: Latency::of(&histograms.handover),
            release_to_kick: Latency::of(&histograms.release_to_kick),
            kick_to_grant: Latency::of(&histograms.kick_to_grant),
            grant_to_guest: Latency::of(&histograms.grant_to_guest),
            histograms,
            preemptions: core.accounting().records().to_vec(),
            recording: Recording {
                vcpus,
                slots: core.slots().len() as u32,
                spin_looks: core.policy().spin_looks(),
                lost: core.log().lost(),
                turns: core.log().turns().to_vec(),
            },
            captured: stats
                .capture
                .as_ref()
                .map(|capture| capture.captured(core.log().start(), now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread, time::Duration};

    use super::*;
    use crate::{
        kvm::signal,
        sched::{driver::ScheduleSpec, log::TurnEnd},
        units::VcpuId,
        vcpu::VcpuScheduler,
    };

    const ONE: VcpuId = VcpuId(0);

    /// A traced schedule of one vCPU on one slot, whose thread does this after its first grant.
    fn alone(
        live: impl FnOnce(&dyn VcpuScheduler) + Send,
        meanwhile: impl FnOnce(&Driver, &dyn VcpuScheduler),
    ) -> SchedReport {
        let spec = ScheduleSpec::new(
            "rr".parse().unwrap(),
            vec![signal::allowed_cpus()[0]],
            Nanos::millis(500),
            1,
        );
        let driver = Driver::traced(&spec, &[1]).unwrap();
        let gate: Arc<dyn VcpuScheduler> = driver.gate(0, None, None);
        thread::scope(|scope| {
            scope.spawn(|| {
                signal::block_in_this_thread().unwrap();
                gate.enter(ONE).unwrap();
                live(gate.as_ref());
                gate.leave(ONE);
            });
            meanwhile(&driver, gate.as_ref());
        });
        driver.report()
    }

    #[test]
    fn a_kick_of_somebody_who_runs_has_nothing_to_do_with_his_next_turn() {
        let report = alone(
            |gate| {
                gate.kick(ONE, ONE);
                gate.yielded(ONE);
            },
            |_, _| {},
        );
        assert_eq!(report.kick_to_grant.count, 0);
        let ends: Vec<_> = report.recording.turns.iter().map(|turn| turn.end).collect();
        assert_eq!(ends, [TurnEnd::Yield, TurnEnd::Exited]);
        assert!(report.captured.unwrap().handoffs.is_empty());
    }

    #[test]
    fn a_kick_that_ends_a_halt_is_a_handoff_to_the_next_turn() {
        let halted = |driver: &Driver| driver.lock().core.state(VcpuIndex(0)) == State::Halted;
        let report = alone(
            |gate| gate.halt(ONE),
            |driver, gate| {
                while !halted(driver) {
                    thread::sleep(Duration::from_millis(1));
                }
                gate.wake(ONE);
            },
        );
        let captured = report.captured.unwrap();
        let [handoff] = captured.handoffs.as_slice() else { panic!("{captured:?}") };
        let second = captured.began.after(report.recording.turns[1].at);
        assert_eq!((handoff.by, handoff.to, handoff.granted), (None, VcpuIndex(0), Some(second)));
        assert!(captured.began < handoff.at && handoff.at <= second && second <= captured.until);
        assert_eq!(captured.sightings.len(), 1, "what it did when it halted");
        assert_eq!(report.kick_to_grant.count, 1);
    }
}
