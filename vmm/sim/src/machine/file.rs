//! Reads a machine file.

use base::text_lines::TextLines;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{MachineError, MachineFault};
use super::{Atomics, Costs, Level, LineCosts, MOST_CPUS, Machine, Queue, Source, Stated, Stores};
use crate::host::Noise;
use crate::time::Picos;

/// The largest cost that a file may state. More is a mistake in the unit.
const MOST_NANOS: f64 = 1e9;

/// The most doubts that a file may have, and the bytes of each.
const MOST_DOUBTS: usize = 32;
const LONGEST_DOUBT: usize = 400;

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
    "hop",
];
const LEVEL: &[&str] =
    &["name", "cpus", "load-modified", "load-shared", "store-modified", "store-shared"];
const NOISE: &[&str] = &["busy", "idle"];
const COST: &[&str] = &["cycles", "ns", "source", "note"];

pub(crate) type Result<T> = std::result::Result<T, MachineError>;

pub(super) fn parse(text: &str) -> Result<Machine> {
    read(text, KEYS, |file| {
        let mhz = file.number("mhz", 1.0, 100_000.0)?;
        let mut reader = Costly { mhz, stated: Vec::new() };
        let costs = reader.costs(&file.table("costs", COSTS)?)?;
        let noise = reader.noise(file)?;
        let levels = reader.levels(file)?;
        let (name, about, stated) = (file.text("name")?, file.text("about")?, reader.stated);
        let atomics = file.name_if_any("atomics", ATOMICS)?.unwrap_or(Atomics::Near);
        let queue = file.name_if_any("queue", QUEUES)?.unwrap_or(Queue::Random);
        let stores = file.name_if_any("stores", STORES)?.unwrap_or_default();
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
            stated,
            doubts,
        };
        Ok(machine)
    })
}

/// What its costs were doubted for. Files that nobody doubted, and those of before, have none.
fn doubts(file: &Table<'_>) -> Result<Vec<String>> {
    let key = "doubts";
    if file.get(key).is_none() {
        return Ok(Vec::new());
    }
    let doubts = file.texts(key)?;
    if doubts.len() > MOST_DOUBTS {
        return Err(file.wrong(key, format!("there are {}, {MOST_DOUBTS} at most", doubts.len())));
    }
    let is_short = |doubt: &String| (1..=LONGEST_DOUBT).contains(&doubt.len());
    let is_line = |doubt: &String| !doubt.contains(char::is_control);
    if doubts.iter().all(|doubt| is_short(doubt) && is_line(doubt)) {
        Ok(doubts)
    } else {
        let reason = format!("each is a text in one line, of {LONGEST_DOUBT} bytes at most");
        Err(file.wrong(key, reason))
    }
}

const ATOMICS: &[(&str, Atomics)] = &[("near", Atomics::Near), ("far", Atomics::Far)];
const QUEUES: &[(&str, Queue)] = &[("random", Queue::Random), ("fifo", Queue::Fifo)];
const STORES: &[(&str, Stores)] = &[("buffered", Stores::Buffered), ("waiting", Stores::Waiting)];

/// Where a figure is from.
pub(crate) const SOURCES: [(&str, Source); 3] =
    [("paper", Source::Paper), ("measured", Source::Measured), ("assumed", Source::Assumed)];

/// Reads a text whose keys, outside of tables, are `known`.
pub(crate) fn read<T>(
    text: &str,
    known: &[&'static str],
    convert: impl FnOnce(&Table<'_>) -> Result<T>,
) -> Result<T> {
    let lines = TextLines::new(text);
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| lines.of(&span));
        MachineFault::Toml(error.message().replace('\n', " ")).at(line)
    })?;
    convert(&Table::new(&lines, table.get_ref(), String::new(), 1, known)?)
}

/// A table whose keys are known.
pub(crate) struct Table<'t> {
    lines: &'t TextLines,
    table: &'t DeTable<'t>,
    /// How messages name its keys: empty, or ends with a dot.
    prefix: String,
    /// The line of its head.
    line: usize,
}

