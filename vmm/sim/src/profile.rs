//! Profiles: models of the workloads in published tables.
//!
//! Each file, `vmm/sim/profiles/*.toml`, describes one workload. Each parameter has a source or is fitted to
//! the table's column without overcommitment. The files are compiled in, and a unit test checks the
//! constraints that their syntax does not express.

use base::faults::Probability;
use serde::Deserialize;

use crate::host_model::Noise;
use crate::load::{Load, LockLoad, Shootdown, Sleep};
use crate::random::Span;
use crate::time::Picos;

/// Names and texts of the built-in profiles.
const SHIPPED: &[(&str, &str)] = &[
    ("build", include_str!("../profiles/build.toml")),
    ("dbench", include_str!("../profiles/dbench.toml")),
    ("ebizzy", include_str!("../profiles/ebizzy.toml")),
    ("aim7", include_str!("../profiles/aim7.toml")),
    ("aim7-8-nodes", include_str!("../profiles/aim7-8-nodes.toml")),
    ("counter", include_str!("../profiles/counter.toml")),
    ("lockref", include_str!("../profiles/lockref.toml")),
    ("saturated", include_str!("../profiles/saturated.toml")),
];

/// A workload. `vmm/sim/docs/WORKLOADS.md` documents the file format.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The profile's name.
    pub name: String,
    /// A description in one line.
    pub about: String,
    /// Time between two operations. If absent, the time is exponential, with a mean for which the
    /// first lock is held for the share `held` of the time without contention.
    think: Option<Parameter>,
    held: Option<Parameter>,
    locks: Vec<LockShare>,
    adds: Option<Parameter>,
    sleep: Option<ProfileSleep>,
    shootdown: Option<ProfileShootdown>,
    noise: Option<ProfileNoise>,
}

/// A number, or a time in microseconds with its distribution; fitted if neither is set.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameter {
    value: Option<f64>,
    us: Option<f64>,
    #[serde(default)]
    shape: TimeLaw,
    source: Origin,
    note: Option<String>,
}

/// The source of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Origin {
    Paper,
    Measured,
    Assumed,
    Fitted,
}

