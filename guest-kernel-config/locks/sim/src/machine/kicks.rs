//! Kicks, from the sending to their effect.

use std::cmp::Reverse;

use super::{Fate, Harness, NEVER, Stepper, VcpuState};

impl Stepper {
    /// A vCPU kicks `target`.
    pub(super) fn kick(&mut self, target: usize, harness: &mut impl Harness) {
        self.counts.kicks += 1;
        if self.spec.lost_kicks != 0 && self.rng.u32(0..self.spec.lost_kicks) == 0 {
            return;
        }
        match self.spec.kick_delay {
            0 => self.arrive(target, harness),
            most => {
                let after = self.rng.u32(0..=most);
                self.send(target, after);
            }
        }
    }

    /// Puts a kick of `target` on its way.
    pub(super) fn send(&mut self, target: usize, after: u32) {
        let (at, number) = (self.now + u64::from(after), self.counts.steps);
        self.kicks.push(Reverse((at, number, target)));
        self.due = self.due.min(at);
    }

    /// Delivers the kicks that are due.
    #[cold]
    pub(super) fn deliver(&mut self, harness: &mut impl Harness) {
        while let Some(Reverse((at, _, target))) = self.kicks.peek().copied()
            && at <= self.now
        {
            self.kicks.pop();
            self.arrive(target, harness);
        }
        self.due = self.kicks.peek().map_or(NEVER, |Reverse((at, ..))| *at);
    }

    /// A kick arrives at `target`.
    pub(super) fn arrive(&mut self, target: usize, harness: &mut impl Harness) {
        let cpu = &mut self.cpus[target];
        match cpu.state {
            VcpuState::Finished => (),
            VcpuState::Halted => {
                cpu.state = VcpuState::Ready;
                self.awake += 1;
                harness.fate(target, Fate::Woken);
                // A host may favour a vCPU that wakes up, or not.
                if self.rng.bool() {
                    self.ready.push_front(target);
                } else {
                    self.ready.push_back(target);
                }
                if self.running.len() < self.spec.pcpus {
                    self.dispatch(harness);
                }
            }
            VcpuState::Running | VcpuState::Ready => {
                cpu.latch = true;
                harness.fate(target, Fate::Latched);
            }
        }
    }
}
