//! Reads a machine file.

use super::keys::{Keys, Result, read};
use super::{
    Atomics, CostEntry, Costs, Level, LineCosts, MAX_CPUS, Machine, Queue, Source, Stores,
};
use crate::host_model::Noise;
use crate::time::Picos;

/// Maximum cost that a file may state, in ns. A larger cost is a unit error.
const MAX_NANOS: f64 = 1e9;

/// Maximum number of doubts in a file, and maximum length of a doubt in bytes.
const MAX_DOUBTS: usize = 32;
const MAX_DOUBT_LEN: usize = 400;

const KEYS: &[&str] =
    &["name", "about", "mhz", "atomics", "queue", "stores", "doubts", "costs", "noise", "levels"];
const COSTS: &[&str] = &[
    "hit",
    "atomic",
    "pause",
    "memory",
    "invalidate",
    "increment",
    "exit",
    "switch",
    "wakeup",
    "in-kernel",
    "yield",
    "hop",
];
const LEVEL: &[&str] =
    &["name", "cpus", "load-modified", "load-shared", "store-modified", "store-shared", "wakeup"];
const NOISE: &[&str] = &["busy", "idle"];
const COST: &[&str] = &["cycles", "ns", "source", "note"];

pub(super) fn parse(text: &str) -> Result<Machine> {
    read(text, KEYS, |file| {
        let mhz = file.number("mhz", 1.0, 100_000.0)?;
        let mut reader = CostReader { mhz, entries: Vec::new() };
        let costs = reader.costs(&file.table("costs", COSTS)?)?;
        let noise = reader.noise(file)?;
        let levels = reader.levels(file)?;
        let (name, about, entries) = (file.text("name")?, file.text("about")?, reader.entries);
        let atomics = file.opt_name("atomics", ATOMICS)?.unwrap_or(Atomics::Near);
        let queue = file.opt_name("queue", QUEUES)?.unwrap_or(Queue::Random);
        let stores = file.opt_name("stores", STORES)?.unwrap_or_default();
        let doubts = doubts(file)?;
        let machine = Machine {
            name,
            about,
            mhz,
            atomics,
            queue,
            stores,
            levels,
            costs,
            noise,
            cost_entries: entries,
            doubts,
        };
        Ok(machine)
    })
}

/// The recorded doubts about the file's costs. Files without doubts and older files have none.
fn doubts(file: &Keys<'_>) -> Result<Vec<String>> {
    let key = "doubts";
    if file.get(key).is_none() {
        return Ok(Vec::new());
    }
    let doubts = file.texts(key)?;
    if doubts.len() > MAX_DOUBTS {
        return Err(
            file.invalid(key, format!("must be at most {MAX_DOUBTS}, not {}", doubts.len()))
        );
    }
    let is_short = |doubt: &String| (1..=MAX_DOUBT_LEN).contains(&doubt.len());
    let is_line = |doubt: &String| !doubt.contains(char::is_control);
    if doubts.iter().all(|doubt| is_short(doubt) && is_line(doubt)) {
        Ok(doubts)
    } else {
        let reason = format!("each must be a line of at most {MAX_DOUBT_LEN} bytes");
        Err(file.invalid(key, reason))
    }
}

pub(super) const ATOMICS: &[(&str, Atomics)] = &[("near", Atomics::Near), ("far", Atomics::Far)];
pub(super) const QUEUES: &[(&str, Queue)] = &[("random", Queue::Random), ("fifo", Queue::Fifo)];
pub(super) const STORES: &[(&str, Stores)] =
    &[("buffered", Stores::Buffered), ("waiting", Stores::Waiting)];

pub(super) const SOURCES: &[(&str, Source)] =
    &[("paper", Source::Paper), ("measured", Source::Measured), ("assumed", Source::Assumed)];

/// Reads costs and records their sources.
struct CostReader {
    mhz: f64,
    entries: Vec<CostEntry>,
}