/// The distribution of a time.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TimeLaw {
    Fixed,
    #[default]
    Exponential,
    Uniform,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct LockShare {
    name: String,
    share: Parameter,
    critical: Parameter,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileSleep {
    chance: Parameter,
    time: Parameter,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileShootdown {
    chance: Parameter,
    handler: Parameter,
    #[serde(default)]
    held: bool,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileNoise {
    busy: Parameter,
    idle: Parameter,
}

/// Numbers of a profile's parameters by source.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Sources {
    /// Fitted to a published column.
    pub fitted: usize,
    /// Published or measured.
    pub known: usize,
    /// Estimated.
    pub assumed: usize,
}

impl TimeLaw {
    const fn span(self, mean: Picos) -> Span {
        match self {
            Self::Fixed => Span::Fixed(mean),
            Self::Exponential => Span::Exponential(mean),
            Self::Uniform => Span::Uniform(mean),
        }
    }
}

impl Parameter {
    fn number(&self) -> f64 {
        self.value.unwrap_or_default()
    }

    fn chance(&self) -> Probability {
        Probability::new(self.number()).unwrap_or_default()
    }

    /// `None` if fitted.
    fn mean(&self) -> Option<Picos> {
        self.us.map(|micros| Picos::from_nanos(micros * 1e3))
    }

    /// The distribution with the parameter's mean, or with the mean `fitted`.
    fn span(&self, fitted: Picos) -> Span {
        self.shape.span(self.mean().unwrap_or(fitted))
    }
}

impl Profile {
    /// A built-in profile; `None` if the name is unknown.
    pub fn shipped(name: &str) -> Option<Self> {
        let (_, text) = SHIPPED.iter().find(|(known, _)| *known == name)?;
        toml::from_str(text).ok()
    }

    /// The load with this mean think time, and with this mean critical time where it is fitted.
    pub fn load(&self, think: Picos, critical: Picos) -> Load {
        let lock = |lock: &LockShare| LockLoad {
            share: lock.share.number(),
            critical: lock.critical.span(critical),
        };
        let sleep = |sleep: &ProfileSleep| Sleep {
            chance: sleep.chance.chance(),
            time: sleep.time.span(Picos::ZERO),
        };
        let shootdown = |shootdown: &ProfileShootdown| Shootdown {
            chance: shootdown.chance.chance(),
            is_held: shootdown.held,
            handler: shootdown.handler.mean().unwrap_or_default(),
        };
        let law = self.think.as_ref().map_or(TimeLaw::Exponential, |think| think.shape);
        Load {
            locks: self.locks.iter().map(lock).collect(),
            has_data: true,
            adds: self.adds.as_ref().map_or(1, |adds| adds.number() as u32),
            sleep: self.sleep.as_ref().map(sleep),
            shootdown: self.shootdown.as_ref().map(shootdown),
            ..Load::new(law.span(think), Span::Fixed(critical))
        }
    }

    /// Background noise: QEMU's threads that carry out the guest's reads and writes.
    pub fn noise(&self) -> Option<Noise> {
        let ProfileNoise { busy, idle } = self.noise.as_ref()?;
        Some(Noise { busy: busy.mean()?, idle: idle.mean()? })
    }

    /// The mean think time and the mean critical time of the first lock; `None` if they are fitted. With
    /// `held`, the think time depends on the number of vCPUs, each with a CPU, in the column without
    /// overcommitment; `None` without this number.
    pub fn times(&self, vcpus: Option<usize>) -> Option<(Picos, Picos)> {
        let critical = self.locks.first()?.critical.mean()?;
        let think = match (&self.think, &self.held) {
            (Some(think), _) => think.mean()?,
            (None, held) => Picos(self.think_for(held.as_ref()?.number(), vcpus?)?),
        };
        Some((think, critical))
    }

    /// The mean think time in ps for which the first lock is held for `held` of the time if no vCPU waits for
    /// it; zero if it is held for less at any think time.
    fn think_for(&self, held: f64, vcpus: usize) -> Option<u64> {
        let total: f64 = self.locks.iter().map(|lock| lock.share.number()).sum();
        let mut busy = 0.0;
        for lock in &self.locks {
            busy += lock.share.number() / total * lock.critical.mean()?.0 as f64;
        }
        let first = self.locks.first()?;
        let cycle =
            vcpus as f64 * first.share.number() / total * first.critical.mean()?.0 as f64 / held;
        let asleep = |sleep: &ProfileSleep| {
            sleep.chance.number() * sleep.time.mean().unwrap_or_default().0 as f64
        };
        let asleep = self.sleep.as_ref().map_or(0.0, asleep);
        Some((cycle - busy - asleep).max(0.0) as u64)
    }

    fn parameters(&self) -> impl Iterator<Item = &Parameter> {
        let Self { think, held, adds, locks, sleep, shootdown, noise, .. } = self;
        let of_locks = locks.iter().flat_map(|lock| [&lock.share, &lock.critical]);
        let of_sleep = sleep.iter().flat_map(|sleep| [&sleep.chance, &sleep.time]);
        let interrupts = shootdown.iter();
        let interrupts = interrupts.flat_map(|shootdown| [&shootdown.chance, &shootdown.handler]);
        let of_noise = noise.iter().flat_map(|noise| [&noise.busy, &noise.idle]);
        let alone = [think, held, adds].into_iter().flatten();
        alone.chain(of_locks).chain(of_sleep).chain(interrupts).chain(of_noise)
    }

    /// Numbers of parameters by source.
    pub fn sources(&self) -> Sources {
        let mut sources = Sources::default();
        for parameter in self.parameters() {
            match parameter.source {
                Origin::Fitted => sources.fitted += 1,
                Origin::Assumed => sources.assumed += 1,
                Origin::Paper | Origin::Measured => sources.known += 1,
            }
        }
        sources
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mathematics_tests::Closed;

    fn shipped(name: &str) -> Profile {
        let (_, text) = SHIPPED.iter().find(|(known, _)| *known == name).expect(name);
        toml::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    #[test]
    fn built_in_profiles_are_valid() {
        for (name, _) in SHIPPED {
            let profile = shipped(name);
            assert_eq!(profile.name, *name);
            assert_ne!(profile.think.is_some(), profile.held.is_some(), "{name}: one of both");
            let is_fitted = |time: &Parameter| time.source == Origin::Fitted;
            let critical = profile.locks.iter().any(|lock| is_fitted(&lock.critical));
            let think = profile.think.as_ref().is_some_and(is_fitted);
            assert_eq!(think, critical, "{name}: fitted together, or neither");
            let fitted = profile.parameters().filter(|parameter| is_fitted(parameter)).count();
            assert_eq!(fitted > 0, think, "{name}: only they are fitted");
            assert!((1..=64).contains(&profile.locks.len()), "{name}");
            let chances = [
                profile.sleep.as_ref().map(|sleep| &sleep.chance),
                profile.shootdown.as_ref().map(|shootdown| &shootdown.chance),
            ];
            for chance in chances.into_iter().flatten() {
                assert!((0.0..=1.0).contains(&chance.number()), "{name}: {chance:?}");
            }
            for parameter in profile.parameters() {
                let Parameter { value, us, source, note, .. } = parameter;
                let stated = usize::from(value.is_some()) + usize::from(us.is_some());
                let is_fitted = usize::from(is_fitted(parameter));
                assert_eq!(stated + is_fitted, 1, "{name}: {parameter:?}");
                let is_known = matches!(source, Origin::Paper | Origin::Measured);
                assert!(note.is_some() || !is_known, "{name}: {parameter:?} names its source");
            }
        }
    }

    #[test]
    fn think_time_matches_the_held_share() {
        let dbench = shipped("dbench");
        let (think, critical) = dbench.times(Some(32)).expect("nothing is fitted");
        assert_eq!(critical, Picos(1_000_000));
        // 32 * 0.6 us / 0.5, less 0.85 us and 0.3 us of work and 5 us of sleep.
        assert!((think.seconds() * 1e6 - (38.4 - 1.15 - 5.0)).abs() < 0.001, "{think}");
        let build = shipped("build");
        assert_eq!(build.times(Some(32)), None);
        let load = build.load(Picos(7), Picos(3));
        assert_eq!(load.locks[0].critical, Span::Exponential(Picos(3)));
        assert_eq!((load.think, build.sources().fitted), (Span::Exponential(Picos(7)), 2));
        let noise = build.noise().expect("it has threads of the host");
        assert_eq!((noise.busy, noise.idle), (Picos(200_000_000), Picos(9_800_000_000)));
        assert_eq!(dbench.noise(), None);
    }

    /// W. Long (linux-kernel, 8 April 2013) publishes the percentage of time in the slow path of a
    /// mutex with fewer atomic operations. Waiting tasks are in the slow path.
    #[test]
    fn mutexes_of_aim7_are_waited_for_as_published() {
        for (name, fitted_cpus, cpus, percent) in
            [("aim7", 10, 20, 0.32), ("aim7", 10, 40, 1.02), ("aim7-8-nodes", 80, 80, 0.69)]
        {
            let (think, section) =
                shipped(name).times(Some(fitted_cpus)).expect("nothing is fitted");
            let (think, section) = (think.seconds(), section.seconds());
            let thinking = Closed { cpus, think, section }.speedup(0.0);
            let in_lock = thinking / think * section;
            let waiting = (1.0 - (thinking + in_lock) / cpus as f64) * 100.0;
            let ratio = waiting / percent;
            assert!((0.9..1.1).contains(&ratio), "{name}, {cpus} CPUs: {waiting:.2} %");
        }
    }
}
