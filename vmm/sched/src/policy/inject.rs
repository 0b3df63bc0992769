//! `lhp[:RATE,HOLD]` and `lwp[:RATE,HOLD]`: at random times, on average 1/RATE seconds after the last hold
//! ended (RATE: 10 by default), vCPUs are stopped until one of them holds a lock (lhp) or is next in line
//! (lwp). That vCPU is held off its slot for HOLD (default: 20ms). The policy reads the lock activity from
//! telemetry after a stop. Without telemetry it is observed from outside, and a vCPU in a preempt-disabled
//! region is assumed to be a holder. In between, the policy is `rr`. It serves to measure the cost of a
//! single LHP or LWP.

use serde::{Deserialize, Serialize};

use super::{Pick, Policy, Ready, Setup, Verdict, View, rr::Rr};
use crate::event::{LockActivity, Observation, VcpuIndex};
use base::{
    rng::SplitMix64,
    sums,
    units::{Nanos, SlotId},
};

/// Nanoseconds between two attempts. Far more than a VM entry takes, or the guest would make no progress.
/// Random, so that no periodic behaviour of the guest evades the attempts.
const RETRY: std::ops::Range<u64> = 60_000..200_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InjectionTarget {
    Holder,
    Next,
}

impl InjectionTarget {
    fn matches(self, activity: &LockActivity) -> bool {
        match self {
            // `PreemptDisabled` is the best guess without telemetry. The account does not count it as LHP.
            Self::Holder => activity.is_holder() || *activity == LockActivity::PreemptDisabled,
            Self::Next => activity.is_next(),
        }
    }
}

/// Outcome of the attempts of a policy that aims at certain preemptions.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hits {
    /// Attempts that preempted a vCPU of the kind aimed at.
    pub hits: u64,
    /// Hits that are guesses: the vCPU was in a preempt-disabled region, maybe for a lock.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub guesses: u64,
    /// Attempts that found a vCPU of another kind, which was not held off.
    pub misses: u64,
}

sums!(Hits: hits, guesses, misses);

/// Records without guesses keep the format they had before guesses existed.
fn is_zero(guesses: &u64) -> bool {
    *guesses == 0
}

/// Time of the next preemption. The times are random with a given average rate.
#[derive(Debug)]
pub(super) struct InjectionTimer {
    at: Nanos,
    mean: f64,
    rng: SplitMix64,
}

impl InjectionTimer {
    pub(super) fn new(rate: f64, seed: u64) -> Self {
        Self { at: Nanos::ZERO, mean: 1e9 / rate, rng: SplitMix64::new(seed) }
    }

    /// Whether a preemption is due. The first is due one mean interval after the first call.
    pub(super) fn is_due(&mut self, now: Nanos) -> bool {
        if self.at == Nanos::ZERO {
            self.at = now.after(Nanos(self.mean as u64));
        }
        now >= self.at
    }

    /// Schedules the next preemption. The time from `start` is exponentially distributed, as for independent
    /// events.
    pub(super) fn reset(&mut self, start: Nanos) {
        let uniform = (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        self.at = start.after(Nanos((-(1.0 - uniform).ln() * self.mean) as u64));
    }

    fn retry(&mut self) -> Nanos {
        let span = (RETRY.end - RETRY.start) as usize;
        Nanos(RETRY.start + self.rng.below(span) as u64)
    }

    /// Limits `until` to the time of the next preemption or, if it is due, of the slot's next attempt,
    /// `attempt`.
    ///
    /// `attempt` is kept when another vCPU gets the slot. If it were counted from each grant, vCPUs that halt
    /// before an attempt, such as waiters for PV locks, would never be stopped.
    fn bound(&mut self, until: Nanos, attempt: &mut Nanos, now: Nanos) -> Nanos {
        if !self.is_due(now) {
            return until.min(self.at);
        }
        if *attempt <= now {
            *attempt = now.after(self.retry());
        }
        until.min(*attempt)
    }
}

#[derive(Debug)]
pub(super) struct Inject {
    rr: Rr,
    target: InjectionTarget,
    hold: Nanos,
    due: InjectionTimer,
    /// Time of the next attempt, by slot.
    attempts: Box<[Nanos]>,
    /// Last slot of each vCPU.
    slots: Box<[SlotId]>,
    hits: Hits,
}

impl Inject {
    pub(super) const RATE: f64 = 10.0;
    pub(super) const HOLD: Nanos = Nanos::millis(20);

    pub(super) fn new(setup: &Setup<'_>, target: InjectionTarget, rate: f64, hold: Nanos) -> Self {
        let due = InjectionTimer::new(rate, setup.seed);
        let attempts = vec![Nanos::ZERO; setup.slots].into();
        let slots = vec![SlotId(0); setup.vms.len()].into();
        Self { rr: Rr::new(setup), target, hold, due, attempts, slots, hits: Hits::default() }
    }
}

impl Inject {
    /// [`InjectionTimer::bound`] for a vCPU that has a slot.
    fn bound(&mut self, vcpu: VcpuIndex, until: Nanos, now: Nanos) -> Nanos {
        let slot = self.slots[vcpu.ix()];
        self.due.bound(until, &mut self.attempts[slot.0 as usize], now)
    }
}

impl Policy for Inject {
    fn ready(&mut self, vcpu: VcpuIndex, cause: Ready, view: &View<'_>) {
        self.rr.ready(vcpu, cause, view);
    }

    fn exited(&mut self, vcpu: VcpuIndex) {
        self.rr.exited(vcpu);
    }

    fn pick(&mut self, slot: SlotId, view: &View<'_>) -> Option<Pick> {
        let Pick { vcpu, deadline, .. } = self.rr.pick(slot, view)?;
        self.slots[vcpu.ix()] = slot;
        Some(Pick::new(vcpu, self.bound(vcpu, deadline, view.now)))
    }

    fn stopped(&mut self, vcpu: VcpuIndex, obs: &Observation, view: &View<'_>) -> Verdict {
        if self.due.is_due(view.now) {
            if self.target.matches(&obs.activity) {
                self.hits.hits += 1;
                self.hits.guesses += u64::from(obs.activity == LockActivity::PreemptDisabled);
                let until = view.now.after(self.hold);
                self.due.reset(until);
                return Verdict::Hold(until);
            }
            self.hits.misses += 1;
        }
        match self.rr.stopped(vcpu, obs, view) {
            Verdict::Stay(until) => Verdict::Stay(self.bound(vcpu, until, view.now)),
            verdict => verdict,
        }
    }

    fn yields_to(
        &mut self,
        vcpu: VcpuIndex,
        to: VcpuIndex,
        obs: &Observation,
        view: &View<'_>,
    ) -> Option<Verdict> {
        self.rr.yields_to(vcpu, to, obs, view)
    }

    /// Ignores stops that only observe the vCPU.
    fn slice_end(&self, vcpu: VcpuIndex, view: &View<'_>) -> Nanos {
        view.now.after(self.rr.remaining(vcpu, view)).max(view.deadline(vcpu))
    }

    fn hits(&self) -> Option<Hits> {
        Some(self.hits)
    }
}
