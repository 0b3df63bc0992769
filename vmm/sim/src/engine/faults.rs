//! Faults of halts and kicks, drawn from the seed, with the effects that the VMM's have.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use base::counters::FaultCounts;
use base::faults::{FaultSpec, Probability};

use super::*;

/// The faults of a simulation, and the kicks that are late.
#[derive(Debug)]
pub(super) struct Faults {
    spec: FaultSpec,
    rng: SplitMix64,
    /// When each arrives, in which order they were sent, and the vCPU it is for.
    late: BinaryHeap<Reverse<(Picos, u64, usize)>>,
    sent: u64,
    /// By vCPU: its halt has begun late, and takes place now.
    was_late: Box<[bool]>,
    counts: FaultCounts,
}

impl Faults {
    pub(super) fn new(spec: FaultSpec, vcpus: usize, seed: u64) -> Self {
        let was_late = vec![false; vcpus].into();
        let (rng, late) = (SplitMix64::new(seed), BinaryHeap::new());
        Self { spec, rng, late, sent: 0, was_late, counts: FaultCounts::default() }
    }

    /// What was injected so far.
    pub(super) fn counts(&self) -> FaultCounts {
        self.counts
    }

    fn happens(&mut self, chance: Option<Probability>) -> bool {
        chance.is_some_and(|chance| chance.happens(&mut self.rng))
    }

    fn up_to(&mut self, most: Picos) -> Picos {
        Picos(self.rng.below(most.0 as usize + 1) as u64)
    }

    /// Does this halt return at once?
    pub(super) fn ends_halt(&mut self) -> bool {
        let ends = self.happens(self.spec.spurious);
        self.counts.spurious += u64::from(ends);
        ends
    }

    /// How long the delivery of a kick takes.
    fn delay(&mut self) -> Picos {
        let mean = self.spec.delay;
        mean.map_or(Picos::ZERO, |mean| self.up_to(Picos(2 * Picos::from(mean).0)))
    }

    /// When the next late kick arrives.
    fn due(&self) -> Picos {
        self.late.peek().map_or(Picos::NEVER, |Reverse((at, ..))| *at)
    }
}

impl Sim {
    /// The leaf of the late kicks among the timers.
    pub(super) fn late_leaf(&self) -> usize {
        self.pcpus.len() + self.vcpus.len()
    }

    /// `v` is to halt. True: it does so later, and has been given an event for that.
    pub(super) fn halts_late(&mut self, v: usize, pcpu: usize) -> bool {
        let Some(most) = self.faults.spec.halt_delay else { return false };
        let was_late = &mut self.faults.was_late[v];
        *was_late = !*was_late;
        if !*was_late {
            return false;
        }
        self.faults.counts.halts_delayed += 1;
        let at = self.now + self.faults.up_to(most.into());
        self.expect(v, pcpu, NextEvent::Due, at);
        true
    }

    /// `v` kicks `target`.
    pub(super) fn kick(&mut self, v: usize, target: usize) {
        let exit = self.costs.exit;
        self.shared.waits.kicked(target, v);
        let FaultSpec { drop, dup, spurious, .. } = self.faults.spec;
        if self.faults.happens(spurious) && self.per_guest > 1 {
            let first = self.of_guest(v, 0);
            let past = 1 + self.faults.rng.below(self.per_guest - 1);
            let other = first + (target - first + past) % self.per_guest;
            self.faults.counts.spurious += 1;
            self.shared.waits.kicked(other, v);
            self.kicked(other, None, exit);
        }
        if self.faults.happens(drop) {
            self.faults.counts.dropped += 1;
            return;
        }
        let again = u64::from(self.faults.happens(dup));
        self.faults.counts.duplicated += again;
        for _ in 0..=again {
            match self.faults.delay() {
                Picos::ZERO => {
                    let by = Kicker { vcpu: VcpuIndex(v as u32), activity: self.activity(v) };
                    self.kicked(target, Some(by), exit);
                }
                delay => {
                    self.faults.sent += 1;
                    self.faults.counts.delayed += 1;
                    let kick = (self.now + delay, self.faults.sent, target);
                    self.faults.late.push(Reverse(kick));
                    self.set_timer(self.late_leaf(), self.faults.due());
                }
            }
        }
    }

    /// The kicks arrive that were late until now.
    pub(super) fn deliver(&mut self) {
        while self.faults.due() <= self.now {
            if let Some(Reverse((_, _, target))) = self.faults.late.pop() {
                self.kicked(target, None, Picos::ZERO);
            }
        }
        self.set_timer(self.late_leaf(), self.faults.due());
    }
}
