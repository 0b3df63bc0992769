//! Writes a machine file.

use std::fmt::Write;

use super::file::{ATOMICS, QUEUES, SOURCES, STORES};
use super::{CostEntry, Machine};

/// The keys of the costs of a level.
const LEVEL: [&str; 5] =
    ["load-modified", "load-shared", "store-modified", "store-shared", "wakeup"];

impl Machine {
    /// The machine as a machine file with all costs in nanoseconds. Parsing it returns an equal
    /// machine.
    pub fn to_toml(&self) -> String {
        let mut text = format!(
            "name = {}\nabout = {}\nmhz = {}\natomics = {}\nqueue = {}\nstores = {}\n{}\n[costs]\n",
            quoted(&self.name),
            quoted(&self.about),
            self.mhz,
            quoted(name_of(ATOMICS, self.atomics)),
            quoted(name_of(QUEUES, self.queue)),
            quoted(name_of(STORES, self.stores)),
            doubts(&self.doubts)
        );
        lines(&mut text, &self.cost_entries, "costs.");
        if self.noise.is_some() {
            text += "\n[noise]\n";
            lines(&mut text, &self.cost_entries, "noise.");
        }
        for level in &self.levels {
            // Writing to a String cannot fail.
            let _ = write!(
                text,
                "\n[[levels]]\nname = {}\ncpus = {}\n",
                quoted(&level.name),
                level.cpus
            );
            for key in LEVEL {
                let name = format!("{}.{key}", level.name);
                if let Some(cost) = self.cost_entries.iter().find(|cost| cost.key == name) {
                    line(&mut text, key, cost);
                }
            }
        }
        text
    }
}

/// The name of a value in a machine file.
fn name_of<T: PartialEq>(names: &[(&'static str, T)], value: T) -> &'static str {
    names.iter().find(|(_, named)| *named == value).map_or("", |(name, _)| name)
}

/// The `doubts` key with one line per doubt; empty without doubts.
fn doubts(doubts: &[String]) -> String {
    let each = |doubt: &String| format!("    {},\n", quoted(doubt));
    match doubts {
        [] => String::new(),
        doubts => format!("doubts = [\n{}]\n", doubts.iter().map(each).collect::<String>()),
    }
}

/// Writes the costs whose keys begin with `prefix`.
fn lines(text: &mut String, entries: &[CostEntry], prefix: &str) {
    for cost in entries {
        if let Some(key) = cost.key.strip_prefix(prefix) {
            line(text, key, cost);
        }
    }
}

fn line(text: &mut String, key: &str, cost: &CostEntry) {
    let nanos = cost.cost.0 as f64 / 1e3;
    let note = match cost.note.as_str() {
        "" => String::new(),
        note => format!(", note = {}", quoted(note)),
    };
    let source = name_of(SOURCES, cost.source);
    let _ = writeln!(text, "{key} = {{ ns = {nanos}, source = \"{source}\"{note} }}");
}

/// A TOML basic string without control characters. TOML escapes quotes and backslashes like Rust.
fn quoted(text: &str) -> String {
    let plain: String = text.chars().filter(|c| !c.is_control()).collect();
    format!("\"{}\"", plain.replace('\\', "\\\\").replace('"', "\\\""))
}
