//! `point:NAME[,RATE,HOLD]`: on average 1/RATE seconds after the last hold ended (RATE: 10 by
//! default), guests are asked to report the named point (before-flag, flag-to-halt, release-to-kick,
//! critical, interrupt), and the first vCPU that reaches it is held off for HOLD (default: 20ms). In
//! between, the policy is `rr`. Hits one window of a protocol reliably.

use hypercalls::telemetry::Point;

use super::{Hits, Pick, Policy, Ready, Setup, Verdict, View, inject::InjectionTimer, rr::Rr};
use crate::event::{Observation, VcpuIndex};
use base::units::{Nanos, SlotId};

/// The points by command-line name.
pub(super) const NAMES: [(&str, Point); 5] = [
    ("before-flag", Point::BeforeFlag),
    ("flag-to-halt", Point::FlagToHalt),
    ("release-to-kick", Point::ReleaseToKick),
    ("critical", Point::Critical),
    ("interrupt", Point::Interrupt),
];

#[derive(Debug)]
pub(super) struct AtPoint {
    rr: Rr,
    point: Point,
    hold: Nanos,
    due: InjectionTimer,
    is_armed: bool,
    hits: Hits,
}

impl AtPoint {
    pub(super) fn new(setup: &Setup<'_>, point: Point, rate: f64, hold: Nanos) -> Self {
        let due = InjectionTimer::new(rate, setup.seed);
        Self { rr: Rr::new(setup), point, hold, due, is_armed: false, hits: Hits::default() }
    }
}

impl Policy for AtPoint {
    fn ready(&mut self, vcpu: VcpuIndex, cause: Ready, view: &View<'_>) {
        self.rr.ready(vcpu, cause, view);
    }

    fn exited(&mut self, vcpu: VcpuIndex) {
        self.rr.exited(vcpu);
    }

    fn pick(&mut self, slot: SlotId, view: &View<'_>) -> Option<Pick> {
        self.is_armed |= self.due.is_due(view.now);
        self.rr.pick(slot, view)
    }

    fn stopped(&mut self, vcpu: VcpuIndex, obs: &Observation, view: &View<'_>) -> Verdict {
        self.is_armed |= self.due.is_due(view.now);
        self.rr.stopped(vcpu, obs, view)
    }

    fn point(
        &mut self,
        _: VcpuIndex,
        at: Point,
        _: &Observation,
        view: &View<'_>,
    ) -> Option<Verdict> {
        if at != self.point || !self.is_armed {
            self.hits.misses += 1;
            return None;
        }
        self.hits.hits += 1;
        self.is_armed = false;
        let until = view.now.after(self.hold);
        self.due.reset(until);
        Some(Verdict::Hold(until))
    }

    fn points(&self, _: Nanos) -> u32 {
        if self.is_armed { self.point.bit() } else { 0 }
    }

    fn hits(&self) -> Option<Hits> {
        Some(self.hits)
    }
}
