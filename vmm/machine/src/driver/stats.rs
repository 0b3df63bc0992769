//! Statistics of a running schedule: times between events.

use hdrhistogram::Histogram;

use super::capture::{Capture, Meter};
use base::units::Nanos;
use sched::{
    core::{Core, State},
    event::{Action, Event, LockActivity, Observation, VcpuIndex},
    times::HandoffTimes,
};

/// Maximum time that a histogram resolves, in nanoseconds: 100 s.
const MAX_NANOS: u64 = 100_000_000_000;

/// Distributions of times in nanoseconds.
pub type Histograms = HandoffTimes<Histogram<u64>>;

pub(super) fn histograms() -> Histograms {
    HandoffTimes::<()>::default().map(|()| histogram())
}

/// Readings of a vCPU for the statistics, taken at its events.
pub(super) trait VcpuReadings {
    /// Returns the duration of the last handover to `vcpu`, unless already read.
    fn take_handover(&self, vcpu: VcpuIndex) -> Option<Nanos>;

    /// The time of the release before the vCPU's last kick, according to its telemetry.
    fn released_at(&self, vcpu: VcpuIndex, now: Nanos) -> Option<Nanos>;

    /// The time at which the vCPU resumed after its last halt, according to its telemetry. None if
    /// it has been kicked since its grant, because it may then have halted and resumed again.
    fn resumed_at(&self, vcpu: VcpuIndex, now: Nanos) -> Option<Nanos>;
}

/// Filled while the schedule runs. Allocates only on creation.
#[derive(Debug)]
pub(super) struct Stats {
    pub(super) times: Histograms,
    /// By vCPU, the time of its kick, until it is granted a slot.
    kicked: Box<[Option<Nanos>]>,
    /// By vCPU, the time of its grant after a kick, until its first instruction is known.
    granted: Box<[Option<Nanos>]>,
    /// Only for traced schedules.
    pub(super) capture: Option<Capture>,
}

/// Whether the event finds the vCPU in KVM's HLT again. Interrupts also end HLT, so it may have
/// resumed more than once.
const fn is_in_later_halt(event: &Event) -> bool {
    matches!(
        event,
        Event::Stopped(Observation { activity: LockActivity::Waiting { halted: true, .. }, .. })
            | Event::StoppedInHlt(_)
    )
}

/// Creates an empty histogram of times in nanoseconds.
pub(super) fn histogram() -> Histogram<u64> {
    // Two significant digits: an error below 1 %. The bounds are valid, so the fallback is unused.
    Histogram::new_with_bounds(1, MAX_NANOS, 2).unwrap_or_else(|_| Histogram::new(2).expect("2"))
}

impl Stats {
    pub(super) fn new(vcpus: usize, capture: Option<Capture>) -> Self {
        Self {
            times: histograms(),
            kicked: vec![None; vcpus].into(),
            granted: vec![None; vcpus].into(),
            capture,
        }
    }

    pub(super) fn set_meters(&mut self, meters: Vec<Meter>) {
        if let Some(capture) = &mut self.capture {
            capture.set_meters(meters);
        }
    }

    /// Called before the core handles an event.
    pub(super) fn on_event(
        &mut self,
        vcpu: VcpuIndex,
        event: &Event,
        sources: &impl VcpuReadings,
        core: &Core,
        now: Nanos,
    ) {
        if let Some(capture) = &mut self.capture {
            capture.observe(vcpu, event, now);
        }
        match event {
            Event::Kicked(by) | Event::KickedInHlt(by) => {
                return self.kicked_by(vcpu, by.map(|kicker| kicker.vcpu), sources, core, now);
            }
            Event::HandedOver(to, _) => self.kicked_by(*to, Some(vcpu), sources, core, now),
            Event::Stopped(_) | Event::StoppedInHlt(_) => {
                let deadline = core.deadline(vcpu).filter(|at| *at <= now);
                let running = matches!(core.state(vcpu), State::Running(_));
                let lateness = deadline.filter(|_| running).map(|at| now.since(at));
                record(&mut self.times.lateness, lateness);
            }
            // May be reported by another thread.
            Event::Idle(_) | Event::Woken(_) => return,
            _ => {}
        }
        record(&mut self.times.handover, sources.take_handover(vcpu));
        if let Some(granted) = self.granted[vcpu.ix()].take() {
            let resumed = sources.resumed_at(vcpu, now).filter(|_| !is_in_later_halt(event));
            let resumed = resumed.filter(|resumed| *resumed >= granted);
            record(&mut self.times.grant_to_guest, resumed.map(|resumed| resumed.since(granted)));
            if let Some(capture) = &mut self.capture {
                capture.record_resume(vcpu, resumed);
            }
        }
    }

