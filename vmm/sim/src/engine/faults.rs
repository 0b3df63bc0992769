//! Faults of halts and kicks, drawn from the seed, with the same effects as the VMM's.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use base::counters::FaultCounts;
use base::faults::{FaultSpec, Probability};

use super::*;

#[derive(Debug)]
pub(super) struct Faults {
    spec: FaultSpec,
    rng: SplitMix64,
    /// Late kicks: arrival time, sequence number and target vCPU.
    late: BinaryHeap<Reverse<(Picos, u64, usize)>>,
    sent: u64,
    /// Per vCPU: whether its halt was delayed and takes effect at the next attempt.
    was_late: Box<[bool]>,
    counts: FaultCounts,
}

impl Faults {
    pub(super) fn new(spec: FaultSpec, vcpus: usize, seed: u64) -> Self {
        let was_late = vec![false; vcpus].into();
        let (rng, late) = (SplitMix64::new(seed), BinaryHeap::new());
        Self { spec, rng, late, sent: 0, was_late, counts: FaultCounts::default() }
    }

    pub(super) fn counts(&self) -> FaultCounts {
        self.counts
    }

    fn happens(&mut self, chance: Option<Probability>) -> bool {
        chance.is_some_and(|chance| chance.happens(&mut self.rng))
    }

    fn random_delay(&mut self, max: Picos) -> Picos {
        Picos(self.rng.below(max.0 as usize + 1) as u64)
    }

    /// Draws whether this halt returns immediately.
    pub(super) fn draw_spurious_halt(&mut self) -> bool {
        let ends = self.happens(self.spec.spurious);
        self.counts.spurious += u64::from(ends);
        ends
    }

    /// Draws the delay of a kick; zero without this fault.
    fn delay(&mut self) -> Picos {
        let mean = self.spec.delay;
        mean.map_or(Picos::ZERO, |mean| self.random_delay(Picos(2 * Picos::from(mean).0)))
    }

    fn next_arrival(&self) -> Picos {
        self.late.peek().map_or(Picos::NEVER, |Reverse((at, ..))| *at)
    }
}

impl Sim {
    pub(super) fn late_leaf(&self) -> usize {
        self.pcpus.len() + self.vcpus.len()
    }

    /// Delays the halt of `v` if the spec has delayed halts. Returns whether it did.
    pub(super) fn delay_halt(&mut self, v: usize, pcpu: usize) -> bool {
        let Some(max) = self.faults.spec.halt_delay else { return false };
        let was_late = &mut self.faults.was_late[v];
        *was_late = !*was_late;
        if !*was_late {
            return false;
        }
        self.faults.counts.halts_delayed += 1;
        let at = self.now + self.faults.random_delay(max.into());
        self.expect(v, pcpu, NextEvent::Due, at);
        true
    }

    /// Sends a kick from `v` to `target`, subject to faults.
    pub(super) fn kick(&mut self, v: usize, target: usize) {
        let exit = self.lock_exit;
        self.shared.waits.kicked(target, v);
        let FaultSpec { drop, dup, spurious, .. } = self.faults.spec;
        if self.faults.happens(spurious) && self.per_guest > 1 {
            let first = self.guest_vcpu(v, 0);
            let offset = 1 + self.faults.rng.below(self.per_guest - 1);
            let victim = first + (target - first + offset) % self.per_guest;
            self.faults.counts.spurious += 1;
            self.shared.waits.kicked(victim, v);
            self.deliver_kick(victim, None, exit);
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
                    self.deliver_kick(target, Some(by), exit);
                }
                delay => {
                    self.faults.sent += 1;
                    self.faults.counts.delayed += 1;
                    let kick = (self.now + delay, self.faults.sent, target);
                    self.faults.late.push(Reverse(kick));
                    self.set_timer(self.late_leaf(), self.faults.next_arrival());
                }
            }
        }
    }

    pub(super) fn deliver_late_kicks(&mut self) {
        while self.faults.next_arrival() <= self.now {
            if let Some(Reverse((_, _, target))) = self.faults.late.pop() {
                self.deliver_kick(target, None, Picos::ZERO);
            }
        }
        self.set_timer(self.late_leaf(), self.faults.next_arrival());
    }
}