impl CostReader {
    fn cost(&mut self, table: &Keys<'_>, key: &str) -> Result<Picos> {
        let cost = table.table(key, COST)?;
        let nanos = match (cost.get("cycles"), cost.get("ns")) {
            (Some(_), None) => {
                cost.number("cycles", 0.0, MAX_NANOS * self.mhz / 1e3)? * 1e3 / self.mhz
            }
            (None, Some(_)) => cost.number("ns", 0.0, MAX_NANOS)?,
            _ => return Err(table.invalid(key, "write either cycles = N or ns = N".into())),
        };
        let source = cost.name("source", SOURCES)?;
        let note = cost.opt_text("note")?.unwrap_or_default();
        let picos = Picos::from_nanos(nanos);
        self.entries.push(CostEntry { key: table.key(key), cost: picos, source, note });
        Ok(picos)
    }

    fn optional(&mut self, table: &Keys<'_>, key: &str) -> Result<Option<Picos>> {
        table.get(key).map(|_| self.cost(table, key)).transpose()
    }

    fn costs(&mut self, table: &Keys<'_>) -> Result<Costs> {
        let costs = Costs {
            hit: self.cost(table, "hit")?,
            atomic: self.cost(table, "atomic")?,
            pause: self.cost(table, "pause")?,
            memory: self.cost(table, "memory")?,
            invalidate: self.cost(table, "invalidate")?,
            increment: self.cost(table, "increment")?,
            exit: self.cost(table, "exit")?,
            switch: self.cost(table, "switch")?,
            wakeup: self.cost(table, "wakeup")?,
            in_kernel: self.optional(table, "in-kernel")?,
            yield_to: self.optional(table, "yield")?.unwrap_or_default(),
        };
        self.optional(table, "hop")?;
        if costs.pause == Picos::ZERO {
            return Err(table.invalid("pause", "a spin loop cannot be free".into()));
        }
        Ok(costs)
    }

    /// The host's background noise, if the file defines it.
    fn noise(&mut self, file: &Keys<'_>) -> Result<Option<Noise>> {
        if file.get("noise").is_none() {
            return Ok(None);
        }
        let table = file.table("noise", NOISE)?;
        let mut time = |key| match self.cost(&table, key)? {
            Picos::ZERO => Err(table.invalid(key, "must not be zero".into())),
            time => Ok(time),
        };
        Ok(Some(Noise { busy: time("busy")?, idle: time("idle")? }))
    }

    fn levels(&mut self, file: &Keys<'_>) -> Result<Vec<Level>> {
        let mut levels: Vec<Level> = Vec::new();
        for table in file.tables("levels", LEVEL)? {
            let level = self.level(table, levels.last())?;
            levels.push(level);
        }
        if levels.is_empty() {
            Err(file.invalid("levels", "name at least one".into()))
        } else {
            Ok(levels)
        }
    }

    fn level(&mut self, table: Keys<'_>, inner: Option<&Level>) -> Result<Level> {
        let name = table.text("name")?;
        let table = table.with_prefix(&name);
        let cpus = table.integer("cpus", 1, MAX_CPUS as u32)? as usize;
        if let Some(inner) =
            inner.filter(|inner| cpus <= inner.cpus || !cpus.is_multiple_of(inner.cpus))
        {
            let reason = format!(
                "{cpus} is not a multiple of the {} of '{}'; levels are listed from the innermost",
                inner.cpus, inner.name
            );
            return Err(table.invalid("cpus", reason));
        }
        let lines = LineCosts {
            load_modified: self.cost(&table, "load-modified")?,
            load_shared: self.cost(&table, "load-shared")?,
            store_modified: self.cost(&table, "store-modified")?,
            store_shared: self.cost(&table, "store-shared")?,
            wakeup: match table.get("wakeup") {
                Some(_) => self.cost(&table, "wakeup")?,
                None => Picos::ZERO,
            },
        };
        Ok(Level { name, cpus, lines })
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
