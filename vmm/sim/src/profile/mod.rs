//! Profiles: what the workloads of published tables do.
//!
//! One file is one workload, `vmm/sim/profiles/*.toml`. Each of its parameters says where it comes
//! from, or that it is fitted to the column of a table without overcommitment.

mod file;

use crate::host::Noise;
use crate::load::{Load, LockLoad, Shootdown, Sleep};
use crate::machine::Source;
use crate::random::Span;
use crate::time::Picos;
use published::KeyError;

/// The profiles that come with pvticket: their names and texts.
const SHIPPED: &[(&str, &str)] = &[
    ("build", include_str!("../../profiles/build.toml")),
    ("dbench", include_str!("../../profiles/dbench.toml")),
    ("ebizzy", include_str!("../../profiles/ebizzy.toml")),
    ("aim7", include_str!("../../profiles/aim7.toml")),
    ("aim7-8-nodes", include_str!("../../profiles/aim7-8-nodes.toml")),
    ("counter", include_str!("../../profiles/counter.toml")),
    ("lockref", include_str!("../../profiles/lockref.toml")),
    ("saturated", include_str!("../../profiles/saturated.toml")),
];

/// What a workload does. Its file format is explained in the guide, `vmm/sim/docs/WORKLOADS.md`.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// A description, in one line.
    pub about: String,
    think: Think,
    locks: Vec<LockShare>,
    adds: u32,
    sleep: Option<Sleep>,
    shootdown: Option<Shootdown>,
    noise: Option<Noise>,
    /// Where its parameters come from.
    pub sources: Sources,
}

/// How many parameters of a profile come from where.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Sources {
    /// Fitted to a published column.
    pub fitted: usize,
    /// Published or measured.
    pub known: usize,
    /// Neither: an estimate.
    pub assumed: usize,
}

impl Sources {
    fn count(&mut self, source: Option<Source>) {
        match source {
            None => self.fitted += 1,
            Some(Source::Assumed) => self.assumed += 1,
            Some(Source::Paper | Source::Measured) => self.known += 1,
        }
    }
}

/// The law of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeLaw {
    Fixed,
    Exponential,
    Uniform,
}

impl TimeLaw {
    const fn of(self, mean: Picos) -> Span {
        match self {
            Self::Fixed => Span::Fixed(mean),
            Self::Exponential => Span::Exponential(mean),
            Self::Uniform => Span::Uniform(mean),
        }
    }
}

/// A time; without a mean it is fitted.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Time {
    mean: Option<Picos>,
    shape: TimeLaw,
}

impl Time {
    fn or(self, fitted: Picos) -> Span {
        self.shape.of(self.mean.unwrap_or(fitted))
    }
}

/// The time between two operations.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Think {
    /// As stated, or fitted.
    Time(Time),
    /// Exponential, such that without contention the first lock is held for this share of the time.
    Held(f64),
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct LockShare {
    share: f64,
    critical: Time,
}

