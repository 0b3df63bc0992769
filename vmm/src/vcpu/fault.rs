//! Faults on purpose: what becomes of a kick or a halt, by seeded dice.
//!
//! Each vCPU throws dice of its own, which lie in cache lines of their own: the exit path shares
//! no writes for them and allocates nothing.

use std::{
    fmt,
    str::FromStr,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use arrayvec::ArrayVec;
use thiserror::Error;

use crate::{
    machine::counters::{FaultCounters, FaultCounts},
    rng::SplitMix64,
    units::{Nanos, UnitError, VcpuCount, VcpuId},
};

/// A `--fault` that is none.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum FaultError {
    /// Not `NAME:VALUE` of a known name.
    #[error("'{0}' is no fault: kick-drop:P, kick-delay:T, kick-dup:P, spurious:P or halt-delay:T")]
    Unknown(String),
    /// Not a number from 0 to 1.
    #[error("'{0}' is not a probability: write a number from 0 to 1, for example 0.01")]
    Probability(String),
    /// Not a time.
    #[error(transparent)]
    Span(#[from] UnitError),
    /// The same again.
    #[error("{0} is named twice")]
    Twice(&'static str),
}

/// How likely something is: 0 to 1.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct Probability(f64);

impl FromStr for Probability {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        match text.parse() {
            Ok(p) if (0.0..=1.0).contains(&p) => Ok(Self(p)),
            _ => Err(FaultError::Probability(text.into())),
        }
    }
}

impl Probability {
    /// Throws the dice.
    fn happens(self, rng: &mut SplitMix64) -> bool {
        // 53 bits: every value is a float of its own.
        let thrown = (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        thrown < self.0
    }
}

/// One fault, as on the command line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// A kick is not delivered.
    KickDrop(Probability),
    /// Every kick is delivered later: by anything up to twice this.
    KickDelay(Nanos),
    /// A kick is delivered twice.
    KickDup(Probability),
    /// A halt returns at once, or a kick wakes somebody else too.
    Spurious(Probability),
    /// Every halt begins late: by anything up to this.
    HaltDelay(Nanos),
}

impl FromStr for Fault {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let unknown = || FaultError::Unknown(text.into());
        let (name, value) = text.split_once(':').ok_or_else(unknown)?;
        Ok(match name {
            "kick-drop" => Fault::KickDrop(value.parse()?),
            "kick-delay" => Fault::KickDelay(value.parse()?),
            "kick-dup" => Fault::KickDup(value.parse()?),
            "spurious" => Fault::Spurious(value.parse()?),
            "halt-delay" => Fault::HaltDelay(value.parse()?),
            _ => return Err(unknown()),
        })
    }
}

/// Which faults, and how often or how long.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct FaultSpec {
    drop: Option<Probability>,
    delay: Option<Nanos>,
    dup: Option<Probability>,
    spurious: Option<Probability>,
    halt_delay: Option<Nanos>,
}

impl FaultSpec {
    /// Those of a list; None of an empty one.
    pub fn collect(faults: &[Fault]) -> Result<Option<Self>, FaultError> {
        let mut spec = Self::default();
        for fault in faults {
            let (name, was_there) = match *fault {
                Fault::KickDrop(p) => ("kick-drop", spec.drop.replace(p).is_some()),
                Fault::KickDelay(t) => ("kick-delay", spec.delay.replace(t).is_some()),
                Fault::KickDup(p) => ("kick-dup", spec.dup.replace(p).is_some()),
                Fault::Spurious(p) => ("spurious", spec.spurious.replace(p).is_some()),
                Fault::HaltDelay(t) => ("halt-delay", spec.halt_delay.replace(t).is_some()),
            };
            if was_there {
                return Err(FaultError::Twice(name));
            }
        }
        Ok((!faults.is_empty()).then_some(spec))
    }

    /// Are halts to begin late?
    pub const fn delays_halts(&self) -> bool {
        self.halt_delay.is_some()
    }

    /// The longest time that these faults alone keep a kick or a halt from its effect.
    pub const fn longest(&self) -> Nanos {
        let kick = match self.delay {
            Some(delay) => delay.after(delay),
            None => Nanos::ZERO,
        };
        match self.halt_delay {
            Some(halt) => kick.after(halt),
            None => kick,
        }
    }
}

/// As [`FaultSpec::collect`] takes it, piece by piece.
/// As it is displayed.
impl FromStr for FaultSpec {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let faults = text.split(',').map(str::parse).collect::<Result<Vec<Fault>, _>>()?;
        Ok(Self::collect(&faults)?.unwrap_or_default())
    }
}

impl fmt::Display for FaultSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chance = |name: &str, p: Option<Probability>| p.map(|p| format!("{name}:{}", p.0));
        let time = |name: &str, t: Option<Nanos>| t.map(|t| format!("{name}:{t}"));
        let parts = [
            chance("kick-drop", self.drop),
            time("kick-delay", self.delay),
            chance("kick-dup", self.dup),
            chance("spurious", self.spurious),
            time("halt-delay", self.halt_delay),
        ];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(","))
    }
}

