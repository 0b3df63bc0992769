//! Injected faults in kicks and halts, chosen by seeded random numbers.
//!
//! Each vCPU has a separate generator ("dice") in separate cache lines. On the exit path,
//! generators cause no shared writes and no allocation.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arrayvec::ArrayVec;

use base::{
    counters::{FaultCounters, FaultCounts},
    faults::FaultSpec,
    rng::SplitMix64,
    units::{Nanos, VcpuCount, VcpuId},
};

/// The fault injection plan of a machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FaultPlan {
    /// The faults to inject.
    pub spec: FaultSpec,
    /// Random seed.
    pub seed: u64,
}

/// The outcome of a halt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HaltFate {
    /// The halt begins after this time.
    Begins(Nanos),
    /// The halt returns at once.
    Spurious,
}

/// The outcome of a kick.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KickFate {
    /// Delays of its deliveries, of which there are zero, one or two.
    pub deliveries: ArrayVec<Nanos, 2>,
    /// Another vCPU, woken in addition.
    pub stray: Option<VcpuId>,
}

/// One vCPU's random generator and fault counters. Only that vCPU's thread may use it.
#[derive(Debug)]
#[repr(align(128))]
pub struct Dice {
    spec: FaultSpec,
    vcpus: VcpuCount,
    state: AtomicU64,
    counters: FaultCounters,
}

impl Dice {
    /// Creates the dice of each vCPU of machine number `machine`.
    pub fn of_all(plan: &FaultPlan, machine: usize, vcpus: VcpuCount) -> Box<[Self]> {
        // One generator seeds the others, so that no two start from adjacent states.
        let mut seeds = SplitMix64::new(plan.seed ^ (machine as u64) << 32);
        let dice = |_| Self {
            spec: plan.spec,
            vcpus,
            state: AtomicU64::new(seeds.next_u64()),
            counters: FaultCounters::default(),
        };
        vcpus.ids().map(dice).collect()
    }

    /// Returns the fault counts so far.
    pub fn counts(&self) -> FaultCounts {
        self.counters.read()
    }

    /// Counts a delayed kick.
    pub fn count_delayed(&self) {
        self.counters.delayed.bump();
    }

    /// Counts a kick that could not be delayed because the queue was full.
    pub fn count_not_delayed(&self) {
        self.counters.not_delayed.bump();
    }

    /// Decides the outcome of a halt.
    pub fn halt(&self) -> HaltFate {
        self.throw(|rng| {
            if self.spec.spurious.is_some_and(|p| p.happens(rng)) {
                self.counters.spurious.bump();
                return HaltFate::Spurious;
            }
            let late = self.spec.halt_delay.map(|most| up_to(most, rng));
            if late.is_some() {
                self.counters.halts_delayed.bump();
            }
            HaltFate::Begins(late.unwrap_or_default())
        })
    }

    /// Decides the outcome of a kick to `target`.
    pub fn kick(&self, target: VcpuId) -> KickFate {
        self.throw(|rng| {
            let stray = self.spec.spurious.is_some_and(|p| p.happens(rng));
            let stray = stray.then(|| self.other_than(target, rng)).flatten();
            if stray.is_some() {
                self.counters.spurious.bump();
            }
            let mut deliveries = ArrayVec::new();
            if self.spec.drop.is_some_and(|p| p.happens(rng)) {
                self.counters.dropped.bump();
                return KickFate { deliveries, stray };
            }
            let mut delay = || self.spec.delay.map_or(Nanos::ZERO, |t| up_to(t.after(t), rng));
            deliveries.push(delay());
            let second = delay();
            if self.spec.dup.is_some_and(|p| p.happens(rng)) {
                self.counters.duplicated.bump();
                deliveries.push(second);
            }
            KickFate { deliveries, stray }
        })
    }

    /// Returns a random vCPU other than `target`, if there is any.
    fn other_than(&self, target: VcpuId, rng: &mut SplitMix64) -> Option<VcpuId> {
        let others = self.vcpus.get().checked_sub(1).filter(|others| *others > 0)?;
        let one = rng.below(others as usize) as u32;
        Some(VcpuId(if one < target.0 { one } else { one + 1 }))
    }