impl<'t> Table<'t> {
    fn new(
        lines: &'t TextLines,
        table: &'t DeTable<'t>,
        prefix: String,
        line: usize,
        known: &[&'static str],
    ) -> Result<Self> {
        for key in table.keys() {
            let name: &str = key.get_ref();
            if !known.contains(&name) {
                let (key, line) = (format!("{prefix}{name}"), lines.of(&key.span()));
                return Err(MachineFault::Unknown { key, known: known.into() }.at(line));
            }
        }
        Ok(Self { lines, table, prefix, line })
    }

    fn key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    pub(crate) fn get(&self, key: &str) -> Option<&'t Spanned<DeValue<'t>>> {
        self.table.get(key)
    }

    fn need(&self, key: &str) -> Result<&'t Spanned<DeValue<'t>>> {
        self.get(key).ok_or_else(|| self.missing(key))
    }

    fn missing(&self, key: &str) -> MachineError {
        MachineFault::Missing { key: self.key(key) }.at(self.line)
    }

    fn wants(&self, key: &str, wanted: &'static str, value: &Spanned<DeValue<'_>>) -> MachineError {
        let (key, found) = (self.key(key), value.get_ref().type_str());
        MachineFault::Kind { key, wanted, found }.at(self.lines.of(&value.span()))
    }

    pub(crate) fn wrong(&self, key: &str, reason: String) -> MachineError {
        let line = self.get(key).map_or(self.line, |value| self.lines.of(&value.span()));
        MachineFault::Value { key: self.key(key), why: reason }.at(line)
    }

    pub(crate) fn text(&self, key: &str) -> Result<String> {
        let value = self.need(key)?;
        let text = value.get_ref().as_str().ok_or_else(|| self.wants(key, "a text", value))?;
        if text.is_empty() || text.chars().any(char::is_control) {
            return Err(self.wrong(key, "a text in one line is wanted".into()));
        }
        Ok(text.to_owned())
    }

    pub(crate) fn number(&self, key: &str, least: f64, most: f64) -> Result<f64> {
        let value = self.need(key)?;
        let text = match value.get_ref() {
            DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
            DeValue::Float(number) => number.as_str(),
            _ => return Err(self.wants(key, "a decimal number", value)),
        };
        let number = text.replace('_', "").parse::<f64>();
        match number.ok().filter(|number| (least..=most).contains(number)) {
            Some(number) => Ok(number),
            None => Err(self.wrong(key, format!("{text} is not from {least} to {most}"))),
        }
    }

    pub(crate) fn table(&self, key: &str, known: &[&'static str]) -> Result<Table<'t>> {
        self.of(key, self.need(key)?, self.key(key) + ".", known)
    }

    /// The tables of an array; none if there is no such key.
    pub(crate) fn tables(&self, key: &str, known: &[&'static str]) -> Result<Vec<Table<'t>>> {
        let Some(value) = self.get(key) else { return Ok(Vec::new()) };
        let all = value.get_ref().as_array();
        let all = all.ok_or_else(|| self.wants(key, "an array of tables", value))?;
        all.iter().map(|value| self.of(key, value, self.key(key) + ".", known)).collect()
    }

    /// The texts of an array.
    pub(crate) fn texts(&self, key: &str) -> Result<Vec<String>> {
        let value = self.need(key)?;
        let all = value.get_ref().as_array();
        let all = all.ok_or_else(|| self.wants(key, "an array of texts", value))?;
        let text = |value: &Spanned<DeValue<'_>>| {
            let text = value.get_ref().as_str().ok_or_else(|| self.wants(key, "texts", value))?;
            Ok(text.to_owned())
        };
        all.iter().map(text).collect()
    }

    /// A text that may be missing.
    pub(crate) fn text_if_any(&self, key: &str) -> Result<Option<String>> {
        self.get(key).map(|_| self.text(key)).transpose()
    }

    /// What a text stands for, by its names.
    pub(crate) fn name<T: Copy>(&self, key: &str, names: &[(&str, T)]) -> Result<T> {
        self.name_if_any(key, names)?.ok_or_else(|| self.missing(key))
    }

    /// What a text that may be missing stands for.
    pub(crate) fn name_if_any<T: Copy>(&self, key: &str, names: &[(&str, T)]) -> Result<Option<T>> {
        let Some(text) = self.text_if_any(key)? else { return Ok(None) };
        let of_name = names.iter().find(|(name, _)| *name == text);
        of_name.map(|(_, value)| Some(*value)).ok_or_else(|| {
            let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
            self.wrong(key, format!("'{text}' is not one of {}", names.join(", ")))
        })
    }

    /// A number that may be missing.
    pub(crate) fn number_if_any(&self, key: &str, least: f64, most: f64) -> Result<Option<f64>> {
        self.get(key).map(|_| self.number(key, least, most)).transpose()
    }

    /// A whole number.
    pub(crate) fn whole(&self, key: &str, least: u32, most: u32) -> Result<u32> {
        let number = self.number(key, least.into(), most.into())?;
        if number.fract() == 0.0 {
            Ok(number as u32)
        } else {
            Err(self.wrong(key, format!("{number} is not a whole number")))
        }
    }

    /// Is this key set to true? It need not be there.
    pub(crate) fn is_set(&self, key: &str) -> Result<bool> {
        let Some(value) = self.get(key) else { return Ok(false) };
        value.get_ref().as_bool().ok_or_else(|| self.wants(key, "true or false", value))
    }

    fn of(
        &self,
        key: &str,
        value: &'t Spanned<DeValue<'t>>,
        prefix: String,
        known: &[&'static str],
    ) -> Result<Table<'t>> {
        let table = value.get_ref().as_table().ok_or_else(|| self.wants(key, "a table", value))?;
        Table::new(self.lines, table, prefix, self.lines.of(&value.span()), known)
    }
}

/// Reads costs, and keeps where each comes from.
struct Costly {
    mhz: f64,
    stated: Vec<Stated>,
}

impl Costly {
    fn cost(&mut self, table: &Table<'_>, key: &str) -> Result<Picos> {
        let cost = table.table(key, COST)?;
        let nanos = match (cost.get("cycles"), cost.get("ns")) {
            (Some(_), None) => {
                cost.number("cycles", 0.0, MOST_NANOS * self.mhz / 1e3)? * 1e3 / self.mhz
            }
            (None, Some(_)) => cost.number("ns", 0.0, MOST_NANOS)?,
            _ => return Err(table.wrong(key, "write either cycles = N or ns = N".into())),
        };
        let source = cost.name("source", &SOURCES)?;
        let note = cost.text_if_any("note")?.unwrap_or_default();
        let picos = Picos::from_nanos(nanos);
        self.stated.push(Stated { key: table.key(key), cost: picos, source, note });
        Ok(picos)
    }

    fn costs(&mut self, table: &Table<'_>) -> Result<Costs> {
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
        };
        if table.get("hop").is_some() {
            self.cost(table, "hop")?;
        }
        if costs.pause == Picos::ZERO {
            return Err(table.wrong("pause", "a spin loop cannot be free".into()));
        }
        Ok(costs)
    }

    /// The threads of the host, if the file has any.
    fn noise(&mut self, file: &Table<'_>) -> Result<Option<Noise>> {
        if file.get("noise").is_none() {
            return Ok(None);
        }
        let table = file.table("noise", NOISE)?;
        let mut time = |key| match self.cost(&table, key)? {
            Picos::ZERO => Err(table.wrong(key, "a thread that runs takes some time".into())),
            time => Ok(time),
        };
        Ok(Some(Noise { busy: time("busy")?, idle: time("idle")? }))
    }

    fn levels(&mut self, file: &Table<'_>) -> Result<Vec<Level>> {
        let value = file.need("levels")?;
        let wanted = "tables: [[levels]]";
        let all = value.get_ref().as_array().ok_or_else(|| file.wants("levels", wanted, value))?;
        let mut levels: Vec<Level> = Vec::new();
        for value in all.iter() {
            let level = self.level(file, value, levels.last())?;
            levels.push(level);
        }
        if levels.is_empty() {
            Err(file.wrong("levels", "name at least one".into()))
        } else {
            Ok(levels)
        }
    }

    fn level(
        &mut self,
        file: &Table<'_>,
        value: &Spanned<DeValue<'_>>,
        inner: Option<&Level>,
    ) -> Result<Level> {
        let name = file.of("levels", value, "levels.".into(), LEVEL)?.text("name")?;
        let table = file.of("levels", value, format!("{name}."), LEVEL)?;
        let cpus = table.whole("cpus", 1, MOST_CPUS as u32)? as usize;
        if let Some(inner) =
            inner.filter(|inner| cpus <= inner.cpus || !cpus.is_multiple_of(inner.cpus))
        {
            let reason = format!(
                "{cpus} is not a multiple of the {} of '{}', from the inside out",
                inner.cpus, inner.name
            );
            return Err(table.wrong("cpus", reason));
        }
        let lines = LineCosts {
            load_modified: self.cost(&table, "load-modified")?,
            load_shared: self.cost(&table, "load-shared")?,
            store_modified: self.cost(&table, "store-modified")?,
            store_shared: self.cost(&table, "store-shared")?,
        };
        Ok(Level { name, cpus, lines })
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