/// The faults of a machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FaultPlan {
    /// Which.
    pub spec: FaultSpec,
    /// What the dice begin with.
    pub seed: u64,
}

/// What becomes of a halt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HaltFate {
    /// It begins after this.
    Begins(Nanos),
    /// It returns at once.
    Spurious,
}

/// What becomes of a kick.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KickFate {
    /// When it is delivered, from now, as often as it is: not at all, once or twice.
    pub deliveries: ArrayVec<Nanos, 2>,
    /// Who is woken beside its target.
    pub stray: Option<VcpuId>,
}

/// One vCPU's dice and what they gave; thrown by that vCPU's thread alone.
#[derive(Debug)]
#[repr(align(128))]
pub struct Dice {
    spec: FaultSpec,
    vcpus: VcpuCount,
    state: AtomicU64,
    counters: FaultCounters,
}

impl Dice {
    /// The dice of each vCPU of machine number `machine`.
    pub fn of_all(plan: &FaultPlan, machine: usize, vcpus: VcpuCount) -> Box<[Self]> {
        // One generator seeds the others, so that no two begin with neighbouring states.
        let mut seeds = SplitMix64::new(plan.seed ^ (machine as u64) << 32);
        let dice = |_| Self {
            spec: plan.spec,
            vcpus,
            state: AtomicU64::new(seeds.next_u64()),
            counters: FaultCounters::default(),
        };
        vcpus.ids().map(dice).collect()
    }

    /// What they gave so far.
    pub fn counts(&self) -> FaultCounts {
        self.counters.read()
    }

    /// A kick is on its way, late.
    pub fn count_delayed(&self) {
        self.counters.delayed.bump();
    }

    /// A kick was to be late, and there is no room for it among those that are.
    pub fn count_not_delayed(&self) {
        self.counters.not_delayed.bump();
    }

    /// Of a halt.
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

    /// Of a kick of `target`.
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

    /// Some other vCPU, if there is one.
    fn other_than(&self, target: VcpuId, rng: &mut SplitMix64) -> Option<VcpuId> {
        let others = self.vcpus.get().checked_sub(1).filter(|others| *others > 0)?;
        let one = rng.below(others as usize) as u32;
        Some(VcpuId(if one < target.0 { one } else { one + 1 }))
    }

    fn throw<T>(&self, with: impl FnOnce(&mut SplitMix64) -> T) -> T {
        let mut rng = SplitMix64::new(self.state.load(Relaxed));
        let thrown = with(&mut rng);
        self.state.store(rng.state(), Relaxed);
        thrown
    }
}

/// Any time from nothing to `most`, all alike.
fn up_to(most: Nanos, rng: &mut SplitMix64) -> Nanos {
    let most = usize::try_from(most.0).unwrap_or(usize::MAX);
    Nanos(rng.below(most.saturating_add(1)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> FaultSpec {
        let faults: Vec<Fault> = text.split(',').map(|fault| fault.parse().unwrap()).collect();
        FaultSpec::collect(&faults).unwrap().unwrap()
    }

    fn dice(text: &str, seed: u64) -> Box<[Dice]> {
        let plan = FaultPlan { spec: spec(text), seed };
        Dice::of_all(&plan, 0, VcpuCount::try_from(4).unwrap())
    }

    #[test]
    fn specs_print_as_they_parse() {
        let text = "kick-drop:0.25,kick-delay:50us,kick-dup:1,spurious:0,halt-delay:2ms";
        assert_eq!(spec(text).to_string(), text);
        assert_eq!(spec("halt-delay:2ms").to_string(), "halt-delay:2ms");
        assert_eq!(FaultSpec::collect(&[]), Ok(None));
        assert_eq!(spec(text).longest(), Nanos::micros(2100));
    }

    #[test]
    fn what_is_no_fault_says_why() {
        let error = |text: &str| text.parse::<Fault>().unwrap_err().to_string();
        for bad in ["", "kick", "kick-drop", "drop:0.5", "kick-drop=0.5", ":"] {
            assert!(error(bad).contains("kick-drop:P"), "{bad}");
        }
        for bad in ["kick-drop:1.1", "kick-dup:-0.1", "spurious:nan", "spurious:", "kick-drop:5us"]
        {
            assert!(error(bad).contains("is not a probability"), "{bad}");
        }
        for bad in ["kick-delay:0.5", "halt-delay:", "halt-delay:-1us", "kick-delay:9999s"] {
            assert!(error(bad).contains("is not a span of time"), "{bad}");
        }
        let twice = ["spurious:0.1", "spurious:0.2"].map(|text| text.parse().unwrap());
        assert_eq!(FaultSpec::collect(&twice), Err(FaultError::Twice("spurious")));
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
            assert_ne!(fate.stray, Some(VcpuId(1)), "that is no other one");
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
        assert_eq!(dice[1].counts(), FaultCounts::default(), "nobody else has thrown");
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
