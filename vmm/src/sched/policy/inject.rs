//! `lhp[:RATE,HOLD]` and `lwp[:RATE,HOLD]`: RATE times a second (10) a vCPU is stopped until one is
//! found that holds a lock (lhp) or is next in line for one (lwp), and kept off for HOLD (20ms).
//! Verified after the stop, from telemetry; `rr` in between. Right to measure what one costs.

use serde::{Deserialize, Serialize};

use super::{Pick, Policy, Ready, Setup, Verdict, View, rr::Rr};
use crate::{
    rng::SplitMix64,
    sched::event::{LockActivity, Observation, VcpuIndex},
    units::{Nanos, SlotId},
};

/// Nanoseconds between two tries: far more than an entry into the guest takes, or it would never get
/// on; and random, so that no rhythm of the guest's evades them.
const RETRY: std::ops::Range<u64> = 60_000..200_000;

/// Whom to preempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Holder,
    Next,
}

impl Target {
    fn is(self, activity: &LockActivity) -> bool {
        match self {
            // Without telemetry a guess is the best there is; it is not counted as LHP.
            Target::Holder => activity.is_holder() || *activity == LockActivity::Guarded,
            Target::Next => activity.is_next(),
        }
    }
}

/// What became of the attempts of a policy that aims.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hits {
    /// Preemptions of what was aimed at.
    pub hits: u64,
    /// Stops that found something else: the vCPU went on at once.
    pub misses: u64,
}

/// When the next preemption is due: on average so often a second, at random.
#[derive(Debug)]
pub(super) struct Due {
    at: Nanos,
    mean: f64,
    rng: SplitMix64,
}

impl Due {
    pub(super) fn new(rate: f64, seed: u64) -> Self {
        Self { at: Nanos::ZERO, mean: 1e9 / rate, rng: SplitMix64::new(seed) }
    }

    /// Is it time? The first is due a mean time after the first question.
    pub(super) fn now(&mut self, now: Nanos) -> bool {
        if self.at == Nanos::ZERO {
            self.at = now.after(Nanos(self.mean as u64));
        }
        now >= self.at
    }

    /// The next one, from `start`: exponentially distributed, as what happens by accident is.
    pub(super) fn reset(&mut self, start: Nanos) {
        let uniform = (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        self.at = start.after(Nanos((-(1.0 - uniform).ln() * self.mean) as u64));
    }

    fn retry(&mut self) -> Nanos {
        let span = (RETRY.end - RETRY.start) as usize;
        Nanos(RETRY.start + self.rng.below(span) as u64)
    }

    /// Not later than the time it is due, or the next try.
    fn bound(&mut self, until: Nanos, now: Nanos) -> Nanos {
        if self.now(now) { until.min(now.after(self.retry())) } else { until.min(self.at) }
    }
}

#[derive(Debug)]
pub(super) struct Inject {
    rr: Rr,
    target: Target,
    hold: Nanos,
    due: Due,
    hits: Hits,
}

impl Inject {
    pub(super) const RATE: f64 = 10.0;
    pub(super) const HOLD: Nanos = Nanos::millis(20);

    pub(super) fn new(setup: &Setup<'_>, target: Target, rate: f64, hold: Nanos) -> Self {
        let due = Due::new(rate, setup.seed);
        Self { rr: Rr::new(setup), target, hold, due, hits: Hits::default() }
    }
}

impl Policy for Inject {
    fn ready(&mut self, vcpu: VcpuIndex, why: Ready, view: &View<'_>) {
        self.rr.ready(vcpu, why, view);
    }

    fn gone(&mut self, vcpu: VcpuIndex) {
        self.rr.gone(vcpu);
    }

    fn pick(&mut self, slot: SlotId, view: &View<'_>) -> Option<Pick> {
        let Pick { vcpu, until, .. } = self.rr.pick(slot, view)?;
        Some(Pick::new(vcpu, self.due.bound(until, view.now)))
    }

    fn stopped(&mut self, vcpu: VcpuIndex, look: &Observation, view: &View<'_>) -> Verdict {
        if self.due.now(view.now) {
            if self.target.is(&look.activity) {
                self.hits.hits += 1;
                let until = view.now.after(self.hold);
                self.due.reset(until);
                return Verdict::Hold(until);
            }
            self.hits.misses += 1;
        }
        match self.rr.stopped(vcpu, look, view) {
            Verdict::Stay(until) => Verdict::Stay(self.due.bound(until, view.now)),
            verdict => verdict,
        }
    }

    fn hits(&self) -> Option<Hits> {
        Some(self.hits)
    }
}
