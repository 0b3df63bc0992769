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
    pub fn for_vcpus(plan: &FaultPlan, machine: usize, vcpus: VcpuCount) -> Box<[Self]> {
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

    /// Counts a kick that could not be queued for later delivery.
    pub fn count_not_delayed(&self) {
        self.counters.not_delayed.bump();
    }

    /// Decides the outcome of a halt.
    pub fn halt(&self) -> HaltFate {
        self.draw(|rng| {
            if self.spec.spurious.is_some_and(|p| p.happens(rng)) {
                self.counters.spurious.bump();
                return HaltFate::Spurious;
            }
            let delay = self.spec.halt_delay.map(|limit| up_to(limit, rng));
            if delay.is_some() {
                self.counters.halts_delayed.bump();
            }
            HaltFate::Begins(delay.unwrap_or_default())
        })
    }

    /// Decides the outcome of a kick to `target`.
    pub fn kick(&self, target: VcpuId) -> KickFate {
        self.draw(|rng| {
            let stray = self.spec.spurious.is_some_and(|p| p.happens(rng));
            let stray = stray.then(|| self.random_other(target, rng)).flatten();
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
    fn random_other(&self, target: VcpuId, rng: &mut SplitMix64) -> Option<VcpuId> {
        let count = self.vcpus.get().checked_sub(1).filter(|count| *count > 0)?;
        let index = rng.below(count as usize) as u32;
        Some(VcpuId(if index < target.0 { index } else { index + 1 }))
    }

    fn draw<T>(&self, act: impl FnOnce(&mut SplitMix64) -> T) -> T {
        let mut rng = SplitMix64::new(self.state.load(Relaxed));
        let result = act(&mut rng);
        self.state.store(rng.state(), Relaxed);
        result
    }
}

/// Returns a uniformly distributed time from zero to `limit`.
fn up_to(limit: Nanos, rng: &mut SplitMix64) -> Nanos {
    let limit = usize::try_from(limit.0).unwrap_or(usize::MAX);
    Nanos(rng.below(limit.saturating_add(1)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> FaultSpec {
        text.parse().unwrap()
    }

    fn dice(text: &str, seed: u64) -> Box<[Dice]> {
        let plan = FaultPlan { spec: spec(text), seed };
        Dice::for_vcpus(&plan, 0, VcpuCount::try_from(4).unwrap())
    }

    #[test]
    fn equal_seeds_give_equal_faults() {
        let text = "kick-drop:0.3,kick-delay:50us,kick-dup:0.3,spurious:0.3,halt-delay:1ms";
        let fates = |seed| -> Vec<_> {
            let dice = dice(text, seed);
            (0..100).map(|n| (dice[n % 4].kick(VcpuId(0)), dice[n % 4].halt())).collect()
        };
        assert_eq!(fates(7), fates(7));
        assert_ne!(fates(7), fates(8));
        let dice = dice(text, 7);
        let [first, second] = [0, 1].map(|ix: usize| {
            let fates: Vec<_> = (0..50).map(|_| dice[ix].kick(VcpuId(0))).collect();
            fates
        });
        assert_ne!(first, second, "each vCPU has separate dice");
    }

    #[test]
    fn faults_occur_at_the_requested_rates() {
        const THROWS: usize = 20_000;
        let dice = dice("kick-drop:0.1,kick-dup:0.5,spurious:0.02", 3);
        for _ in 0..THROWS {
            let fate = dice[2].kick(VcpuId(1));
            assert_ne!(fate.stray, Some(VcpuId(1)), "not the target");
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
        assert_eq!(dice[1].counts(), FaultCounts::default(), "unused");
    }

    #[test]
    fn delays_have_the_requested_length() {
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
        let mean = |times: &[Nanos]| times.iter().map(|t| t.0).sum::<u64>() / times.len() as u64;
        assert!(kicks.iter().all(|after| *after <= Nanos::micros(100)));
        assert!(halts.iter().all(|after| *after <= Nanos::millis(1)));
        assert!((48_000..52_000).contains(&mean(&kicks)), "{}", mean(&kicks));
        assert!((480_000..520_000).contains(&mean(&halts)), "{}", mean(&halts));
    }

    #[test]
    fn no_stray_kick_with_one_vcpu() {
        let plan = FaultPlan { spec: spec("spurious:1"), seed: 1 };
        let dice = Dice::for_vcpus(&plan, 0, VcpuCount::ONE);
        assert_eq!(dice[0].kick(VcpuId(0)).stray, None);
        assert_eq!(dice[0].counts().spurious, 0);
    }
}