    fn throw<T>(&self, draw: impl FnOnce(&mut SplitMix64) -> T) -> T {
        let mut rng = SplitMix64::new(self.state.load(Relaxed));
        let thrown = draw(&mut rng);
        self.state.store(rng.state(), Relaxed);
        thrown
    }
}

/// Returns a uniformly distributed time from zero to `most`.
fn up_to(most: Nanos, rng: &mut SplitMix64) -> Nanos {
    let most = usize::try_from(most.0).unwrap_or(usize::MAX);
    Nanos(rng.below(most.saturating_add(1)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> FaultSpec {
        text.parse().unwrap()
    }

    fn dice(text: &str, seed: u64) -> Box<[Dice]> {
        let plan = FaultPlan { spec: spec(text), seed };
        Dice::of_all(&plan, 0, VcpuCount::try_from(4).unwrap())
    }

    #[test]
    fn the_same_seed_throws_the_same() {
        let text = "kick-drop:0.3,kick-delay:50us,kick-dup:0.3,spurious:0.3,halt-delay:1ms";
        let thrown = |seed| -> Vec<_> {
            let dice = dice(text, seed);
            (0..100).map(|n| (dice[n % 4].kick(VcpuId(0)), dice[n % 4].halt())).collect()
        };
        assert_eq!(thrown(7), thrown(7));
        assert_ne!(thrown(7), thrown(8));
        let dice = dice(text, 7);
        let [one, two] = [0, 1].map(|ix: usize| {
            let thrown: Vec<_> = (0..50).map(|_| dice[ix].kick(VcpuId(0))).collect();
            thrown
        });
        assert_ne!(one, two, "vCPUs have dice of their own");
    }

    #[test]
    fn faults_come_as_often_as_asked() {
        const THROWS: usize = 20_000;
        let dice = dice("kick-drop:0.1,kick-dup:0.5,spurious:0.02", 3);
        for _ in 0..THROWS {
            let fate = dice[2].kick(VcpuId(1));
            assert_ne!(fate.stray, Some(VcpuId(1)), "it is not another one");
            assert!(fate.stray.is_none_or(|stray| stray.0 < 4));
            assert!(fate.deliveries.iter().all(|after| *after == Nanos::ZERO));
            let halt = dice[2].halt();
            assert!(matches!(halt, HaltFate::Spurious | HaltFate::Begins(Nanos::ZERO)));
        }
        let FaultCounts { dropped, delayed, not_delayed, duplicated, spurious, halts_delayed } =
            dice[2].counts();
        let near = |count: u64, share: f64| {
            let expected = share * THROWS as f64;
            assert!((count as f64 - expected).abs() < 0.1 * expected, "{count} for {expected}");
        };
        near(dropped, 0.1);
        near(duplicated, 0.45);
        near(spurious, 0.04);
        assert_eq!((delayed, not_delayed, halts_delayed), (0, 0, 0));
        assert_eq!(dice[1].counts(), FaultCounts::default(), "no other vCPU has used its dice");
    }

    #[test]
    fn delays_are_of_the_length_asked_for() {
        let dice = dice("kick-delay:50us,kick-dup:1,halt-delay:1ms", 3);
        let mut kicks = Vec::new();
        let mut halts = Vec::new();
        for _ in 0..10_000 {
            let fate = dice[0].kick(VcpuId(1));
            assert_eq!(fate.deliveries.len(), 2);
            kicks.extend(fate.deliveries);
            let HaltFate::Begins(after) = dice[0].halt() else { panic!() };
            halts.push(after);
        }
        let mean = |all: &[Nanos]| all.iter().map(|t| t.0).sum::<u64>() / all.len() as u64;
        assert!(kicks.iter().all(|after| *after <= Nanos::micros(100)));
        assert!(halts.iter().all(|after| *after <= Nanos::millis(1)));
        assert!((48_000..52_000).contains(&mean(&kicks)), "{}", mean(&kicks));
        assert!((480_000..520_000).contains(&mean(&halts)), "{}", mean(&halts));
    }

    #[test]
    fn a_lone_vcpu_has_nobody_else_to_wake() {
        let plan = FaultPlan { spec: spec("spurious:1"), seed: 1 };
        let dice = Dice::of_all(&plan, 0, VcpuCount::ONE);
        assert_eq!(dice[0].kick(VcpuId(0)).stray, None);
        assert_eq!(dice[0].counts().spurious, 0);
    }
}