impl Profile {
    /// The profile that a file describes.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        file::parse(text)
    }

    /// A profile that comes with pvticket; `None` if there is none of this name.
    pub fn shipped(name: &str) -> Option<Self> {
        let (_, text) = SHIPPED.iter().find(|(known, _)| *known == name)?;
        Self::parse(text).ok()
    }

    /// The profile's locks, sleep and interrupts, with these times where they are fitted.
    pub fn load(&self, think: Picos, critical: Picos) -> Load {
        let lock =
            |lock: &LockShare| LockLoad { share: lock.share, critical: lock.critical.or(critical) };
        let shape = match self.think {
            Think::Time(time) => time.shape,
            Think::Held(_) => TimeLaw::Exponential,
        };
        Load {
            think: shape.of(think),
            locks: self.locks.iter().map(lock).collect(),
            shares_table: false,
            locks_lockrefs: false,
            has_data: true,
            adds: self.adds,
            crowd: Picos::ZERO,
            sleep: self.sleep,
            shootdown: self.shootdown,
        }
    }

    /// What the host does for it beside its vCPUs: threads of QEMU that carry out its reads and writes.
    pub fn noise(&self) -> Option<Noise> {
        self.noise
    }

    /// The mean think time and that of the first critical section; `None` if they are to be fitted.
    /// Where the profile says which share of the time a lock is held, they depend on how many vCPUs
    /// with a CPU each the column without overcommitment has.
    pub fn times(&self, vcpus: Option<usize>) -> Option<(Picos, Picos)> {
        let first = self.locks.first()?;
        let critical = first.critical.mean?;
        let think = match self.think {
            Think::Time(time) => time.mean?,
            Think::Held(held) => Picos(self.think_for(held, vcpus?)?),
        };
        Some((think, critical))
    }

    /// The mean think time in ps with which the first lock is held for `held` of the time, if no vCPU
    /// waits for it; zero if it is held for less in any case.
    fn think_for(&self, held: f64, vcpus: usize) -> Option<u64> {
        let all: f64 = self.locks.iter().map(|lock| lock.share).sum();
        let mut busy = 0.0;
        for lock in &self.locks {
            busy += lock.share / all * lock.critical.mean?.0 as f64;
        }
        let first = self.locks.first()?;
        let round = vcpus as f64 * first.share / all * first.critical.mean?.0 as f64 / held;
        let asleep =
            self.sleep.map_or(0.0, |sleep| sleep.chance.value() * sleep.time.mean().0 as f64);
        Some((round - busy - asleep).max(0.0) as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::validate::markov::Closed;
    use published::Table;

    #[test]
    fn tables_have_the_profiles_that_they_name() {
        let tables = Table::all().expect("they can be read");
        let named: HashSet<&str> = tables.iter().map(|table| table.profile.as_str()).collect();
        for (name, text) in SHIPPED {
            let profile = Profile::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(profile.name, *name);
            assert!(named.contains(name), "{name} is used");
        }
    }

    #[test]
    fn a_think_time_makes_the_first_lock_as_busy_as_stated() {
        let dbench = Profile::shipped("dbench").expect("it is shipped");
        let (think, critical) = dbench.times(Some(32)).expect("nothing is fitted");
        assert_eq!(critical, Picos(1_000_000));
        // 32 * 0.6 us / 0.5, less 0.85 us and 0.3 us of work and 5 us of sleep.
        assert!((think.seconds() * 1e6 - (38.4 - 1.15 - 5.0)).abs() < 0.001, "{think}");
        let build = Profile::shipped("build").expect("it is shipped");
        assert_eq!(build.times(Some(32)), None);
        let load = build.load(Picos(7), Picos(3));
        assert_eq!(load.locks[0].critical, Span::Exponential(Picos(3)));
        assert_eq!((load.think, build.sources.fitted), (Span::Exponential(Picos(7)), 2));
        let noise = build.noise().expect("it has threads of the host");
        assert_eq!((noise.busy, noise.idle), (Picos(200_000_000), Picos(9_800_000_000)));
        assert_eq!(dbench.noise(), None);
    }

    /// Document 000 publishes the share of time in the slow path of a mutex with fewer atomic
    /// operations, in percent. Tasks that wait are there.
    #[test]
    fn mutexes_of_aim7_are_waited_for_as_published() {
        for (name, fitted_cpus, cpus, percent) in
            [("aim7", 10, 20, 0.32), ("aim7", 10, 40, 1.02), ("aim7-8-nodes", 80, 80, 0.69)]
        {
            let profile = Profile::shipped(name).expect("it is shipped");
            let (think, section) = profile.times(Some(fitted_cpus)).expect("nothing is fitted");
            let (think, section) = (think.seconds(), section.seconds());
            let thinking = Closed { cpus, think, section }.speedup(0.0);
            let in_lock = thinking / think * section;
            let waiting = (1.0 - (thinking + in_lock) / cpus as f64) * 100.0;
            let off = waiting / percent;
            assert!((0.9..1.1).contains(&off), "{name}, {cpus} CPUs: {waiting:.2} %");
        }
    }

    #[test]
    fn an_error_is_one_line_with_line_and_key() {
        let (_, build) = SHIPPED[0];
        let (_, dbench) = SHIPPED[1];
        let (_, ebizzy) = SHIPPED[2];
        for (text, from, to, what) in [
            (dbench, "held =", "holds =", "unknown key 'holds'; there are name"),
            (
                dbench,
                "share = { value = 0.25",
                "share = { value = 0",
                "locks.share.value: 0 is not",
            ),
            (
                dbench,
                "us = 2, shape = \"exponential\"",
                "us = 2, shape = \"normal\"",
                "locks.critical.shape: 'normal'",
            ),
            (dbench, "us = 2,", "", "locks.critical: write us = N, or source = \"fitted\""),
            (dbench, "value = 0.005", "value = 1.5", "sleep.chance.value: 1.5 is not from 0 to 1"),
            (dbench, "us = 1_000, ", "ms = 1, ", "unknown key 'sleep.time.ms'"),
            (
                dbench,
                "us = 1_000, shape = \"exponential\", source = \"assumed\"",
                "source = \"fitted\"",
                "sleep.time.source: only",
            ),
            (
                dbench,
                "source = \"assumed\", note = \"a wait for the journal\"",
                "source = \"paper\"",
                "sleep.chance.note",
            ),
            (
                dbench,
                "us = 2, shape = \"exponential\", source = \"assumed\"",
                "source = \"fitted\"",
                "locks: think and",
            ),
            (build, "us = 200, source", "us = 0, source", "noise.busy.us: 0 is not"),
            (ebizzy, "held = false", "held = 0", "shootdown.held wants true or false"),
            (
                ebizzy,
                "us = 1, source",
                "us = 1, shape = \"fixed\", source",
                "unknown key 'shootdown.handler.shape'",
            ),
        ] {
            // The last place: the first may be a comment or a key of the same name.
            let at = text.rfind(from).unwrap_or_else(|| panic!("{from} is not in the file"));
            let changed = format!("{}{to}{}", &text[..at], &text[at + from.len()..]);
            let line = if what.starts_with("locks: ") {
                text[..text.find("[[locks]]").unwrap_or_default()].matches('\n').count() + 1
            } else {
                text[..at].matches('\n').count() + 1
            };
            let error = Profile::parse(&changed).expect_err(to).to_string();
            let begins = format!("line {line}: {what}");
            assert!(
                error.starts_with(&begins) && !error.contains('\n'),
                "{to}: {error}, not {begins}"
            );
        }
        let both = dbench.replacen("held =", "think = { us = 1, source = \"assumed\" }\nheld =", 1);
        let error = Profile::parse(&both).expect_err("both").to_string();
        assert!(error.contains("think: write either think or held"), "{error}");
        let none = Profile::parse(
            "name = \"a\"\nabout = \"b\"\nthink = { us = 1, source = \"assumed\" }\n",
        );
        assert_eq!(
            none.expect_err("no locks").to_string(),
            "line 1: locks: name at least one: [[locks]]"
        );
    }
}
