//! Reads the file of a profile.

use base::faults::Probability;
use published::keys::{Keys, Result, read};

use super::{LockShare, Profile, Sources, Think, Time, TimeLaw};
use crate::host::Noise;
use crate::load::{Shootdown, Sleep};
use crate::machine::Source;
use crate::machine::file::SOURCES;
use crate::time::Picos;

const KEYS: &[&str] =
    &["name", "about", "think", "held", "locks", "adds", "sleep", "shootdown", "noise"];
const LOCK: &[&str] = &["name", "share", "critical"];
const SLEEP: &[&str] = &["chance", "time"];
const SHOOTDOWN: &[&str] = &["chance", "handler", "held"];
const NOISE: &[&str] = &["busy", "idle"];
const TIME: &[&str] = &["us", "shape", "source", "note"];
const FIXED: &[&str] = &["us", "source", "note"];
const NUMBER: &[&str] = &["value", "source", "note"];

/// The longest time that a file may state, in us. A longer one is taken for a mistake in the unit.
const MOST_MICROS: f64 = 1e6;
/// The most locks of a guest.
const MOST_LOCKS: usize = 64;
/// The most that `adds`, the addend of one use of a counter, may be.
const MOST_ADDS: f64 = 1e6;

pub(super) fn parse(text: &str) -> Result<Profile> {
    read(text, KEYS, |file| {
        let mut reader = ProfileReader::default();
        let think = reader.think(file)?;
        let locks = reader.locks(file)?;
        let is_fitted = matches!(think, Think::Time(Time { mean: None, .. }));
        if is_fitted != locks.iter().any(|lock| lock.critical.mean.is_none()) {
            let reason = "think and critical times are fitted together, or neither";
            return Err(file.wrong("locks", reason.into()));
        }
        let adds = file.get("adds").map(|_| reader.number(file, "adds", 1.0, MOST_ADDS));
        let adds = adds.transpose()?.unwrap_or(1.0) as u32;
        let sleep = file.get("sleep").map(|_| reader.sleep(file)).transpose()?;
        let shootdown = file.get("shootdown").map(|_| reader.shootdown(file)).transpose()?;
        let noise = file.get("noise").map(|_| reader.noise(file)).transpose()?;
        let (name, about, sources) = (file.text("name")?, file.text("about")?, reader.sources);
        Ok(Profile { name, about, think, locks, adds, sleep, shootdown, noise, sources })
    })
}

/// The laws of a time, by their names in `shape`.
const SHAPES: &[(&str, TimeLaw)] = &[
    ("fixed", TimeLaw::Fixed),
    ("exponential", TimeLaw::Exponential),
    ("uniform", TimeLaw::Uniform),
];

/// Reads parameters, and counts where they come from.
#[derive(Default)]
struct ProfileReader {
    sources: Sources,
}

impl ProfileReader {
    /// Reads and counts where a parameter comes from; None: it is fitted.
    fn source(&mut self, keys: &Keys<'_>) -> Result<Option<Source>> {
        let [paper, measured, assumed] = SOURCES.map(|(name, source)| (name, Some(source)));
        let source = keys.name("source", &[paper, measured, assumed, ("fitted", None)])?;
        let note = keys.text_if_any("note")?;
        if note.is_none() && matches!(source, Some(Source::Paper | Source::Measured)) {
            let name = keys.text("source")?;
            return Err(keys.wrong("note", format!("source {name} needs a note that says where")));
        }
        self.sources.count(source);
        Ok(source)
    }

    fn stated(&mut self, keys: &Keys<'_>) -> Result<()> {
        match self.source(keys)? {
            Some(_) => Ok(()),
            None => Err(keys.wrong("source", "only think and critical times are fitted".into())),
        }
    }

    fn number(&mut self, keys: &Keys<'_>, key: &str, least: f64, most: f64) -> Result<f64> {
        let table = keys.table(key, NUMBER)?;
        let number = table.number("value", least, most)?;
        self.stated(&table)?;
        Ok(number)
    }

    fn chance(&mut self, keys: &Keys<'_>) -> Result<Probability> {
        let number = self.number(keys, "chance", 0.0, 1.0)?;
        Probability::new(number).map_err(|error| keys.wrong("chance", error.to_string()))
    }

    fn time(&mut self, keys: &Keys<'_>, key: &str) -> Result<Time> {
        let table = keys.table(key, TIME)?;
        let micros = table.number_if_any("us", 0.0, MOST_MICROS)?;
        let shape = table.name_if_any("shape", SHAPES)?.unwrap_or(TimeLaw::Exponential);
        let source = self.source(&table)?;
        if micros.is_some() != source.is_some() {
            return Err(keys.wrong(key, "write us = N, or source = \"fitted\" without it".into()));
        }
        Ok(Time { mean: micros.map(|micros| Picos::from_nanos(micros * 1e3)), shape })
    }

    fn think(&mut self, file: &Keys<'_>) -> Result<Think> {
        match (file.get("think"), file.get("held")) {
            (None, Some(_)) => Ok(Think::Held(self.number(file, "held", 0.001, 1.0)?)),
            (Some(_), Some(_)) => Err(file.wrong("think", "write either think or held".into())),
            _ => Ok(Think::Time(self.time(file, "think")?)),
        }
    }

    fn locks(&mut self, file: &Keys<'_>) -> Result<Vec<LockShare>> {
        let mut locks = Vec::new();
        for keys in file.tables("locks", LOCK)? {
            // Required, but only for people who read the file.
            keys.text("name")?;
            let share = self.number(&keys, "share", 1e-6, 1e6)?;
            locks.push(LockShare { share, critical: self.time(&keys, "critical")? });
        }
        match locks.len() {
            0 => Err(file.wrong("locks", "name at least one: [[locks]]".into())),
            1..=MOST_LOCKS => Ok(locks),
            more => Err(file.wrong("locks", format!("{more} are more than {MOST_LOCKS}"))),
        }
    }

    fn sleep(&mut self, file: &Keys<'_>) -> Result<Sleep> {
        let keys = file.table("sleep", SLEEP)?;
        let chance = self.chance(&keys)?;
        let time = self.time(&keys, "time")?;
        let Some(mean) = time.mean else {
            let reason = "only think and critical times are fitted";
            return Err(keys.table("time", TIME)?.wrong("source", reason.into()));
        };
        Ok(Sleep { chance, time: time.shape.of(mean) })
    }

    fn shootdown(&mut self, file: &Keys<'_>) -> Result<Shootdown> {
        let keys = file.table("shootdown", SHOOTDOWN)?;
        let chance = self.chance(&keys)?;
        let handler = self.fixed(&keys, "handler", 0.0)?;
        let is_held = keys.is_set("held")?;
        Ok(Shootdown { chance, is_held, handler })
    }

    fn noise(&mut self, file: &Keys<'_>) -> Result<Noise> {
        let keys = file.table("noise", NOISE)?;
        let (busy, idle) = (self.fixed(&keys, "busy", 0.001)?, self.fixed(&keys, "idle", 0.001)?);
        Ok(Noise { busy, idle })
    }

    /// A time that is not fitted and has no `shape`.
    fn fixed(&mut self, keys: &Keys<'_>, key: &str, least: f64) -> Result<Picos> {
        let table = keys.table(key, FIXED)?;
        let micros = table.number("us", least, MOST_MICROS)?;
        self.stated(&table)?;
        Ok(Picos::from_nanos(micros * 1e3))
    }
}