    fn kicked_by(
        &mut self,
        vcpu: VcpuIndex,
        by: Option<VcpuIndex>,
        sources: &impl VcpuReadings,
        core: &Core,
        now: Nanos,
    ) {
        let released = by.and_then(|kicker| sources.released_at(kicker, now));
        record(&mut self.times.release_to_kick, released.map(|released| now.since(released)));
        // A vCPU that has not halted yet will not halt because of this kick, so its next grant is
        // unrelated.
        if !matches!(core.state(vcpu), State::Halted | State::Idle) {
            return;
        }
        self.kicked[vcpu.ix()] = Some(now);
        if let Some(capture) = &mut self.capture {
            capture.record_kick(vcpu, by, released, now);
        }
    }

    pub(super) fn on_action(&mut self, action: &Action, now: Nanos) {
        if let Action::Grant(vcpu, _) = action
            && let Some(kicked) = self.kicked[vcpu.ix()].take()
        {
            record(&mut self.times.kick_to_grant, Some(now.since(kicked)));
            self.granted[vcpu.ix()] = Some(now);
            if let Some(capture) = &mut self.capture {
                capture.record_grant(*vcpu, now);
            }
        }
    }
}

pub(super) fn record(histogram: &mut Histogram<u64>, nanos: Option<Nanos>) {
    if let Some(nanos) = nanos {
        histogram.saturating_record(nanos.0.max(1));
    }
}

#[cfg(test)]
mod tests {
    use sched::{
        core::Member,
        event::{LockId, Mode},
        log::Log,
        policy::{PolicySpec, Setup},
    };

    use super::*;

    const SLICE: Nanos = Nanos(1_000);
    const SLEEPER: VcpuIndex = VcpuIndex(0);
    const KICKER: VcpuIndex = VcpuIndex(1);

    /// A guest that reports this resume time.
    struct ResumeTime(u64);

    impl VcpuReadings for ResumeTime {
        fn take_handover(&self, _: VcpuIndex) -> Option<Nanos> {
            None
        }

        fn released_at(&self, _: VcpuIndex, _: Nanos) -> Option<Nanos> {
            None
        }

        fn resumed_at(&self, _: VcpuIndex, _: Nanos) -> Option<Nanos> {
            Some(Nanos(self.0))
        }
    }

    struct Schedule(Core, Stats);

    impl Schedule {
        fn handle(&mut self, vcpu: VcpuIndex, event: Event, now: Nanos, resumed: u64) {
            self.1.on_event(vcpu, &event, &ResumeTime(resumed), &self.0, now);
            let actions = self.0.handle(vcpu, event, now).to_vec();
            actions.iter().for_each(|action| self.1.on_action(action, now));
        }
    }

    fn asleep() -> Observation {
        let (lock, since) = (LockId(9), Nanos(1));
        let activity =
            LockActivity::Waiting { lock, ticket: 4, distance: Some(1), since, halted: true };
        Observation { mode: Mode::Kernel, activity }
    }

    /// Returns the recorded times from grant to guest. The vCPU was kicked in KVM's HLT and granted
    /// a slot at 3000. Its next event is `next` at 4000, and its telemetry reports `resumed`.
    fn grant_to_guest(next: Event, resumed: u64) -> Vec<u64> {
        let setup = Setup { vms: &[0, 0], slots: 1, slice: SLICE, seed: 1, recording: None };
        let policy = "rr".parse::<PolicySpec>().unwrap().make(&setup).unwrap();
        let core = Core::new(&[Member { vm: 0, weight: 1 }; 2], 1, policy, Log::without_slices());
        let mut schedule = Schedule(core, Stats::new(2, None));
        let free = Observation { activity: LockActivity::Free, ..Observation::default() };
        for vcpu in [SLEEPER, KICKER] {
            schedule.handle(vcpu, Event::Started, Nanos(1), 0);
        }
        schedule.handle(SLEEPER, Event::Idle(asleep()), Nanos(1_000), 0);
        schedule.handle(SLEEPER, Event::KickedInHlt(None), Nanos(2_000), 0);
        schedule.handle(KICKER, Event::Stopped(free), Nanos(3_000), 0);
        assert_eq!(schedule.0.slots(), [Some(SLEEPER)]);
        schedule.handle(SLEEPER, next, Nanos(4_000), resumed);
        schedule.1.times.grant_to_guest.iter_recorded().map(|bin| bin.value_iterated_to()).collect()
    }

    #[test]
    fn measures_grant_to_first_instruction() {
        let observation = Observation { activity: LockActivity::Free, ..asleep() };
        assert_eq!(grant_to_guest(Event::Stopped(observation), 3_100), [100]);
        let halts_again = grant_to_guest(Event::Halted(asleep()), 3_100);
        assert_eq!(halts_again, [100], "halted for another lock");
        let before = grant_to_guest(Event::Stopped(observation), 2_900);
        assert_eq!(before, [0; 0], "belongs to an earlier halt");
    }

    #[test]
    fn first_instruction_is_unknown_after_another_kvm_halt() {
        for next in [Event::StoppedInHlt(asleep()), Event::Stopped(asleep())] {
            assert_eq!(grant_to_guest(next, 3_900), [0; 0], "{next:?}");
        }
    }
}
